"""What trainings take of this machine: what earlier runs took, else a calibration."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from stages.artifacts import read_json
from stages.commands._calibration import Calibration
from stages.commands._costs import Finetuning, Pretraining, planned_runs
from stages.evaluation import trials
from stages.params import Params, Run
from stages.process import TIMES
from stages.training.device import resolve, side_by_side

PRETRAINED, FINETUNED, TIMINGS = (Path("data", n) for n in ("pretrained", "finetuned", "timings"))
OWN = "the same training before"
OWN_STAGE, SAME_KIND = "the same stage before", "others of its kind before"
TRAININGS = ("pretrain", "finetune")
SAME_ARCHITECTURE = "others of its architecture before"
CALIBRATION = "a calibration"


@dataclass
class Other:
    """A stage that trains nothing; None is a time that nothing tells."""

    stage: str
    seconds: float | None
    speed_from: str | None


@dataclass
class Work:
    """Operations, the seconds that they took and the most memory that a process had for them."""

    flops: float = 0.0
    seconds: float = 0.0
    peak_memory_bytes: int | None = None

    def add(self, flops: float, seconds: float, peak_memory_bytes: int | None) -> None:
        self.flops, self.seconds = self.flops + flops, self.seconds + seconds
        self.peak_memory_bytes = _most(self.peak_memory_bytes, peak_memory_bytes)

    @property
    def speed(self) -> float | None:
        """A second's operations; None if nothing was done."""
        return self.flops / self.seconds if self.flops > 0 and self.seconds > 0 else None


@dataclass
class Earlier:
    """What earlier trainings took, by what they were of."""

    by_key: dict[Any, Work] = field(default_factory=dict)

    def add(
        self, keys: Iterable[Any], flops: float, seconds: float, peak_memory_bytes: int | None
    ) -> None:
        for key in keys:
            self.by_key.setdefault(key, Work()).add(flops, seconds, peak_memory_bytes)

    def speed(self, key: Any) -> float | None:
        return self.by_key[key].speed if key in self.by_key else None

    def memory(self, key: Any) -> int | None:
        return self.by_key[key].peak_memory_bytes if key in self.by_key else None


def measure_pretrainings(
    params: Params, costs: list[Pretraining], calibration: Calibration
) -> None:
    """Put into each how long it will take, if it is pending, and the memory that it will have, as
    far as that can be told."""
    earlier = _earlier_pretrainings(params)
    for cost in costs:
        cost.memory_bytes = earlier.memory(cost.run) or cost.memory_bytes
        if not cost.pending or cost.flops is None:
            continue
        keys = {OWN: cost.run, SAME_ARCHITECTURE: (cost.architecture,)}
        speed, cost.speed_from = _first_known(earlier, keys)
        if speed:  # of trainings that were validated, too
            cost.seconds = cost.flops / speed
        elif estimate := calibration.pretraining(cost):
            cost.seconds, cost.speed_from = estimate.seconds, CALIBRATION
            cost.memory_bytes = estimate.peak_memory_bytes or cost.memory_bytes


def measure_finetunings(params: Params, costs: list[Finetuning], calibration: Calibration) -> None:
    """The same of fine-tuning: trials run side by side."""
    earlier = _earlier_finetunings(costs)
    at_once = side_by_side(params.compute)
    for cost in costs:
        place = (cost.task, cost.run, cost.method)
        cost.memory_bytes = earlier.memory(place) or cost.memory_bytes
        if not cost.pending or cost.flops is None or cost.prediction_flops is None:
            continue
        keys = {OWN: place, SAME_ARCHITECTURE: (cost.architecture, cost.method)}
        speed, cost.speed_from = _first_known(earlier, keys)
        if speed:
            cost.seconds = (cost.flops + cost.prediction_flops) / speed / at_once
        elif estimate := calibration.finetuning(cost):
            cost.seconds, cost.speed_from = estimate.seconds / at_once, CALIBRATION
            # A task that writes, or scores, text holds logits besides, which the sizes tell.
            cost.memory_bytes = _most(estimate.peak_memory_bytes, cost.memory_bytes)


