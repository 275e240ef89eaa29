"""What MLflow shows of a study, read from its files: a record for each pretraining, for each trial
and for the report.

The identity of a record is a hash of its inputs, so that a run is found again wherever its files
were computed. A loss has the name of its objective or task in its metric's name (``loss/mlm``,
``validation_loss/tag``), since losses of different kinds do not belong in one chart.
"""

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stages.core import paths
from stages.core.artifacts import read_json, sha256
from stages.core.components import Settings
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import NONE, Model, Params
from stages.evaluation.records import CLASSICAL, read_texts

Point = tuple[str, float, int]  # key, value, step
Row = dict[str, str]

# The version of the names that this code writes, a part of each identity: a database that an older
# version filled gets new runs beside the old ones, which are no longer current.
FORM = "6"
PRETRAINING, TRIAL, STUDY = TASKS = ("pretraining", "trial", "study")
TRIAL_CURVES = ("train_loss", "validation_loss", "validation_metric")
EFFECT_COLUMNS = {"effect": "", "low": "_low", "high": "_high", "p_value": "_p"}  # column: suffix
NOT_IN_A_NAME = re.compile(r"[^\w\-. :/]")  # characters that MLflow refuses in a metric's name


@dataclass(frozen=True)
class RunRecord:
    """One run as MLflow shows it."""

    name: str
    kind: str
    identity: str
    parent: str = ""  # its identity
    tags: dict[str, str] = field(default_factory=dict)  # to filter and group by
    params: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)  # measured, so they differ each time
    artifacts: list[str] = field(default_factory=list)  # files and folders

    @property
    def duration_s(self) -> float:
        return self.costs.get("cost/wall_time_s", 0.0)

    @property
    def content(self) -> str:
        """A hash of the points, costs and artifacts; if it changes, the record is logged again."""
        return digest([self.points, self.costs, self.artifacts])


def recorded(params: Params) -> Iterator[RunRecord]:
    """Yields the records of all results of params.yaml that exist, each after its parent."""
    checkpoints: dict[CheckpointKey, RunRecord] = {}
    for checkpoint in params.checkpoints:
        if (paths.pretrained(checkpoint) / "run.json").exists():
            entry = params.models[checkpoint.model]
            checkpoints[checkpoint] = _pretraining(params.study, checkpoint, entry)
    yield from checkpoints.values()
    for task in params.tasks:
        yield from _trials(params, task, checkpoints)
    if (paths.REPORTS / "index.html").exists():
        yield _report(params.study)


def pretraining_record(
    study: str,
    checkpoint: CheckpointKey,
    fingerprint: str,
    *,
    settings: Settings,
    tags: Mapping[str, str],
) -> RunRecord:
    """Returns the record of a pretraining that has begun, with the ``settings`` and the
    ``fingerprint`` of run.json; ``tags`` say what the model is."""
    keys = {"model": checkpoint.model, "pretrain_seed": str(checkpoint.pretrain_seed)}
    return RunRecord(
        f"pretrain {checkpoint}",
        PRETRAINING,
        digest([FORM, *checkpoint, fingerprint]),
        tags={"study": study, **keys, **tags},
        params=keys | flat({key: value for key, value in settings.items() if key != "seed"}),
    )


def objective_tags(objective: str, corpus: str) -> dict[str, str]:
    """Returns the tags of what a model has learnt. ``pretrained`` keeps averages over models from
    mixing pretrained models with models from scratch."""
    return {
        "objective": objective,
        "corpus": corpus if objective != NONE else NONE,
        "pretrained": json.dumps(objective != NONE),
    }


def curves(values: Mapping[str, float], objective: str, rate: float | None = None) -> Settings:
    """Returns the finite values by the names of their curves (``loss/mlm``). If several learning
    rates are tried, a name ends with the ``rate`` (``loss/mlm at 0.01``), and the curve ``lr`` is
    left out."""
    at = "" if rate is None else f" at {rate}"
    return {
        key if key == "lr" else f"{key}/{objective}{at}": float(value)
        for key, value in values.items()
        if math.isfinite(value) and not (rate is not None and key == "lr")
    }


def _pretraining(study: str, checkpoint: CheckpointKey, entry: Model) -> RunRecord:
    folder = paths.pretrained(checkpoint)
    about, objective = read_json(folder / "run.json"), str(entry.objective["name"])
    record = pretraining_record(
        study,
        checkpoint,
        about["fingerprint"],
        settings=about["settings"],
        tags={
            "architecture": about["architecture"],
            "size": f"{about['num_layers']}x{about['d_model']}",
            **objective_tags(*entry.learnt),
        },
    )
    for kind in ("history", "rates"):
        for row in read_texts(paths.progress(checkpoint, kind)):
            measured = {k: float(row[k]) for k in ("loss", "lr", "validation_loss") if row[k]}
            rate = float(row["rate"]) if kind == "rates" else None
            named = curves(measured, objective, rate)
            record.points.extend((key, value, int(row["step"])) for key, value in named.items())
    ends = _numbers(read_json(folder / "metrics.json"))
    record.points.extend((f"pretrain/{key}", value, 0) for key, value in ends.items())
    if (timing := paths.pretraining_time(checkpoint)).exists():
        _add_costs(record, read_json(timing))
    return record


