"""Records of runs, with everything that MLflow shows of a run.

The fingerprint of a run's inputs identifies the run, wherever its files were computed.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TypeVar

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.core.components import Settings
from stages.core.keys import CellKey, RunKey, TrialKey
from stages.core.params import HUB, NONE
from stages.training.energy import Energy

Point = tuple[str, float, int]  # key, value, step
Row = dict[str, str]
K = TypeVar("K")

# The version of the names and tags that this code writes, a part of each fingerprint. A database
# that an older version filled keeps its runs, which are no longer current, and gets new runs.
FORM = "5"
DIGEST = 16  # hexadecimal digits of the hash that identifies data
NOTE_TAG = "mlflow.note.content"  # the description of a run or an experiment
WALL_TIME, PEAK_MEMORY = "cost/wall_time_s", "cost/peak_memory_bytes"
MEASURED = (
    *("wall_time_s", "peak_memory_bytes", "processor_time_s", "gpu_energy_j"),
    *("latency_s", "texts_per_s", "tokens_per_s"),
)
MACHINE = ("hardware", "threads")
UNTRAINED = (NONE, HUB)  # values of the tag ``objective`` if nothing is pretrained here
OF_TRAINING = ("objective", "training", "distributed")  # settings that only training uses


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
    kind: str  # run, baseline, pretraining, trials, trial or comparison
    fingerprint: str
    parent: str = ""  # the parent's name
    tags: dict[str, str] = field(default_factory=dict)  # for grouping, filtering and searching
    inputs: list[Data] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)  # measured, so they differ each time
    artifacts: list[str] = field(default_factory=list)  # files and folders
    below_s: float = 0.0  # the seconds of all runs below this one

    @property
    def duration_s(self) -> float:
        """The seconds that the run took, including all runs below it; 0 if unknown."""
        return self.below_s or self.costs.get(WALL_TIME, 0.0)

    @property
    def content(self) -> str:
        """The hash of what is logged again if it changes: inputs, points, costs and artifacts."""
        inputs = [asdict(data) for data in self.inputs]
        return digest([inputs, self.points, self.costs, self.artifacts])


def checkpoint_name(checkpoint: RunKey) -> str:
    """Returns the name of a pretraining in MLflow."""
    return f"{checkpoint.run} seed {checkpoint.pretrain_seed}"


def pretraining_record(
    checkpoint: RunKey,
    fingerprint: str,
    *,
    parent: str = "",
    tags: Mapping[str, str],
    settings: Settings,
) -> RunRecord:
    """Returns the record of a pretraining that has begun or ended.

    ``settings`` and ``fingerprint`` are those of run.json. ``tags`` have the architecture, and the
    objective and the corpus as tables show them.
    """
    keys = {"run": checkpoint.run, "pretrain_seed": str(checkpoint.pretrain_seed)}
    unused = OF_TRAINING if tags["objective"] in UNTRAINED else ()
    shared = {key: value for key, value in settings.items() if key not in ("seed", *unused)}
    learnt = {"objective.name": tags["objective"], "corpus": tags["corpus"]}
    return RunRecord(
        checkpoint_name(checkpoint),
        "pretraining",
        f"{FORM}:{checkpoint.run}:{fingerprint}",
        parent,
        tags=keys | {**tags},
        params=keys | {"architecture": tags["architecture"]} | flat(shared) | learnt,
    )


def best_score(task: str) -> str:
    """Returns the name of the metric for a run's score on a task with the best method and the most
    labels."""
    return f"score/{task}/best"


def train_metrics(values: Mapping[str, float]) -> dict[str, float]:
    """Adds the prefix ``train/`` to the names: MLflow sorts charts into sections by prefix."""
    return {f"train/{key}": value for key, value in values.items()}


def at_rate(measured: Mapping[str, float], rate: float) -> dict[str, float]:
    """Adds ``_at_RATE`` to the names of curves, for one of several learning rates that a run tries.
    Leaves out the curve ``lr``."""
    return {f"{key}_at_{rate}": value for key, value in measured.items() if key != "lr"}


def cost_metrics(timing: Settings) -> dict[str, float]:
    """Returns the measured costs with an estimate of energy, all with the prefix ``cost/``. Leaves
    out costs of 0, such as the energy of a GPU on a machine that has none."""
    costs = {key: float(timing[key]) for key in MEASURED if timing.get(key) not in (None, "")}
    energy = Energy.of(costs.get("processor_time_s", 0.0), costs.get("gpu_energy_j"))
    if energy is not None:
        costs |= {"energy_j_estimate": energy.joules, "co2e_g_estimate": energy.co2e_g}
    return {f"cost/{key}": value for key, value in costs.items() if value}


def machine_tags(timings: Sequence[Settings]) -> dict[str, str]:
    """Returns tags with the processors and the numbers of threads in ``timings``."""
    seen = {key: sorted({str(t[key]) for t in timings if t.get(key)}) for key in MACHINE}
    return {key: ", ".join(values) for key, values in seen.items() if values}


def objective_tags(objective: str, corpus: str) -> dict[str, str]:
    """Returns the tags of an objective. The tag ``pretrained`` keeps averages over runs from mixing
    pretrained runs with runs from scratch."""
    pretrained = objective != NONE
    return {
        "objective": objective,
        "corpus": corpus if pretrained else NONE,
        "pretrained": json.dumps(pretrained),
    }


def corpus_data(name: str) -> list[Data]:
    """Returns the corpus ``name`` as the input of a run; empty if its files do not exist."""
    path = paths.CORPORA / name / "corpus.json"
    if not path.exists():
        return []
    about = read_json(path)
    counts = {split: about[split] for split in ("train", "validation")}
    return [Data(name, about["sha256"][:DIGEST], str(path.parent), "pretraining", counts)]


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


def numbers(values: Settings) -> dict[str, float]:
    return {key: float(value) for key, value in values.items() if isinstance(value, int | float)}


def cell_of(row: Row) -> CellKey:
    return CellKey(row["run"], row["task"], row["method"], row["label_budget"])


def trial_of(row: Row) -> TrialKey:
    return TrialKey(
        row["run"],
        int(row["pretrain_seed"]),
        row["task"],
        row["method"],
        row["label_budget"],
        int(row["finetune_seed"]),
    )


def grouped(rows: Iterable[Row], key_of: Callable[[Row], K]) -> dict[K, list[Row]]:
    groups: dict[K, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key_of(row)].append(row)
    return dict(groups)


def mean(rows: Iterable[Row], key: str) -> float:
    return fmean(float(row[key]) for row in rows)
