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
from stages.evaluation.estimates import EstimateRecord, Estimates
from stages.evaluation.moderation import Moderation
from stages.evaluation.near_duplicates import NearDuplicates
from stages.evaluation.records import (
    CLASSICAL,
    CostRecord,
    EpochRecord,
    InputRecord,
    ScoredTrial,
    ScoredTry,
    SkippedMethod,
    TextBitsRecord,
    budget_order,
    discard_unlisted,
    present,
    read,
)
from stages.evaluation.screening import ScreenedOut, screened_out
from stages.findings.answers import BestRuns, Excesses, best_runs, excesses
from stages.findings.axes import AXES
from stages.findings.carry_over import CarryOver, carry_over
from stages.findings.cells import Cell, cells, is_external
from stages.findings.contrasts import Contrast, contrasts
from stages.findings.costs import Costs
from stages.findings.groups import Group, groups
from stages.findings.labels_needed import LabelsNeeded, labels_needed
from stages.findings.not_compared import NotCompared, not_compared
from stages.findings.overlap import Overlap
from stages.findings.pretraining_ends import Ending, endings
from stages.findings.pretraining_progress import Progress, kept_rate, read_progress
from stages.findings.questions import Question, questions
from stages.findings.ranking import Ranked, rankings
from stages.findings.scores import Scores
from stages.findings.training_sets import TrainingSets
from stages.kinds._kind import distinct_draws

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
    text_bits: dict[tuple[RunKey, str], TextBitsRecord]  # by checkpoint and task
    row_scores: dict[TrialKey, np.ndarray]
    estimates: Estimates
    tries: Sequence[ScoredTry]  # all variants that trials tried, including the ones that they kept

    @property
    def confidence(self) -> float:
        return self.params.evaluation.confidence

    @cached_property
    def groups(self) -> list[Group]:
        rates = {
            checkpoint: kept_rate(self.params.runs[checkpoint.run], progress)
            for checkpoint, progress in self.progress.items()
            if progress.history
        }
        runs, tokenizers = self.params.runs, self.params.tokenizers
        return groups(runs, tokenizers, self.trials, rates=rates, likeness=self.likeness)

    @cached_property
    def screened_out(self) -> dict[str, list[ScreenedOut]]:
        """The runs that are screened out, by task."""
        screen, runs = self.params.finetune.screen, self.params.runs
        return {
            task: screened_out(screen, runs, records)
            for task, records in self.estimates.records.items()
        }

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

    @cached_property
    def questions(self) -> list[Question]:
        """The questions of the study, each answered over all tasks."""
        uncorrected = contrasts(self.scores, self.params.finetune.methods, self.moderation)
        return questions(uncorrected, self.moderation)

    @cached_property
    def contrasts(self) -> list[Contrast]:
        tasks = self.scores.tasks
        every = [contrast for question in self.questions for contrast in question.contrasts]
        return sorted(every, key=lambda c: (AXES.index(c.axis), tasks.index(c.task), c.number))

    @cached_property
    def contrasts_of(self) -> dict[Cell, list[Contrast]]:
        """The contrasts of each cell that has any."""
        by_cell: dict[Cell, list[Contrast]] = {}
        for contrast in self.contrasts:
            for side in contrast.sides:
                by_cell.setdefault(side, []).append(contrast)
        return by_cell

    @cached_property
    def outside(self) -> Excesses:
        """The cells outside the limits of ``answer:``, each with the limits that it exceeds."""
        return excesses(self.scores, self.costs, self.params.answer)

    @cached_property
    def best_runs(self) -> dict[str | None, BestRuns]:
        """The best run of each task and label budget, by method. The key None has the best run with
        any method."""
        methods_by_key: dict[str | None, Sequence[str]] = {None: self.scores.methods}
        methods_by_key |= {method: [method] for method in self.scores.methods}
        return {
            key: best_runs(self.scores, self.moderation, methods, self.outside)
            for key, methods in methods_by_key.items()
        }

    @property
    def best_of_tasks(self) -> list[Cell]:
        """The best run of each task at the largest label budget."""
        budget, of_all = self.scores.label_budgets[-1], self.best_runs[None]
        places = ((task, budget) for task in self.scores.tasks)
        return [of_all[place].run for place in places if place in of_all]

    @cached_property
    def rankings(self) -> list[Ranked]:
        return rankings(self.scores, self.moderation)

    @cached_property
    def not_compared(self) -> list[NotCompared]:
        return not_compared(self.scores, self.contrasts)

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
    def labels_needed(self) -> dict[tuple[str, str, str], LabelsNeeded]:
        """The effect of more labels, by task, run and method."""
        return labels_needed(self.scores, self.moderation, self.num_labels)

    @cached_property
    def carry_over(self) -> list[CarryOver]:
        """The shares of pairs of runs that keep their order in a larger experiment."""
        return carry_over(self.scores, self.contrasts, self.progress)

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
        return Overlap(self.contamination, list(self.params.tasks))

    @cached_property
    def training_sets(self) -> TrainingSets:
        return TrainingSets(self.likeness, self.text_bits)

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
    discard_unlisted(paths.TIMINGS / "estimates", [f"{task}.csv" for task in params.tasks])
    discard_unlisted(paths.TIMINGS / "finetune", params.tasks)
    for task in params.tasks:
        discard_unlisted(paths.TIMINGS / "finetune" / task, [f"{run}.csv" for run in params.runs])

    def tables(name: str, kind: type[T]) -> dict[str, list[T]]:
        return {task: read(paths.EVALUATED / task / name, kind) for task in params.tasks}

    def records(name: str) -> dict[str, Json]:
        return {task: read_json(present(paths.EVALUATED / task / name)) for task in params.tasks}

    trials: list[ScoredTrial] = []
    row_scores: dict[TrialKey, np.ndarray] = {}
    finetuning: dict[TrialKey, CostRecord] = {}
    tasks = records("task.json")
    for task, scored in tables("trials.csv", ScoredTrial).items():
        trials += _complete(params, task, tasks[task], scored)
        by_row = np.load(present(paths.EVALUATED / task / "row_scores.npy"))
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
        text_bits={
            (bits.checkpoint, task): bits
            for task, of_task in tables("text_bits.csv", TextBitsRecord).items()
            for bits in of_task
        },
        row_scores=row_scores,
        estimates=Estimates.of(params.tasks),
        tries=[*chain(*tables("tries.csv", ScoredTry).values())],
    )
    if untimed := [t.key for t in trials if t.run in params.runs and t.key not in finetuning]:
        raise ValueError(f"{paths.TIMINGS}: no cost of {_words(untimed[0])}; run `dvc repro`")
    return results


def _complete(
    params: Params, task: str, about: Json, scored: Sequence[ScoredTrial]
) -> list[ScoredTrial]:
    """Returns the ``scored`` trials of a task in the order of params.yaml.

    A method and a run that are incompatible have no trials together, and a run that is screened out
    has no trials at all. ``about`` is the task's task.json. Raises ValueError unless the trials are
    exactly those that params.yaml lists.
    """
    where, finetune = paths.EVALUATED / task / "trials.csv", params.finetune
    trials = {trial.key: trial for trial in scored}
    skipped = read(paths.EVALUATED / task / "skipped.csv", SkippedMethod)
    incompatible = {(each.run, each.method) for each in skipped}
    estimates = read(paths.EVALUATED / task / "estimates.csv", EstimateRecord)
    untrained = {each.run for each in screened_out(finetune.screen, params.runs, estimates)}
    listed = [
        TrialKey(name, pretrain_seed, task, method, str(budget), seed)
        for name, run in params.runs.items()
        if name not in untrained
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