def other_stages(stages: Iterable[str]) -> list[Other]:
    """How long each of ``stages`` that trains nothing will take, by when it ran here before, else
    by the mean of its kind."""
    kinds: dict[str, dict[str, float]] = {}
    for path in sorted(TIMES.glob("*.json")):
        times = kinds.setdefault(path.stem.partition("@")[0], {})
        times[path.stem] = read_json(path)["wall_time_s"]

    def found(stage: str) -> Other:
        times = kinds.get(stage.partition("@")[0], {})
        if stage in times:
            return Other(stage, times[stage], OWN_STAGE)
        return Other(stage, fmean(times.values()), SAME_KIND) if times else Other(stage, None, None)

    return [found(stage) for stage in stages if stage.partition("@")[0] not in TRAININGS]


def _most(*amounts: int | None) -> int | None:
    """Of those that are known."""
    return max((each for each in amounts if each), default=None)


def _first_known(earlier: Earlier, keys: dict[str, Any]) -> tuple[float | None, str | None]:
    """The speed by the first of ``keys`` that there is one of, and which that was."""
    known = ((speed, source) for source, key in keys.items() if (speed := earlier.speed(key)))
    return next(known, (None, None))


# Of what ran before.


def _earlier_pretrainings(params: Params) -> Earlier:
    device, earlier = resolve(params.compute, threads=params.compute.threads).device, Earlier()
    runs = planned_runs(params)
    for path in sorted((TIMINGS / "pretrain").glob("*.json")):
        folder = PRETRAINED / path.stem
        if not (folder / "metrics.json").is_file() or not (folder / "run.json").is_file():
            continue  # it is being trained anew
        timing, metrics = read_json(path), read_json(folder / "metrics.json")
        if timing["device"] == device and metrics["pretrain_flops"]:
            about = read_json(folder / "run.json")
            keys = (path.stem, (about["architecture"],))
            held = timing["peak_memory_bytes"] if _is_as_large(about, runs.get(path.stem)) else None
            earlier.add(keys, metrics["pretrain_flops"], timing["wall_time_s"], held)
    return earlier


def _is_as_large(about: dict[str, Any], run: Run | None) -> bool:
    """Whether the run that was trained had the model and the batches that it has now."""
    if run is None:
        return False
    then, now = about["settings"], run.model_dump()
    sizes = ("micro_batch_rows", "max_tokens")
    return then["model"] == now["model"] and all(
        then["training"][size] == now["training"][size] for size in sizes
    )


@dataclass(frozen=True)
class _Time:
    """Of a Cost what is needed, so that files of earlier versions can be read; so with _Trained."""

    method: str
    wall_time_s: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class _Trained:
    """Of a Trial."""

    method: str
    finetune_flops: int


def _earlier_finetunings(costs: list[Finetuning]) -> Earlier:
    """Of trials whose settings may have been others: what they trained they have counted, what they
    predicted is taken to be as much as it would be now."""
    earlier = Earlier()
    for cost in costs:
        timing = TIMINGS / "finetune" / cost.task / f"{cost.run}.csv"
        table = FINETUNED / cost.task / cost.run / "trials.csv"
        if cost.prediction_flops is None or not (timing.is_file() and table.is_file()):
            continue
        times = [row for row in trials.read(timing, _Time) if row.method == cost.method]
        done = [row for row in trials.read(table, _Trained) if row.method == cost.method]
        if len(times) != len(done):
            continue
        predicted = cost.prediction_flops * len(done) / cost.num_trials
        flops = sum(trial.finetune_flops for trial in done) + predicted
        keys = ((cost.task, cost.run, cost.method), (cost.architecture, cost.method))
        held = max((row.peak_memory_bytes for row in times), default=None)
        earlier.add(keys, flops, sum(row.wall_time_s for row in times), held)
    return earlier