def _trials(
    params: Params, task: str, checkpoints: Mapping[CheckpointKey, RunRecord]
) -> Iterator[RunRecord]:
    """Yields the records of a task's trials, of models and of baselines."""
    epochs: dict[TrialKey, list[Row]] = defaultdict(list)
    for row in read_texts(paths.EVALUATED / task / "history.csv"):
        epochs[trial_of(row)].append(row)
    costs = {
        trial_of(row): row
        for model in params.models
        for row in read_texts(paths.TIMINGS / "finetune" / task / f"{model}.csv")
    }
    for row in read_texts(paths.EVALUATED / task / "trials.csv"):
        key = trial_of(row)
        parent = checkpoints.get(key.checkpoint)
        if parent is None and key.model not in params.baselines:
            continue
        record = _trial(key, row, epochs[key], parent, params)
        if key in costs:
            _add_costs(record, costs[key])
        yield record


def _trial(
    key: TrialKey, row: Row, epochs: list[Row], parent: RunRecord | None, params: Params
) -> RunRecord:
    model, *_ = key
    keys = {"model": model} | {k: str(v) for k, v in key._asdict().items() if k != "model"}
    is_baseline, task = key.method == CLASSICAL, key.task
    if parent is None:
        tags = {"study": params.study, "architecture": row["architecture"]}
        tags |= objective_tags(NONE, NONE)
        settings = flat({"baseline": params.baselines[model]})
    else:
        tags, settings = parent.tags, dict[str, str]()
        if method := params.finetune.methods.get(key.method):  # else of an earlier params.yaml
            used = method.of(model).model_dump(exclude={"models"}, exclude_none=True)
            settings = flat({"finetune": used})
    points = [
        (f"score/{task}", float(row["value"]), 0),
        (f"{row['other_metric']}/{task}", float(row["other_value"]), 0),
    ]
    shown = _numbers({k: v for k, v in row.items() if k not in key._fields and "value" not in k})
    # A 0 of a baseline means that the column does not apply.
    points += [(f"trial/{k}", v, 0) for k, v in shown.items() if v or not is_baseline]
    for epoch in epochs:
        measured = {name: float(epoch[name]) for name in TRIAL_CURVES if epoch[name]}
        named = curves(measured, task)
        points += [(name, value, int(epoch["epoch"])) for name, value in named.items()]
    return RunRecord(
        trial_name(key),
        TRIAL,
        digest([FORM, parent.identity if parent else "", row, epochs]),
        parent.identity if parent else "",
        tags={**tags, **keys, "metric": row["metric"]},
        params=keys | settings,
        points=points,
    )


def _report(study: str) -> RunRecord:
    """Returns the record of the study's report: its files and its main effects."""
    files = sorted(path for path in paths.REPORTS.rglob("*") if path.is_file())
    return RunRecord(
        study,
        STUDY,
        digest([FORM, sha256(*files), *map(str, files)]),
        tags={"study": study},
        points=[*_effects()],
        artifacts=sorted(map(str, paths.REPORTS.iterdir())),
    )


def _effects() -> Iterator[Point]:
    """Yields the main effects and the ends of their intervals, as ``effect/AXIS`` and
    ``effect/AXIS_low``. An axis with several pairs of levels, or several metrics, has a name for
    each: ``effect/AXIS/B less A``, ``effect/AXIS/B less A/METRIC``."""
    table = read_texts(paths.REPORTS / "effects.csv")
    rows = [row for row in table if not row["second_axis"]]  # no interactions
    of_axis = Counter(row["axis"] for row in rows)
    of_pair = Counter((row["axis"], row["level_a"], row["level_b"]) for row in rows)
    for row in rows:
        axis, a, b = row["axis"], row["level_a"], row["level_b"]
        parts = ["effect", axis]
        parts += [f"{b} less {a}"] if of_axis[axis] > 1 else []
        parts += [row["metric"]] if of_pair[axis, a, b] > 1 else []
        name = NOT_IN_A_NAME.sub("_", "/".join(parts))
        for column, suffix in EFFECT_COLUMNS.items():
            if row[column]:
                yield f"{name}{suffix}", float(row[column]), 0


def trial_name(key: TrialKey) -> str:
    """Returns a trial's name. Charts cut names after some 16 letters, so the model comes first."""
    seeds = f"seeds {key.pretrain_seed} and {key.finetune_seed}"
    return f"{key.model} on {key.task}, {key.method}, {key.label_budget} labels, {seeds}"


def trial_of(row: Row) -> TrialKey:
    texts = {name: row[name] for name in TrialKey._fields}
    seeds = {name: int(row[name]) for name in ("pretrain_seed", "finetune_seed")}
    return TrialKey(**texts | seeds)  # type: ignore[arg-type]


def _add_costs(record: RunRecord, timing: Settings) -> None:
    """Adds measured costs as ``cost/NAME``, and the machine as tags. A cost of 0, such as the
    energy of a GPU on a machine that has none, is left out."""
    skipped = {*TrialKey._fields, "threads"}
    measured = _numbers({key: value for key, value in timing.items() if key not in skipped})
    record.costs.update({f"cost/{key}": value for key, value in measured.items() if value})
    record.tags.update({k: str(timing[k]) for k in ("hardware", "threads") if timing.get(k)})


def _numbers(values: Settings) -> dict[str, float]:
    """Returns the finite numbers among ``values``, which may be texts of a CSV file."""
    numbers = dict[str, float]()
    for key, value in values.items():
        try:
            numbers[key] = float(value)
        except (TypeError, ValueError):
            continue
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def flat(values: Settings, prefix: str = "") -> dict[str, str]:
    """Returns ``{"training.lr": "0.1"}`` for ``{"training": {"lr": 0.1}}``."""
    pairs: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            pairs |= flat(value, f"{prefix}{key}.")
        else:
            pairs[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return pairs


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
