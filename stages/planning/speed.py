"""What trainings take of this machine: what earlier runs took, else a calibration."""

import heapq
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.core.params import Corpus, Params, Run, Task
from stages.core.process import TIMES
from stages.evaluation import records
from stages.planning.calibration import Calibration
from stages.planning.finetuning_costs import Finetuning
from stages.planning.pretraining_costs import Pretraining
from stages.planning.run_sizes import planned_runs
from stages.sources._source import SOURCES, Slow
from stages.training.device import resolve, side_by_side

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

    by_key: dict[Hashable, Work] = field(default_factory=dict)

    def add(
        self, keys: Iterable[Hashable], flops: float, seconds: float, peak_memory_bytes: int | None
    ) -> None:
        for key in keys:
            self.by_key.setdefault(key, Work()).add(flops, seconds, peak_memory_bytes)

    def speed(self, key: Hashable) -> float | None:
        return self.by_key[key].speed if key in self.by_key else None

    def memory(self, key: Hashable) -> int | None:
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
    """The same of fine-tuning, of the trials one after the other; then as they run side by side."""
    earlier = _earlier_finetunings(costs)
    for cost in costs:
        place = (cost.task, cost.run, cost.method)
        cost.memory_bytes = earlier.memory(place) or cost.memory_bytes
        if not cost.pending or cost.flops is None or cost.prediction_flops is None:
            continue
        keys = {OWN: place, SAME_ARCHITECTURE: (cost.architecture, cost.method)}
        speed, cost.speed_from = _first_known(earlier, keys)
        if speed:
            cost.seconds = (cost.flops + cost.prediction_flops) / speed
        elif estimate := calibration.finetuning(cost):
            cost.seconds, cost.speed_from = estimate.seconds, CALIBRATION
            # A task that writes, or scores, text holds logits besides, which the sizes tell.
            cost.memory_bytes = _most(estimate.peak_memory_bytes, cost.memory_bytes)
    stages: dict[str, list[Finetuning]] = {}
    for cost in costs:
        if cost.seconds is not None:
            stages.setdefault(cost.task, []).append(cost)
    for of_task in stages.values():
        put_side_by_side(of_task, side_by_side(params.compute))


def put_side_by_side(costs: list[Finetuning], at_once: int) -> None:
    """Of one stage: each process takes the next group of trials when it has done one, the longest
    first, and the stage takes as long as the last."""
    groups = [share * (cost.seconds or 0.0) for cost in costs for share in cost.shares]
    ends = [0.0] * at_once
    for seconds in sorted(groups, reverse=True):
        heapq.heapreplace(ends, ends[0] + seconds)
    alone = sum(cost.seconds or 0.0 for cost in costs)
    for cost in costs:
        cost.seconds = (cost.seconds or 0.0) * max(ends) / alone if alone else 0.0


def other_stages(params: Params, stages: Iterable[str]) -> list[Other]:
    """How long each of ``stages`` that trains nothing will take: what a slow source says that it
    will take to read, else when the stage ran here before, else the mean of its kind."""
    kinds: dict[str, dict[str, float]] = {}
    for path in sorted(TIMES.glob("*.json")):
        times = kinds.setdefault(path.stem.partition("@")[0], {})
        times[path.stem] = read_json(path)["wall_time_s"]
    read: set[str] = set()

    def found(stage: str) -> Other:
        times = kinds.get(stage.partition("@")[0], {})
        if seconds := _reading_s(params, stage, read):
            return Other(stage, seconds, CALIBRATION)
        if stage in times:
            return Other(stage, times[stage], OWN_STAGE)
        return Other(stage, fmean(times.values()), SAME_KIND) if times else Other(stage, None, None)

    return [found(stage) for stage in stages if stage.partition("@")[0] not in TRAININGS]


def _reading_s(params: Params, stage: str, read: set[str]) -> float:
    """What is read by earlier stages is in ``read``."""
    kind, _, key = stage.partition("@")
    entries: dict[str, Mapping[str, Corpus | Task]] = {
        "prepare_corpus": params.corpora,
        "prepare_task": params.tasks,
    }
    if key not in entries.get(kind, {}):
        return 0.0
    entry = entries[kind][key].source
    source = SOURCES.build(entry, where=stage)
    return source.reading_s(read) if isinstance(source, Slow) else 0.0


def _most(*amounts: int | None) -> int | None:
    """Of those that are known."""
    return max((each for each in amounts if each), default=None)


def _first_known(earlier: Earlier, keys: Json) -> tuple[float | None, str | None]:
    """The speed by the first of ``keys`` that there is one of, and which that was."""
    known = ((speed, source) for source, key in keys.items() if (speed := earlier.speed(key)))
    return next(known, (None, None))


# Of what ran before.


def _earlier_pretrainings(params: Params) -> Earlier:
    device, earlier = resolve(params.compute, threads=params.compute.threads).device, Earlier()
    runs = planned_runs(params)
    for path in sorted((paths.TIMINGS / "pretrain").glob("*.json")):
        folder = paths.PRETRAINED / path.stem
        if not (folder / "metrics.json").is_file() or not (folder / "run.json").is_file():
            continue  # it is being trained anew
        timing, metrics = read_json(path), read_json(folder / "metrics.json")
        if timing["device"] == device and metrics["pretrain_flops"]:
            about = read_json(folder / "run.json")
            keys = (path.stem, (about["architecture"],))
            held = timing["peak_memory_bytes"] if _is_as_large(about, runs.get(path.stem)) else None
            earlier.add(keys, metrics["pretrain_flops"], timing["wall_time_s"], held)
    return earlier


def _is_as_large(about: Json, run: Run | None) -> bool:
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
        timing = paths.TIMINGS / "finetune" / cost.task / f"{cost.run}.csv"
        table = paths.FINETUNED / cost.task / cost.run / "trials.csv"
        if cost.prediction_flops_of_all is None or not (timing.is_file() and table.is_file()):
            continue
        times = [row for row in records.read(timing, _Time) if row.method == cost.method]
        done = [row for row in records.read(table, _Trained) if row.method == cost.method]
        if len(times) != len(done):
            continue
        predicted = cost.prediction_flops_of_all * len(done) / cost.num_trials
        flops = sum(trial.finetune_flops for trial in done) + predicted
        keys = ((cost.task, cost.run, cost.method), (cost.architecture, cost.method))
        held = max((row.peak_memory_bytes for row in times), default=None)
        earlier.add(keys, flops, sum(row.wall_time_s for row in times), held)
    return earlier
