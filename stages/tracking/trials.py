"""Records of trials: one for each group of trials that differ only in seeds, and one for each of
these trials with its own curve, so that MLflow itself groups and averages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from stages.core import paths
from stages.core.artifacts import read_json, sha256
from stages.core.params import Params
from stages.tracking.answers import Answer, Answers
from stages.tracking.records import (
    DIGEST,
    FORM,
    Data,
    Point,
    Row,
    RunRecord,
    cost_metrics,
    digest,
    flat,
    grouped,
    mean,
    rows,
    train_metrics,
)
from stages.tracking.tables import tables

TRAINED = ("best_epoch", "num_epochs", "num_steps", "last_train_loss", "num_tries", "lr")
AMOUNTS = (
    *("num_params", "num_trained_params", "weights_bytes"),
    *("pretrain_tokens", "pretrain_flops", "lineage_tokens", "lineage_flops", "lineage_bytes"),
    "finetune_flops",
)
MEASURED = (
    *("wall_time_s", "peak_memory_bytes", "processor_time_s", "gpu_energy_j"),
    *("latency_s", "texts_per_s", "tokens_per_s"),
)
CURVES = {"train_loss": "loss", "validation_metric": "validation_metric"}
CURVES |= {"validation_loss": "validation_loss"}


@dataclass(frozen=True)
class StudyTrials:
    """All rows of trials, epochs and costs, by their task, method and label budget."""

    trials: dict[tuple[str, ...], list[Row]]
    epochs: dict[tuple[str, ...], list[Row]]  # by run and seed besides
    costs: dict[tuple[str, ...], list[Row]]  # the same
    confused: dict[tuple[str, ...], list[Row]]  # which class was taken for which
    data: dict[str, list[Data]]  # of each task

    @classmethod
    def read(cls, params: Params) -> "StudyTrials":
        trials: list[Row] = []
        epochs: list[Row] = []
        costs: list[Row] = []
        confused: list[Row] = []
        for task in params.tasks:
            trials += rows(paths.EVALUATED / task / "trials.csv")
            epochs += rows(paths.EVALUATED / task / "history.csv")
            found = rows(paths.EVALUATED / task / "confusion.csv")
            confused += [{**row, "task": task} for row in found]
            for run in params.pretrain:
                timed = rows(paths.TIMINGS / "finetune" / task / f"{run}.csv")
                costs += [{**row, "run": run, "task": task} for row in timed]
        place = ("task", "method", "label_budget")
        one = ("run", *place, "finetune_seed")
        data = {task: _task_data(task) for task in params.tasks}
        by_seed = grouped(epochs, *one), grouped(costs, *one)
        return cls(grouped(trials, *place), *by_seed, grouped(confused, *place), data)

    def of(self, runs: Iterable[str]) -> Iterator[tuple[tuple[str, ...], list[Row]]]:
        """(task, method, label budget) and the trials of these runs there."""
        known = set(runs)
        for place, found in self.trials.items():
            if own := [row for row in found if row["run"] in known]:
                yield place, own

    def count(self) -> int:
        return sum(map(len, self.trials.values()))


def _task_data(name: str) -> list[Data]:
    """The task ``name``; empty if its files do not exist."""
    path = paths.examples(name) / "task.json"
    if not path.exists():
        return []
    files = [*sorted(path.parent.glob("*.jsonl")), paths.test_labels(name)]
    counts = read_json(path)["num_examples"]
    return [Data(name, sha256(*files)[:DIGEST], str(paths.TASKS / name), "fine-tuning", counts)]


@dataclass(frozen=True)
class Cell:
    """The trials of a group or a baseline on one task with one method and label budget."""

    name: str
    place: tuple[str, ...]  # task, method, label budget
    rows: list[Row]
    answer: Answer | None  # of the report
    trials: list[RunRecord]  # without a parent yet

    @property
    def values(self) -> dict[str, float]:
        """``score`` and what the report says besides."""
        if self.answer:
            return {"score": self.answer.score, **self.answer.values}
        by_seed = grouped(self.rows, "pretrain_seed").values()
        return {"score": round(fmean(mean(own, "value") for own in by_seed), 6)}

    @property
    def answers(self) -> Iterator[Point]:
        """The same by the names of the parent: ``score/TASK/METHOD/BUDGET``, ``..._low``, ..."""
        for key, value in self.values.items():
            for name in ("gain_over_baseline", "gain_over_scratch", "score"):
                if key.startswith(name):
                    end = key.removeprefix(name)
                    yield "/".join([name, *self.place]) + end, value, 0


def cells(
    name: str,
    group: Sequence[str],
    runs: Mapping[str, str],
    tags: Mapping[str, str],
    study: StudyTrials,
    answers: Answers,
) -> list[Cell]:
    """Of the runs ``group``, whose name in MLflow is ``name``; ``runs`` are the fingerprints of
    those that exist."""
    found = []
    for place, own in study.of(runs):
        task, method, budget = place
        # Charts cut names after some 16 letters: first what differs where the task is one.
        label = " ".join([name, method, task, budget])
        here = dict(zip(("task", "method", "label_budget"), place, strict=True))
        trials = [_trial(label, row, runs[row["run"]], {**tags, **here}, study) for row in own]
        answer = answers.of((group[0], task, method, budget), group, own)
        found.append(Cell(label, place, own, answer, trials))
    return found


def records(
    cell: Cell, parent: RunRecord, study: StudyTrials, params: Params, *, each: bool
) -> list[RunRecord]:
    """The record of a cell and, if ``each``, those of its trials."""
    task, method, budget = cell.place
    here = {"task": task, "method": method, "label_budget": budget}
    settings = params.finetune.methods.get(method)
    own = parent.params | here
    own |= flat({"finetune": settings.model_dump(exclude_none=True)}) if settings else {}
    first = cell.rows[0]
    seeds = {"seeds": cell.answer.seeds} if cell.answer else {}
    runs = {row["run"] for row in cell.rows}
    confused = [row for row in study.confused.get(cell.place, []) if row["run"] in runs]
    points = [(key, value, 0) for key, value in cell.values.items()]
    points.append((f"score/{first['other_metric']}", mean(cell.rows, "other_value"), 0))
    found = RunRecord(
        cell.name,
        "trials",
        digest([FORM, own, points, *(trial.fingerprint for trial in cell.trials)]),
        parent.fingerprint,
        tags=parent.tags | here | {"metric": first["metric"]} | seeds,
        inputs=study.data[task],
        params=own,
        points=points + _amounts(cell.rows),
        costs=_mean_costs(cell.trials),
        tables=tables(first, confused),
    )
    trials = [replace(trial, parent=found.fingerprint) for trial in cell.trials]
    return [found, *(trials if each else [])]


def _trial(cell: str, row: Row, run: str, tags: Mapping[str, str], study: StudyTrials) -> RunRecord:
    """One trial; MLflow has the settings with its parent, which are those of all its trials."""
    key = tuple(row[k] for k in ("run", "task", "method", "label_budget", "finetune_seed"))
    epochs, costs = study.epochs.get(key, []), study.costs.get(key, [])
    seeds = {key: row[key] for key in ("pretrain_seed", "finetune_seed")}
    points: list[Point] = [("score", float(row["value"]), 0)]
    points.append((f"score/{row['other_metric']}", float(row["other_value"]), 0))
    for epoch in epochs:
        curve = {name: float(epoch[key]) for key, name in CURVES.items()}
        points += [(k, v, int(epoch["epoch"])) for k, v in train_metrics(curve).items()]
    measured = {k: float(each[k]) for each in costs for k in MEASURED if each.get(k)}
    about = {k: row[k] for k in ("run", "task", "method", "label_budget")} | seeds
    return RunRecord(
        f"{cell} p{seeds['pretrain_seed']} f{seeds['finetune_seed']}",
        "trial",
        digest([FORM, run, row, epochs]),
        tags={**tags, **seeds, "run": row["run"], "metric": row["metric"]},
        params=about,
        points=points + _amounts([row]),
        costs=cost_metrics(measured) if measured else {},
    )


def _amounts(trials: Sequence[Row]) -> list[Point]:
    """The means of what is known of all trials."""
    named = {f"train/{key}": key for key in TRAINED} | {f"cost/{key}": key for key in AMOUNTS}
    return [
        (name, mean(trials, key), 0)
        for name, key in named.items()
        if all(trial.get(key) for trial in trials)
    ]


def _mean_costs(trials: Iterable[RunRecord]) -> dict[str, float]:
    """Of each cost, over the trials that have it: latency is measured with the first seed alone."""
    known: dict[str, list[float]] = {}
    for trial in trials:
        for key, value in trial.costs.items():
            known.setdefault(key, []).append(value)
    return {key: fmean(values) for key, values in known.items()}
