"""All results of a study, read from the files of its stages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import TypeVar

import numpy as np

from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.keys import RunKey, TrialKey
from stages.core.params import NONE, Params
from stages.evaluation.calibration import CoverageRecord, ReliabilityRecord
from stages.evaluation.confusion import ConfusionRecord
from stages.evaluation.moderation import Moderation
from stages.evaluation.near_duplicates import NearDuplicates
from stages.evaluation.records import (
    CLASSICAL,
    CostRecord,
    EpochRecord,
    InputRecord,
    ScoredTrial,
    SkippedMethod,
    budget_order,
    discard_unlisted,
    present,
    read,
)
from stages.evaluation.row_scores import by_groups
from stages.evaluation.transferability import EstimateRecord
from stages.findings.answers import Study, answers, choice_of, score_table, violations
from stages.findings.audit import audit
from stages.findings.axes import Pair, axes, pairs
from stages.findings.cells import Cell, Scores, cells, is_external
from stages.findings.contrasts import Compared, compared, contrasts
from stages.findings.costs import Costs
from stages.findings.effects import Trials, interactions, main_effects
from stages.findings.estimates import Agreement, agreements
from stages.findings.facts import (
    Answer,
    AuditAnswer,
    Axis,
    Contrast,
    Interaction,
    MainEffect,
    ModelCost,
    ScoreTable,
)
from stages.findings.groups import Group, groups
from stages.findings.overlap import Overlap
from stages.findings.pretraining import Ending, Progress, endings, kept_rate, read_progress
from stages.findings.ranking import Ranked, rankings
from stages.tasks._labelled_rows import distinct_draws

ROWS = "row_scores.npy", "row_groups.npy"  # [trials, rows]; [rows], empty if rows have no groups

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Results:
    """The trials and other records of a study, in the order of params.yaml, and the findings that
    are derived from them."""

    params: Params
    trials: Sequence[ScoredTrial]
    curves: Sequence[EpochRecord]
    pretraining_costs: dict[RunKey, Json]  # wall_time_s, peak_memory_bytes, ...
    finetuning_costs: dict[TrialKey, CostRecord]
    tasks: dict[str, Json]  # task.json of each task: num_examples, labels, ...
    examples: dict[str, list[Json]]  # of each task; see ``evaluation.examples``
    near_duplicates: dict[str, NearDuplicates]  # of each task
    confusion: dict[str, list[ConfusionRecord]]  # of each task
    reliability: dict[str, list[ReliabilityRecord]]  # of each task
    coverage: dict[str, list[CoverageRecord]]  # of each task
    progress: dict[RunKey, Progress]
    contamination: dict[tuple[str, str], Json]  # by corpus and tokenizer that a run was trained on
    likeness: dict[tuple[str, str], Json]  # by corpus and tokenizer
    inputs: dict[str, list[InputRecord]]  # of each task
    row_scores: dict[TrialKey, np.ndarray]  # of rows, or of groups of rows
    estimates: dict[str, list[EstimateRecord]]  # of each task
    grouped_tasks: Sequence[str]  # whose test rows are counted by document, package or group

    @property
    def confidence(self) -> float:
        return self.params.evaluation.confidence

    @cached_property
    def groups(self) -> list[Group]:
        """The models that were fine-tuned."""
        rates = {
            checkpoint: kept_rate(self.params.runs[checkpoint.run], progress)
            for checkpoint, progress in self.progress.items()
            if progress.history
        }
        runs, tokenizers = self.params.runs, self.params.tokenizers
        return groups(runs, tokenizers, self.trials, rates=rates, likeness=self.likeness)

    @cached_property
    def _cells_and_moderation(self) -> tuple[list[Cell], Moderation]:
        return cells(
            self.groups,
            self.trials,
            lambda trial: self.row_scores[trial.key],
            overlaps={
                task: numbers["test"] / numbers["train"] if about["split_seeds"] else None
                for task, about in self.tasks.items()
                if (numbers := about["num_examples"])
            },
            baselines=self.params.baselines,
            confidence=self.confidence,
        )

    @cached_property
    def scores(self) -> Scores:
        fitted = {trial.run for trial in self.trials}
        return Scores(
            tasks=list(self.params.tasks),
            methods=list(self.params.finetune.methods),
            label_budgets=sorted(map(str, self.params.finetune.label_budgets), key=budget_order),
            groups=self.groups,
            baselines=[name for name in self.params.baselines if name in fitted],
            cells=self._cells_and_moderation[0],
        )

    @property
    def moderation(self) -> Moderation:
        """The intervals of cells' means and of their differences."""
        return self._cells_and_moderation[1]

    # Facts

    @cached_property
    def pairs(self) -> list[Pair]:
        return pairs(self.groups)

    @cached_property
    def axes(self) -> list[Axis]:
        return axes(self.pairs, self.scores.methods, self.scores.label_budgets)

    @cached_property
    def compared(self) -> list[Compared]:
        methods = self.params.finetune.methods
        return compared(self.scores, self.pairs, methods, self.moderation)

    @cached_property
    def _lines(self) -> Trials:
        return Trials(self.scores.cells)

    @cached_property
    def effects(self) -> list[MainEffect]:
        return main_effects(self._lines, self.compared, confidence=self.confidence)

    @cached_property
    def interactions(self) -> list[Interaction]:
        return interactions(self._lines, self.compared, confidence=self.confidence)

    @cached_property
    def contrasts(self) -> list[Contrast]:
        return contrasts(
            self.compared,
            self.effects,
            lambda cell: choice_of(cell, self.costs),
            confidence=self.confidence,
        )

    @cached_property
    def _study(self) -> Study:
        return Study(
            scores=self.scores,
            trials=self._lines,
            moderation=self.moderation,
            costs=self.costs,
            outside=violations(self.scores, self.costs, self.params.answer),
            num_labels=self.num_labels,
            confusion=self.confusion,
            coverage=self.coverage,
        )

    @cached_property
    def answers(self) -> list[Answer]:
        return answers(self._study)

    @cached_property
    def scores_table(self) -> ScoreTable:
        return score_table(self._study, self.answers, self.rankings)

    @cached_property
    def model_costs(self) -> list[ModelCost]:
        return self.costs.of_models(self.groups, self.scores.cells)

    @cached_property
    def audit(self) -> list[AuditAnswer]:
        return audit(self)

    @cached_property
    def rankings(self) -> list[Ranked]:
        return rankings(self.scores, self.moderation)

    @cached_property
    def num_labels(self) -> dict[str, dict[str, int]]:
        """The number of labels of each task and label budget; "all" is the size of the training
        split."""
        return {
            task: {
                budget: about["num_examples"]["train"] if budget == "all" else int(budget)
                for budget in self.scores.label_budgets
            }
            for task, about in self.tasks.items()
        }

    @cached_property
    def costs(self) -> Costs:
        return Costs(
            runs=self.params.runs,
            pretraining=self.pretraining_costs,
            finetuning=self.finetuning_costs,
            lineage_flops={trial.checkpoint: trial.lineage_flops for trial in self.trials},
        )

    @cached_property
    def overlap(self) -> Overlap:
        return Overlap(self.contamination, self.likeness, list(self.params.tasks))

    @cached_property
    def agreements(self) -> list[Agreement]:
        """How well the estimates from frozen states rank the models."""
        return agreements(self.scores, self.estimates)

    @cached_property
    def endings(self) -> list[Ending]:
        return endings(self.params.runs, self.progress)


