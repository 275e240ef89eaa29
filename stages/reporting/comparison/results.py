"""All results of a study, read from the files that params.yaml lists."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.params import NONE, Params
from stages.evaluation.confusion import ConfusionRecord
from stages.evaluation.estimates import Estimates
from stages.evaluation.moderation import Moderation
from stages.evaluation.records import (
    CLASSICAL,
    CostRecord,
    EpochRecord,
    InputRecord,
    ScoredTrial,
    ScoredTry,
    TextBitsRecord,
    budget_order,
    discard_unlisted,
    read,
)
from stages.evaluation.screening import ScreenedOut, screened_out
from stages.reporting.comparison.amounts import with_amounts
from stages.reporting.comparison.axes import AXES
from stages.reporting.comparison.cells import Cell, cells
from stages.reporting.comparison.contrasts import Contrast, contrasts
from stages.reporting.comparison.groups import Group, groups
from stages.reporting.comparison.listed_trials import complete, words
from stages.reporting.comparison.pretraining_progress import Progress, kept_rate, read_progress
from stages.reporting.comparison.questions import Question, questions

RowKey = tuple[str, str, str, str, int, int]  # task, run, method, label budget, both seeds


@dataclass(frozen=True, eq=False)
class Results:
    """The trials of a study, in the order of params.yaml, and what is derived from them."""

    params: Params
    trials: Sequence[ScoredTrial]
    curves: Sequence[EpochRecord]
    pretraining_costs: dict[str, Json]  # run -> wall_time_s, peak_memory_bytes, ...
    finetuning_costs: dict[tuple[str, str, str, str, int], CostRecord]  # see ``trial_key``
    tasks: dict[str, Json]  # task.json of each: num_examples, labels, ...
    examples: dict[str, list[Json]]  # of each task; see ``evaluation.examples``
    confusion: dict[str, list[ConfusionRecord]]  # of each task
    progress: dict[str, Progress]  # of each run's pretraining
    contamination: dict[tuple[str, str], Json]  # of each corpus and tokenizer trained on
    likeness: dict[tuple[str, str], Json]  # of the same
    inputs: dict[str, list[InputRecord]]  # of each task
    text_bits: dict[tuple[str, str], TextBitsRecord]  # of a run and a task
    row_scores: dict[RowKey, np.ndarray]  # of trials; see ``row_key``
    estimates: Estimates
    tries: Sequence[ScoredTry]  # the variants that trials have tried, those that they keep included

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
    def screened_out(self) -> dict[str, list[ScreenedOut]]:
        """Of each task."""
        screen, runs = self.params.finetune.screen, self.params.pretrain
        return {
            task: screened_out(screen, runs, records)
            for task, records in self.estimates.records.items()
        }

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
    def _cells_and_moderation(self) -> tuple[list[Cell], Moderation]:
        return cells(
            self.groups,
            self.trials,
            lambda trial: self.row_scores[row_key(trial)],
            baselines=self.params.baselines,
            confidence=self.confidence,
        )

    @property
    def cells(self) -> list[Cell]:
        return self._cells_and_moderation[0]

    @property
    def moderation(self) -> Moderation:
        """The intervals of differences between cells."""
        return self._cells_and_moderation[1]

    @cached_property
    def questions(self) -> list[Question]:
        """What the study asks of its axes, answered over all tasks."""
        uncorrected = contrasts(self.params, self.groups, self.cells, self.moderation)
        return questions(uncorrected, self.moderation)

    @cached_property
    def contrasts(self) -> list[Contrast]:
        tasks = list(self.params.tasks)
        found = [contrast for question in self.questions for contrast in question.contrasts]
        return sorted(found, key=lambda c: (AXES.index(c.axis), tasks.index(c.task), c.number))

    @cached_property
    def contrasts_of(self) -> dict[Cell, list[Contrast]]:
        """The contrasts of each cell that has any."""
        found: dict[Cell, list[Contrast]] = {}
        for contrast in self.contrasts:
            for side in (contrast.a, contrast.b):
                found.setdefault(side, []).append(contrast)
        return found

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
    def trials_of(self) -> dict[str, list[ScoredTrial]]:
        """The trials of each run and baseline."""
        found: dict[str, list[ScoredTrial]] = {}
        for trial in self.trials:
            found.setdefault(trial.run, []).append(trial)
        return found

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
        trials += complete(params, task, tasks[task]["num_examples"]["train"])
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
        confusion={
            task: read(paths.EVALUATED / task / "confusion.csv", ConfusionRecord)
            for task in params.tasks
        },
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
        tries=[
            each
            for task in params.tasks
            for each in read(paths.EVALUATED / task / "tries.csv", ScoredTry)
        ],
    )
    untimed = [t for t in trials if t.run in params.pretrain and trial_key(t) not in finetuning]
    if untimed:
        raise ValueError(
            f"{paths.TIMINGS}: no cost of {words(*trial_key(untimed[0]))}; run `dvc repro`"
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


def trial_key(trial: ScoredTrial | ScoredTry) -> tuple[str, str, str, str, int]:
    """Of a trial of a run, which has one pretraining seed."""
    return trial.task, trial.run, trial.method, trial.label_budget, trial.finetune_seed


def row_key(trial: ScoredTrial) -> RowKey:
    """Of any trial; those of a baseline differ in both seeds."""
    return (*trial_key(trial), trial.pretrain_seed)


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
