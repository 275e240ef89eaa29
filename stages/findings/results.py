"""All results of a study, read from the files of its stages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from typing import TypeVar

import numpy as np

from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import NONE, Params
from stages.evaluation.calibration import CoverageRecord, ReliabilityRecord
from stages.evaluation.confusion import ConfusionRecord
from stages.evaluation.doubtful_labels import DoubtfulLabel
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
from stages.findings.answers import answers
from stages.findings.audit import audit
from stages.findings.axes import pairs
from stages.findings.cells import Cell, cells
from stages.findings.contrasts import compared, contrasts
from stages.findings.effects import Trials, interactions, main_effects
from stages.findings.models import Progress, Step, TriedStep, endings, models
from stages.findings.tables import agreements, model_costs, score_table
from stages.tasks._labelled_rows import distinct_draws
from stages.tracking.records import trial_name

ROWS = "row_scores.npy", "row_groups.npy"  # [trials, rows]; [rows], empty if rows have no groups
KINDS = "history", "rates", "samples"  # of files about the progress of a pretraining

T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True)
class Results:
    """The trials and other records of a study, in the order of params.yaml, and all findings.
    Records whose absence breaks no finding may be left out."""

    params: Params
    trials: Sequence[ScoredTrial]
    row_scores: Mapping[TrialKey, np.ndarray]  # of rows, or of groups of rows
    tasks: Mapping[str, Json]  # task.json of each task: num_examples, labels, ...
    grouped_tasks: Sequence[str] = ()  # whose test rows are counted by document, package or group
    curves: Sequence[EpochRecord] = ()
    pretraining_costs: Mapping[CheckpointKey, Json] = field(
        default_factory=dict
    )  # wall_time_s, ...
    finetuning_costs: Mapping[TrialKey, CostRecord] = field(default_factory=dict)
    progress: Mapping[CheckpointKey, Progress] = field(default_factory=dict)
    # By corpus and tokenizer that a model was trained on
    contamination: Mapping[tuple[str, str], Json] = field(default_factory=dict)
    # By task
    examples: Mapping[str, list[Json]] = field(default_factory=dict)  # as ``confusion.examples``
    near_duplicates: Mapping[str, NearDuplicates] = field(default_factory=dict)
    confusion: Mapping[str, list[ConfusionRecord]] = field(default_factory=dict)
    doubtful_labels: Mapping[str, list[DoubtfulLabel]] = field(default_factory=dict)
    reliability: Mapping[str, list[ReliabilityRecord]] = field(default_factory=dict)
    coverage: Mapping[str, list[CoverageRecord]] = field(default_factory=dict)
    inputs: Mapping[str, list[InputRecord]] = field(default_factory=dict)
    estimates: Mapping[str, list[EstimateRecord]] = field(default_factory=dict)

    # Derived from the records. Facts are last; each is computed once.
    models = cached_property(models)  # those that were fine-tuned
    _cells = cached_property(cells)
    pairs = cached_property(lambda self: pairs(self.models))  # of models that differ in one axis
    compared = cached_property(compared)  # cells that differ in one axis
    lines = cached_property(lambda self: Trials(self.cells, confidence=self.confidence))
    endings = cached_property(endings)  # of pretrainings
    effects = cached_property(main_effects)
    interactions = cached_property(interactions)
    contrasts = cached_property(contrasts)
    answers = cached_property(answers)
    scores_table = cached_property(score_table)
    model_costs = cached_property(model_costs)
    agreements = cached_property(agreements)  # how estimates rank the models
    audit = cached_property(audit)

    @property
    def confidence(self) -> float:
        return self.params.evaluation.confidence

    @cached_property
    def budgets(self) -> list[str]:
        """The label budgets, the smallest first."""
        return sorted(map(str, self.params.finetune.label_budgets), key=budget_order)

    @property
    def cells(self) -> list[Cell]:
        return self._cells[0]

    @property
    def moderation(self) -> Moderation:
        """The intervals of cells' means and of their differences."""
        return self._cells[1]

    def cells_at(self, task: str, label_budget: str) -> tuple[list[Cell], list[Cell]]:
        """Returns the cells of all models, and those of all baselines."""
        here = [c for c in self.cells if (c.task, c.label_budget) == (task, label_budget)]
        return [c for c in here if not c.is_baseline], [c for c in here if c.is_baseline]

    def num_labels(self, task: str, label_budget: str) -> int:
        """Returns the number of labels; for "all" the size of the training split."""
        is_all = label_budget == "all"
        return self.tasks[task]["num_examples"]["train"] if is_all else int(label_budget)