def load(params: Params) -> Results:
    """Reads the results of a study, after deleting results that params.yaml no longer lists. The
    budget of ``params`` must already be matched.

    Raises ValueError with the path of a file that is missing or does not match params.yaml.
    """
    discard_unlisted(paths.EVALUATED, params.tasks)
    discard_unlisted(paths.TIMINGS / "pretrain", params.runs)
    discard_unlisted(paths.TIMINGS / "finetune", params.tasks)
    for task in params.tasks:
        discard_unlisted(paths.TIMINGS / "finetune" / task, [f"{run}.csv" for run in params.runs])

    def tables(name: str, kind: type[T]) -> dict[str, list[T]]:
        return {task: read(paths.EVALUATED / task / name, kind) for task in params.tasks}

    def records(name: str) -> dict[str, Json]:
        return {task: read_json(present(paths.EVALUATED / task / name)) for task in params.tasks}

    trials: list[ScoredTrial] = []
    grouped_tasks: list[str] = []
    row_scores: dict[TrialKey, np.ndarray] = {}
    finetuning: dict[TrialKey, CostRecord] = {}
    tasks = records("task.json")
    for task, scored in tables("trials.csv", ScoredTrial).items():
        trials += _complete(params, task, tasks[task], scored)
        rows, groups_of_rows = (np.load(present(paths.EVALUATED / task / name)) for name in ROWS)
        by_row = by_groups(rows, groups_of_rows)
        grouped_tasks += [task] if groups_of_rows.size else []
        row_scores |= {trial.key: rows for trial, rows in zip(scored, by_row, strict=True)}
        for run in params.runs:
            costs = read(paths.TIMINGS / "finetune" / task / f"{run}.csv", CostRecord)
            finetuning |= {cost.key: cost for cost in costs}
    read_by = {(r.corpus, r.tokenizer) for r in params.runs.values() if r.learnt[0] != NONE}
    texts = [text for text in product(params.corpora, params.tokenizers) if text in read_by]
    contamination, likeness = (
        {text: read_json(present(folder / text[0] / f"{text[1]}.json")) for text in texts}
        for folder in (paths.CONTAMINATION, paths.LIKENESS)
    )
    results = Results(
        params=params,
        trials=trials,
        curves=[*chain(*tables("history.csv", EpochRecord).values())],
        pretraining_costs={
            key: read_json(present(paths.pretraining_time(key))) for key in params.checkpoints
        },
        finetuning_costs=finetuning,
        tasks=tasks,
        examples={
            task: read_jsonl(present(paths.EVALUATED / task / "examples.jsonl")) for task in tasks
        },
        near_duplicates={
            task: NearDuplicates(**about) for task, about in records("near_duplicates.json").items()
        },
        confusion=tables("confusion.csv", ConfusionRecord),
        reliability=tables("reliability.csv", ReliabilityRecord),
        coverage=tables("coverage.csv", CoverageRecord),
        progress=read_progress(params.checkpoints),
        contamination=contamination,
        likeness=likeness,
        inputs=tables("inputs.csv", InputRecord),
        row_scores=row_scores,
        estimates=tables("estimates.csv", EstimateRecord),
        grouped_tasks=grouped_tasks,
    )
    if untimed := [t.key for t in trials if t.run in params.runs and t.key not in finetuning]:
        raise ValueError(f"{paths.TIMINGS}: no cost of {_words(untimed[0])}; run `dvc repro`")
    return results


