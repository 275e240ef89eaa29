"""All results of a study, read from the files that params.yaml lists."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.params import NONE, Params
from stages.evaluation.estimates import Estimates
from stages.evaluation.records import (
    CLASSICAL,
    CostRecord,
    EpochRecord,
    InputRecord,
    ScoredTrial,
    SkippedMethod,
    TextBitsRecord,
    budget_order,
    discard_unlisted,
    read,
)
from stages.kinds._kind import distinct_draws
from stages.reporting.comparison.amounts import with_amounts
from stages.reporting.comparison.cells import Cell, cells
from stages.reporting.comparison.contrasts import Contrast, contrasts
from stages.reporting.comparison.groups import Group, groups
from stages.reporting.comparison.pretraining_progress import Progress, kept_rate, read_progress

RowKey = tuple[str, str, str, str, int, int]  # task, run, method, label budget, both seeds


@dataclass(frozen=True)
class Results:
    """The trials of a study, in the order of params.yaml, and what is derived from them."""

    params: Params
    trials: Sequence[ScoredTrial]
    curves: Sequence[EpochRecord]
    pretraining_costs: dict[str, Json]  # run -> wall_time_s, peak_memory_bytes, ...
    finetuning_costs: dict[tuple[str, str, str, str, int], CostRecord]  # see ``trial_key``
    tasks: dict[str, Json]  # task.json of each: num_examples, labels, ...
    examples: dict[str, list[Json]]  # of each task; see ``evaluation.examples``
    progress: dict[str, Progress]  # of each run's pretraining
    contamination: dict[tuple[str, str], Json]  # of each corpus and tokenizer trained on
    likeness: dict[tuple[str, str], Json]  # of the same
    inputs: dict[str, list[InputRecord]]  # of each task
    text_bits: dict[tuple[str, str], TextBitsRecord]  # of a run and a task
    row_scores: dict[RowKey, np.ndarray]  # of trials; see ``row_key``
    estimates: Estimates

    @property
    def confidence(self) -> float:
        return self.params.evaluation.confidence

    @cached_property
    def groups(self) -> list[Group]:
        rates = {
            run: kept_rate(self.params.pretrain[run], progress)
            for run, progress in self.progress.items()
            if progress.history
        }
        found = groups(self.params, self.trials, rates)
        return [*with_amounts(found, self.likeness)]

    @cached_property
    def baselines(self) -> list[str]:
        """Those that are compatible with at least one task."""
        fitted = {trial.run for trial in self.trials}
        return [name for name in self.params.baselines if name in fitted]

    @property
    def names(self) -> list[str]:
        """The groups and then the baselines: the rows of every table and figure of scores."""
        return [*(group.name for group in self.groups), *self.baselines]

    @cached_property
    def cells(self) -> list[Cell]:
        return cells(
            self.groups,
            self.trials,
            lambda trial: self.row_scores[row_key(trial)],
            confidence=self.confidence,
        )

    @cached_property
    def contrasts(self) -> list[Contrast]:
        return contrasts(self.params, self.groups, self.cells)

    @property
    def methods(self) -> list[str]:
        return list(self.params.finetune.methods)

    @property
    def label_budgets(self) -> list[str]:
        return sorted(map(str, self.params.finetune.label_budgets), key=budget_order)

    def num_labels(self, task: str) -> dict[str, int]:
        """The number of labels of each label budget; "all" is the size of the training split."""
        available = self.tasks[task]["num_examples"]["train"]
        return {n: available if n == "all" else int(n) for n in self.label_budgets}

    def validation_labels(self, task: str) -> str:
        """What a label budget leaves out: the labels that choose epochs, rates and settings."""
        return f"+{self.tasks[task]['num_examples']['validation']:,} labels for validation"

    @cached_property
    def metrics(self) -> dict[str, str]:
        """The metric of each task."""
        return {trial.task: trial.metric for trial in self.trials}

    @cached_property
    def _cell(self) -> dict[tuple[str, str, str, str], Cell]:
        return {(c.group, c.task, c.method, c.label_budget): c for c in self.cells}

    def cell(self, group: str, task: str, method: str, label_budget: str) -> Cell | None:
        """The cell of a group or of a baseline, which has one for all methods."""
        method = CLASSICAL if group in self.params.baselines else method
        return self._cell.get((group, task, method, label_budget))

    def run_cells(self, task: str, label_budget: str) -> list[Cell]:
        """The cells of all runs, without the baselines."""
        return [
            cell
            for group in self.groups
            for method in self.methods
            if (cell := self.cell(group.name, task, method, label_budget))
        ]


def load(params: Params) -> Results:
    """Read what params.yaml lists. First delete results that it no longer lists.

    Raises ValueError with the path of a file that is missing or does not match params.yaml.
    """
    _discard_leftovers(params)
    # The matched budget overrides the number of steps in a run's entry.
    runs = {
        key: run.planned(_json(paths.PLANS / f"{key}.json")) for key, run in params.pretrain.items()
    }
    params = params.model_copy(update={"pretrain": runs})
    trials: list[ScoredTrial] = []
    curves: list[EpochRecord] = []
    row_scores: dict[RowKey, np.ndarray] = {}
    finetuning: dict[tuple[str, str, str, str, int], CostRecord] = {}
    pretraining = {
        run: _json(paths.TIMINGS / "pretrain" / f"{run}.json") for run in params.pretrain
    }
    tasks = {task: _json(paths.EVALUATED / task / "task.json") for task in params.tasks}
    for task in params.tasks:
        trials += _complete(params, task, tasks[task]["num_examples"]["train"])
        by_row = np.load(_present(paths.EVALUATED / task / "row_scores.npy"))
        scored = read(paths.EVALUATED / task / "trials.csv", ScoredTrial)
        row_scores |= {row_key(t): rows for t, rows in zip(scored, by_row, strict=True)}
        curves += read(paths.EVALUATED / task / "history.csv", EpochRecord)
        for run in params.pretrain:
            for cost in read(paths.TIMINGS / "finetune" / task / f"{run}.csv", CostRecord):
                finetuning[task, run, cost.method, cost.label_budget, cost.finetune_seed] = cost
    examples = {
        task: read_jsonl(_present(paths.EVALUATED / task / "examples.jsonl"))
        for task in params.tasks
    }
    results = Results(
        params=params,
        trials=trials,
        curves=curves,
        pretraining_costs=pretraining,
        finetuning_costs=finetuning,
        tasks=tasks,
        examples=examples,
        progress=read_progress(params.pretrain),
        contamination=_of_corpora(params, paths.CONTAMINATION),
        likeness=_of_corpora(params, paths.LIKENESS),
        inputs={
            task: read(paths.EVALUATED / task / "inputs.csv", InputRecord) for task in params.tasks
        },
        text_bits={
            (bits.run, task): bits
            for task in params.tasks
            for bits in read(paths.EVALUATED / task / "text_bits.csv", TextBitsRecord)
        },
        row_scores=row_scores,
        estimates=Estimates.of(params.tasks),
    )
    untimed = [t for t in trials if t.run in params.pretrain and trial_key(t) not in finetuning]
    if untimed:
        raise ValueError(
            f"{paths.TIMINGS}: no cost of {_words(*trial_key(untimed[0]))}; run `dvc repro`"
        )
    return results


def _of_corpora(params: Params, folder: Path) -> dict[tuple[str, str], Json]:
    """What was measured of each corpus and tokenizer that a run was trained on."""
    read_by = {(r.corpus, r.tokenizer) for r in params.pretrain.values() if r.learnt[0] != NONE}
    return {
        (corpus, tokenizer): _json(folder / corpus / f"{tokenizer}.json")
        for corpus, tokenizer in product(params.corpora, params.tokenizers)
        if (corpus, tokenizer) in read_by
    }


def trial_key(trial: ScoredTrial) -> tuple[str, str, str, str, int]:
    """Of a trial of a run, which has one pretraining seed."""
    return trial.task, trial.run, trial.method, trial.label_budget, trial.finetune_seed


def row_key(trial: ScoredTrial) -> RowKey:
    """Of any trial; those of a baseline differ in both seeds."""
    return (*trial_key(trial), trial.pretrain_seed)


Key = tuple[str, str, str, int, int]  # run or baseline, method, label budget, both seeds


def _complete(params: Params, task: str, num_train: int) -> list[ScoredTrial]:
    """The trials of a task in the order of params.yaml; ValueError unless they are exactly those
    listed. A method that is incompatible with a run has no trials with it."""
    where = paths.EVALUATED / task / "trials.csv"
    found = {
        (t.run, t.method, t.label_budget, t.pretrain_seed, t.finetune_seed): t
        for t in read(where, ScoredTrial)
    }
    fitted = {run for run, *_ in found}
    listed = [
        *_listed_of_runs(params, task),
        *_listed_of_baselines(params, task, fitted, num_train),
    ]
    if missing := [key for key in listed if key not in found]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"{where}: no trial of {_words(task, *missing[0])}{more}; run `dvc repro`")
    if surplus := sorted(found.keys() - set(listed)):
        raise ValueError(
            f"{where}: params.yaml does not list {_words(task, *surplus[0])}; run `dvc repro`"
        )
    if lost := [key for key in listed if not math.isfinite(found[key].value)]:
        trial = found[lost[0]]
        raise ValueError(
            f"{where}: the {trial.metric} of {_words(task, *lost[0])} is {trial.value} and cannot "
            f"be compared: the model did not learn; lower the learning rate (now {trial.lr:g})"
        )
    return [found[key] for key in listed]


def _listed_of_runs(params: Params, task: str) -> Iterator[Key]:
    skipped = read(paths.EVALUATED / task / "skipped.csv", SkippedMethod)
    incompatible = {(each.run, each.method) for each in skipped}
    tuning = params.finetune
    for run, method in product(params.pretrain, tuning.methods):
        if (run, method) not in incompatible:
            for budget, seed in product(map(str, tuning.label_budgets), tuning.seeds):
                yield run, method, budget, params.pretrain[run].seed, seed


def _listed_of_baselines(
    params: Params, task: str, fitted: Collection[str], num_train: int
) -> Iterator[Key]:
    """Of those that were ``fitted``: others do not support the task."""
    names = [name for name in params.baselines if name in fitted]
    for name, budget in product(names, params.finetune.label_budgets):
        for pair in distinct_draws(
            budget,
            num_train,
            pretrain_seeds=params.pretrain_seeds,
            finetune_seeds=params.finetune.seeds,
            task=task,
        ):
            yield name, CLASSICAL, str(budget), *pair


def _words(task: str, run: str, method: str, budget: str, *seeds: int) -> str:
    return f"{run} on {task} ({method}, {budget} labels, seed {seeds[-1]})"


def _discard_leftovers(params: Params) -> None:
    discard_unlisted(paths.EVALUATED, params.tasks)
    discard_unlisted(paths.TIMINGS / "pretrain", [f"{run}.json" for run in params.pretrain])
    discard_unlisted(paths.TIMINGS / "estimates", [f"{task}.csv" for task in params.tasks])
    discard_unlisted(paths.TIMINGS / "finetune", params.tasks)
    for task in params.tasks:
        discard_unlisted(
            paths.TIMINGS / "finetune" / task, [f"{run}.csv" for run in params.pretrain]
        )


def _json(path: Path) -> Json:
    return read_json(_present(path))


def _present(path: Path) -> Path:
    if not path.exists():
        raise ValueError(f"{path}: missing; run `dvc repro`")
    return path
