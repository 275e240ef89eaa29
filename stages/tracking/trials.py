"""Records of trials: one for each cell, a group of trials that differ only in seeds, and one for
each trial with its own curves, so that MLflow itself can group and average trials."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.core import paths
from stages.core.artifacts import read_json, sha256
from stages.core.keys import CellKey, TrialKey
from stages.core.params import Method
from stages.evaluation.records import CLASSICAL, read_texts
from stages.tracking.printed import Printed
from stages.tracking.records import (
    DIGEST,
    FORM,
    PEAK_MEMORY,
    Data,
    Point,
    Row,
    RunRecord,
    cell_of,
    cost_metrics,
    digest,
    flat,
    grouped,
    machine_tags,
    mean,
    train_metrics,
    trial_of,
)

TRAINED = {key: key for key in ("best_epoch", "num_epochs", "num_steps", "num_tries")}
TRAINED |= {"loss": "last_train_loss", "kept_lr": "lr"}  # columns, by the names of metrics
AMOUNTS = (
    *("num_params", "num_trained_params", "weights_bytes"),
    *("pretrain_tokens", "pretrain_flops", "lineage_tokens", "lineage_flops", "lineage_bytes"),
    "finetune_flops",
)
CURVES = {"train_loss": "loss", "validation_metric": "validation_metric"}
CURVES |= {"validation_loss": "validation_loss"}


@dataclass(frozen=True)
class Results:
    """The tables of all trials of a study."""

    trials: dict[CellKey, list[Row]]
    epochs: dict[TrialKey, list[Row]]
    costs: dict[TrialKey, list[Row]]
    data: dict[str, list[Data]]  # inputs of runs, by task
    printed: Printed

    @classmethod
    def read(cls, tasks: Collection[str], runs: Collection[str]) -> "Results":
        trials: list[Row] = []
        epochs: list[Row] = []
        costs: list[Row] = []
        for task in tasks:
            trials += read_texts(paths.EVALUATED / task / "trials.csv")
            epochs += read_texts(paths.EVALUATED / task / "history.csv")
            for run in runs:
                costs += read_texts(paths.TIMINGS / "finetune" / task / f"{run}.csv")
        return cls(
            grouped(trials, cell_of),
            grouped(epochs, trial_of),
            grouped(costs, trial_of),
            {task: _task_data(task) for task in tasks},
            Printed.read(),
        )


def _task_data(name: str) -> list[Data]:
    """Returns the task ``name`` as the input of a run; empty if its files do not exist."""
    path = paths.examples(name) / "task.json"
    if not path.exists():
        return []
    files = [*sorted(path.parent.glob("*.jsonl")), paths.test_labels(name)]
    counts = read_json(path)["num_examples"]
    return [Data(name, sha256(*files)[:DIGEST], str(paths.TASKS / name), "fine-tuning", counts)]


def cell_records(
    run: str,
    fingerprints: Mapping[int, str],
    tags: dict[str, str],
    settings: dict[str, str],
    results: Results,
    methods: Mapping[str, Method],
) -> list[RunRecord]:
    """Returns the records of the cells of a run or a baseline, each before its trials.

    ``fingerprints`` are the fingerprints of checkpoints, by their seeds. ``tags`` and ``settings``
    are the tags and settings that all seeds have in common. ``methods`` are the entries of
    ``finetune.methods``.
    """
    records: list[RunRecord] = []
    for key, trials in results.trials.items():
        if key.run != run:
            continue
        own = [row for row in trials if int(row["pretrain_seed"]) in fingerprints]
        if not own:
            continue
        # Charts cut names after some 16 letters, so what differs within a task comes first.
        name = " ".join([run, key.method, key.task, key.label_budget])
        here = {**tags, **key._asdict(), "metric": own[0]["metric"]}
        below = [
            _trial(name, row, fingerprints[int(row["pretrain_seed"])], here, results) for row in own
        ]
        used = settings | key._asdict()
        if method := methods.get(key.method):
            used |= flat(
                {"finetune": method.of(run).model_dump(exclude={"runs"}, exclude_none=True)}
            )
        answers = results.printed.answers(key, own)
        printed = results.printed.tags(key) if answers else {}
        if not answers:
            by_seed = grouped(own, lambda row: row["pretrain_seed"]).values()
            answers = {"score": round(fmean(mean(rows, "value") for rows in by_seed), 6)}
        timings = [timing for row in own for timing in results.costs.get(trial_of(row), [])]
        points = [(metric, value, 0) for metric, value in answers.items()]
        points.append((f"score/{own[0]['other_metric']}", mean(own, "other_value"), 0))
        records.append(
            RunRecord(
                name,
                "trials",
                digest([FORM, used, points, printed, *(trial.fingerprint for trial in below)]),
                parent=run,
                tags=here | printed | machine_tags(timings),
                inputs=results.data[key.task],
                params=used,
                points=points + _amounts(own),
                costs=_mean_costs(below),
                below_s=sum(trial.duration_s for trial in below),
            )
        )
        records += below
    return records


def _trial(
    cell: str, row: Row, checkpoint: str, tags: Mapping[str, str], results: Results
) -> RunRecord:
    """Returns the record of one trial; the record of its cell has the settings. ``checkpoint`` is
    the fingerprint of the checkpoint."""
    key = trial_of(row)
    epochs = results.epochs.get(key, [])
    columns = {column: str(value) for column, value in key._asdict().items()}
    points: list[Point] = [("score", float(row["value"]), 0)]
    points.append((f"score/{row['other_metric']}", float(row["other_value"]), 0))
    for epoch in epochs:
        curve = {name: float(epoch[column]) for column, name in CURVES.items()}
        points += [(k, v, int(epoch["epoch"])) for k, v in train_metrics(curve).items()]
    timings = results.costs.get(key, [])
    drawn = {metric for metric, *_ in points}
    return RunRecord(
        f"{cell} seed {key.pretrain_seed}, fine-tuning seed {key.finetune_seed}",
        "trial",
        digest([FORM, checkpoint, row, epochs]),
        parent=cell,
        tags={**tags, **columns} | machine_tags(timings),
        params=columns,
        points=points + [point for point in _amounts([row]) if point[0] not in drawn],
        costs=cost_metrics(timings[0]) if timings else {},
    )


def _amounts(trials: Sequence[Row]) -> list[Point]:
    """Returns the means of the columns that all trials fill. For a baseline a 0 means that the
    column does not apply, so it is left out."""
    named = {f"train/{metric}": key for metric, key in TRAINED.items()}
    named |= {f"cost/{key}": key for key in AMOUNTS}
    means = [
        (name, mean(trials, key), 0)
        for name, key in named.items()
        if all(trial.get(key) for trial in trials)
    ]
    is_baseline = trials[0]["method"] == CLASSICAL
    return [point for point in means if point[1] or not is_baseline]


def _mean_costs(trials: Iterable[RunRecord]) -> dict[str, float]:
    """Returns the mean of each cost over the trials that have it: only the first seed has a
    latency. For peak memory, the largest is returned, as in the report."""
    values: dict[str, list[float]] = {}
    for trial in trials:
        for key, value in trial.costs.items():
            values.setdefault(key, []).append(value)
    return {
        key: max(costs) if key == PEAK_MEMORY else round(fmean(costs), 6)
        for key, costs in values.items()
    }