def _complete(
    params: Params, task: str, about: Json, scored: Sequence[ScoredTrial]
) -> list[ScoredTrial]:
    """Returns the ``scored`` trials of a task in the order of params.yaml.

    A method and a model that are incompatible have no trials together. ``about`` is the task's
    task.json. Raises ValueError unless the trials are exactly those that params.yaml lists.
    """
    where, finetune = paths.EVALUATED / task / "trials.csv", params.finetune
    trials = {trial.key: trial for trial in scored}
    skipped = read(paths.EVALUATED / task / "skipped.csv", SkippedMethod)
    incompatible = {(each.run, each.method) for each in skipped}
    listed = [
        TrialKey(name, pretrain_seed, task, method, str(budget), seed)
        for name, run in params.runs.items()
        for pretrain_seed, method in product(run.seeds, finetune.methods)
        if (name, method) not in incompatible
        for budget, seed in product(finetune.label_budgets, finetune.seeds)
    ]
    external = {key.run: is_external(trial) for key, trial in trials.items()}
    for name, budget in product(params.baselines, finetune.label_budgets):
        if name not in external:  # the baseline is incompatible with the task
            continue
        draws = distinct_draws(
            budget,
            pretrain_seeds=params.pretrain_seeds,
            finetune_seeds=finetune.seeds,
            about=about,
            task=task,
            trains=not external[name],
        )
        listed += [
            TrialKey(name, seed, task, CLASSICAL, str(budget), other) for seed, other in draws
        ]
    if missing := [key for key in listed if key not in trials]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"{where}: no trial of {_words(missing[0])}{more}; run `dvc repro`")
    if surplus := sorted(trials.keys() - set(listed)):
        raise ValueError(
            f"{where}: params.yaml does not list {_words(surplus[0])}; run `dvc repro`"
        )
    if lost := [key for key in listed if not math.isfinite(trials[key].value)]:
        trial = trials[lost[0]]
        raise ValueError(
            f"{where}: the {trial.metric} of {_words(lost[0])} is {trial.value} and cannot "
            f"be compared: the model did not learn; lower the learning rate (now {trial.lr:g})"
        )
    return [trials[key] for key in listed]


def _words(trial: TrialKey) -> str:
    """Returns the name of a trial for messages."""
    return (
        f"{trial.checkpoint} on {trial.task} ({trial.method}, {trial.label_budget} labels, "
        f"fine-tuning seed {trial.finetune_seed})"
    )
