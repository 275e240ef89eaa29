"""Records: what MLflow shows of each run.

The fingerprint of a run's inputs identifies it, wherever its files were computed.
"""

import csv
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.core.components import Settings
from stages.core.params import NONE
from stages.training.energy import Energy

Point = tuple[str, float, int]  # key, value, step
Row = dict[str, str]
Place = tuple[str, ...]  # what a group of rows has in common

# The form of this code's names and tags, and part of each fingerprint: a database that an older
# form filled keeps its runs, which are not current, and gets new ones.
FORM = "3"
DIGEST = 16  # hexadecimal digits of the hash that identifies data


@dataclass(frozen=True)
class Data:
    """An input of a run: a corpus or a task."""

    name: str
    digest: str  # of its content
    folder: str
    use: str  # pretraining or fine-tuning
    counts: Json  # the sizes of its splits


@dataclass(frozen=True)
class RunRecord:
    """One run as MLflow shows it."""

    name: str  # unique among the records of a study
    kind: str  # group, baseline, pretraining, trials, trial or comparison
    fingerprint: str
    parent: str = ""  # the parent's name
    tags: dict[str, str] = field(default_factory=dict)  # for grouping, filtering and searching
    inputs: list[Data] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)  # measured, so they differ each time
    artifacts: list[str] = field(default_factory=list)  # files and folders

    @property
    def content(self) -> str:
        """The hash of what MLflow has to log once."""
        inputs = [asdict(data) for data in self.inputs]
        return digest([inputs, self.points, self.costs, self.artifacts])


def pretraining_record(
    run: str,
    seed: int,
    fingerprint: str,
    *,
    parent: str = "",
    tags: dict[str, str],
    params: dict[str, str],
) -> RunRecord:
    """The record of a pretraining, begun or finished; ``fingerprint`` is that of its checkpoint."""
    return RunRecord(
        f"{run} pretraining p{seed}",
        "pretraining",
        f"{FORM}:{run}:{fingerprint}",
        parent,
        tags={"run": run, "pretrain_seed": str(seed), **tags},
        params={"run": run, **params},
    )


def train_metrics(values: Mapping[str, float]) -> dict[str, float]:
    """Add the prefix of training, by which MLflow sorts charts into sections."""
    return {f"train/{key}": value for key, value in values.items()}


def at_rate(measured: Mapping[str, float], rate: float) -> dict[str, float]:
    """Name the curves of one of several learning rates that a run tries."""
    return {f"{key}_at_{rate}": value for key, value in measured.items() if key != "lr"}


def cost_metrics(measured: Mapping[str, float]) -> dict[str, float]:
    """Add an estimate of energy to what was measured of the machine, and the prefix of costs."""
    costs = dict(measured)
    energy = Energy.of(costs.get("processor_time_s", 0.0), costs.get("gpu_energy_j"))
    if energy is not None:
        costs |= {"energy_j_estimate": energy.joules, "co2e_g_estimate": energy.co2e_g}
    return {f"cost/{key}": value for key, value in costs.items()}


def objective_tags(objective: str, corpus: str) -> dict[str, str]:
    """``pretrained`` keeps an average over runs from mixing those from scratch with others."""
    pretrained = objective != NONE
    return {
        "objective": objective,
        "corpus": corpus if pretrained else NONE,
        "pretrained": json.dumps(pretrained),
    }


def corpus_data(name: str) -> list[Data]:
    """The corpus ``name``; empty if its files do not exist."""
    path = paths.CORPORA / name / "corpus.json"
    if not path.exists():
        return []
    about = read_json(path)
    counts = {split: about[split] for split in ("train", "validation")}
    return [Data(name, about["sha256"][:DIGEST], str(path.parent), "pretraining", counts)]


def flat(values: Settings, prefix: str = "") -> dict[str, str]:
    """``{"training": {"lr": 0.1}}`` -> ``{"training.lr": "0.1"}``."""
    pairs: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            pairs |= flat(value, f"{prefix}{key}.")
        else:
            pairs[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return pairs


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def numbers(values: Settings) -> dict[str, float]:
    return {key: float(value) for key, value in values.items() if isinstance(value, int | float)}


def rows(path: Path) -> list[Row]:
    """The rows of a CSV file; empty if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def grouped(rows: Iterable[Row], *keys: str) -> dict[Place, list[Row]]:
    groups: dict[Place, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return dict(groups)


def mean(rows: Iterable[Row], key: str) -> float:
    return fmean(float(row[key]) for row in rows)