def load(params: Params) -> Results:
    """Reads the results of a study, after deleting results that params.yaml no longer lists. The
    budget of ``params`` must already be matched.

    Raises ValueError with the path of a file that is missing or does not match params.yaml.
    """
    for folder in (paths.EVALUATED, paths.TIMINGS / "finetune"):
        discard_unlisted(folder, params.tasks)
    for folder in (paths.TIMINGS / "pretrain", *(paths.PROGRESS / kind for kind in KINDS)):
        discard_unlisted(folder, params.models)
    for task in params.tasks:
        discard_unlisted(
            paths.TIMINGS / "finetune" / task, [f"{model}.csv" for model in params.models]
        )

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
        rows, groups = (np.load(present(paths.EVALUATED / task / name)) for name in ROWS)
        grouped_tasks += [task] if groups.size else []
        row_scores |= dict(zip((t.key for t in scored), by_groups(rows, groups), strict=True))
        for name in params.models:
            costs = read(paths.TIMINGS / "finetune" / task / f"{name}.csv", CostRecord)
            finetuning |= {cost.key: cost for cost in costs}
    read_by = {(r.corpus, r.tokenizer) for r in params.models.values() if r.learnt[0] != NONE}
    texts = [text for text in product(params.corpora, params.tokenizers) if text in read_by]
    searched = {text: paths.CONTAMINATION / text[0] / f"{text[1]}.json" for text in texts}
    contamination = {text: read_json(present(path)) for text, path in searched.items()}
    near_duplicates = records("near_duplicates.json")
    return Results(
        params=params,
        trials=trials,
        row_scores=row_scores,
        tasks=tasks,
        grouped_tasks=grouped_tasks,
        curves=[*chain(*tables("history.csv", EpochRecord).values())],
        pretraining_costs={
            key: read_json(present(paths.pretraining_time(key))) for key in params.checkpoints
        },
        finetuning_costs=finetuning,
        progress={
            key: Progress(
                read(paths.progress(key, "history"), Step),
                read(paths.progress(key, "rates"), TriedStep),
            )
            for key in params.checkpoints
        },
        contamination=contamination,
        examples={
            task: read_jsonl(present(paths.EVALUATED / task / "examples.jsonl")) for task in tasks
        },
        near_duplicates={t: NearDuplicates(**about) for t, about in near_duplicates.items()},
        confusion=tables("confusion.csv", ConfusionRecord),
        doubtful_labels=tables("doubtful_labels.csv", DoubtfulLabel),
        reliability=tables("reliability.csv", ReliabilityRecord),
        coverage=tables("coverage.csv", CoverageRecord),
        inputs=tables("inputs.csv", InputRecord),
        estimates=tables("estimates.csv", EstimateRecord),
    )


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
    incompatible = {(each.model, each.method) for each in skipped}
    listed = [
        TrialKey(name, pretrain_seed, task, method, str(budget), seed)
        for name, entry in params.models.items()
        for pretrain_seed, method in product(entry.seeds, finetune.methods)
        if (name, method) not in incompatible
        for budget, seed in product(finetune.label_budgets, finetune.seeds)
    ]
    external = {trial.model: trial.is_external for trial in scored}
    fitted = [name for name in params.baselines if name in external]  # not the incompatible ones
    for name, budget in product(fitted, finetune.label_budgets):
        draws = distinct_draws(
            budget,
            pretrain_seeds=params.pretrain_seeds,
            finetune_seeds=finetune.seeds,
            about=about,
            task=task,
            trains=not external[name],
        )
        listed += [TrialKey(name, one, task, CLASSICAL, str(budget), two) for one, two in draws]
    for key in listed:
        if key not in trials:
            raise ValueError(f"{where}: no trial of {trial_name(key)}; run `dvc repro`")
        trial = trials[key]
        if not math.isfinite(trial.value):
            raise ValueError(
                f"{where}: the {trial.metric} of {trial_name(key)} is {trial.value} and cannot be "
                f"compared: the model did not learn; lower the learning rate (now {trial.lr:g})"
            )
    for key in trials.keys() - set(listed):
        raise ValueError(f"{where}: params.yaml does not list {trial_name(key)}; run `dvc repro`")
    return [trials[key] for key in listed]
