"""How many operations this machine does a second: what earlier runs took, else a calibration."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from torch import nn

from stages.artifacts import read_json
from stages.commands._costs import (
    Finetuning,
    Pretraining,
    objective_of,
    planned_runs,
    random_batch,
)
from stages.components import build, component_class
from stages.evaluation import trials
from stages.methods._method import Method
from stages.models._heads import Headed
from stages.objectives._objective import Objective
from stages.params import Params, Run
from stages.process import TIMES
from stages.seeding import stream, torch_stream
from stages.tasks._task import Example
from stages.tasks.classification import Classification
from stages.text.batch import Batch
from stages.text.tokenizer import Vocabulary
from stages.training.budget import vocabulary_of
from stages.training.device import Device, resolve, side_by_side
from stages.training.loop import Step, train

PRETRAINED, FINETUNED, TIMINGS = (Path("data", n) for n in ("pretrained", "finetuned", "timings"))
OWN = "the same training before"
OWN_STAGE, SAME_KIND = "the same stage before", "others of its kind before"
TRAININGS = ("pretrain", "finetune")
SAME_ARCHITECTURE = "others of its architecture before"
CALIBRATION = "a calibration"
STEPS, SECONDS, MOST_STEPS = 4, 1.0, 200  # of a calibration; its first step counts in none
PLAIN, USUAL_EXAMPLES = "", 8  # full fine-tuning whatever methods there are, in batches of so many
STAND_INS = {
    "encoder": "mlm",
    "decoder": "causal",
    "encoder_decoder": "denoising",
    "bilstm": "bidirectional_lm",
}


@dataclass
class Other:
    """A stage that trains nothing; None is a time that nothing tells."""

    stage: str
    seconds: float | None
    speed_from: str | None


@dataclass
class Pace:
    """Operations, and the seconds that they took."""

    flops: float = 0.0
    seconds: float = 0.0
    num_steps: int = 0

    def add(self, flops: float, seconds: float) -> None:
        self.flops, self.seconds = self.flops + flops, self.seconds + seconds

    @property
    def speed(self) -> float | None:
        """A second's operations; None if nothing was done."""
        return self.flops / self.seconds if self.flops > 0 and self.seconds > 0 else None


@dataclass
class Paces:
    """What earlier trainings took, by what they were of."""

    by_key: dict[Any, Pace] = field(default_factory=dict)

    def add(self, keys: Iterable[Any], flops: float, seconds: float) -> None:
        for key in keys:
            self.by_key.setdefault(key, Pace()).add(flops, seconds)

    def speed(self, key: Any) -> float | None:
        return self.by_key[key].speed if key in self.by_key else None


def add_pretraining_times(params: Params, costs: list[Pretraining], calibration: Any) -> None:
    """Put into each that is pending how long it will take, as far as that can be told."""
    paces = _pretraining_paces(params)
    for cost in costs:
        if not cost.pending or cost.flops is None:
            continue
        keys = {OWN: cost.run, SAME_ARCHITECTURE: (cost.architecture,)}
        speed, cost.speed_from = _first_known(paces, keys)
        if speed:  # of trainings that were validated, too
            cost.seconds = cost.flops / speed
        elif speed := calibration.pretraining():
            assert cost.validation_flops is not None
            cost.seconds = (cost.flops + cost.validation_flops) / speed
            cost.speed_from = CALIBRATION


def add_finetuning_times(params: Params, costs: list[Finetuning], calibration: Any) -> None:
    """The same of fine-tuning: trials run side by side."""
    paces = _finetuning_paces(costs)
    at_once = side_by_side(params.compute)
    for cost in costs:
        if not cost.pending or cost.flops is None or cost.prediction_flops is None:
            continue
        work = cost.flops + cost.prediction_flops
        place = (cost.task, cost.run, cost.method)
        keys = {OWN: place, SAME_ARCHITECTURE: (cost.architecture, cost.method)}
        speed, cost.speed_from = _first_known(paces, keys)
        seconds = work / speed if speed else calibration.finetuning(cost)
        if seconds is not None:
            cost.seconds = seconds / at_once
            cost.speed_from = cost.speed_from or CALIBRATION


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


def _first_known(paces: Paces, keys: dict[str, Any]) -> tuple[float | None, str | None]:
    """The speed by the first of ``keys`` that there is one of, and which that was."""
    known = ((speed, source) for source, key in keys.items() if (speed := paces.speed(key)))
    return next(known, (None, None))


# Of what ran before.


def _pretraining_paces(params: Params) -> Paces:
    device, paces = resolve(params.compute, threads=params.compute.threads).device, Paces()
    for path in sorted((TIMINGS / "pretrain").glob("*.json")):
        folder = PRETRAINED / path.stem
        if not (folder / "metrics.json").is_file() or not (folder / "run.json").is_file():
            continue  # it is being trained anew
        timing, metrics = read_json(path), read_json(folder / "metrics.json")
        if timing["device"] == device and metrics["pretrain_flops"]:
            keys = (path.stem, (read_json(folder / "run.json")["architecture"],))
            paces.add(keys, metrics["pretrain_flops"], timing["wall_time_s"])
    return paces


@dataclass(frozen=True)
class _Time:
    """Of a Cost what is needed, so that files of earlier versions can be read; so with _Work."""

    method: str
    wall_time_s: float


@dataclass(frozen=True)
class _Work:
    """Of a Trial."""

    method: str
    finetune_flops: int


def _finetuning_paces(costs: list[Finetuning]) -> Paces:
    """Of trials whose settings may have been others: what they trained they have counted, what they
    predicted is taken to be as much as it would be now."""
    paces = Paces()
    for cost in costs:
        timing = TIMINGS / "finetune" / cost.task / f"{cost.run}.csv"
        table = FINETUNED / cost.task / cost.run / "trials.csv"
        if cost.prediction_flops is None or not (timing.is_file() and table.is_file()):
            continue
        times = [row for row in trials.read(timing, _Time) if row.method == cost.method]
        done = [row for row in trials.read(table, _Work) if row.method == cost.method]
        if len(times) != len(done):
            continue
        predicted = cost.prediction_flops * len(done) / cost.num_trials
        flops = sum(trial.finetune_flops for trial in done) + predicted
        keys = ((cost.task, cost.run, cost.method), (cost.architecture, cost.method))
        paces.add(keys, flops, sum(row.wall_time_s for row in times))
    return paces


# Of a calibration.


class Calibration:
    """A few steps of training the reference's model on random tokens, by the study's training loop
    and in its compute settings: of pretraining by its objective, of fine-tuning by each method and
    on a task of two classes, in batches of the shape that is to be trained."""

    def __init__(self, params: Params, costs: Sequence[Finetuning]) -> None:
        self.params = params
        known = [cost.text_tokens for cost in costs if cost.text_tokens]
        self._length = max(round(sum(known) / len(known)), 1) if known else 1
        self._of_methods: dict[str, Pace] = {}

    @cached_property
    def run(self) -> Run | None:
        """The reference, else the first run that is not a public checkpoint."""
        runs = planned_runs(self.params)
        candidates = [runs[self.params.budget.reference], *runs.values()]
        return next((run for run in candidates if not run.is_public), None)

    @cached_property
    def _pretraining(self) -> Pace | None:
        if self.run is None:
            return None
        params, training = self.params, self.run.training
        objective = _objective(params, self.run)
        model = _model(self.run, objective.vocabulary.vocab_size)
        model.head = objective.head(model.backbone)
        batch = random_batch(
            objective,
            rows=training.micro_batch_rows,
            length=training.max_tokens,
        )
        return paced(params, self.run, model, objective, batch, threads=params.compute.threads)

    def pretraining(self) -> float | None:
        """Operations a second; None if there is no model to tell by."""
        return self._pretraining and self._pretraining.speed

    def finetuning(self, cost: Finetuning) -> float | None:
        """Seconds of all trials one after the other; None if there is no model to tell by."""
        if self.run is None or cost.flops is None or cost.prediction_flops is None:
            return None
        full, own = self._method(PLAIN), self._method(cost.method)
        work = cost.flops + cost.prediction_flops
        if own is not None and self._freezes(cost.method) and cost.num_steps is not None:
            assert full is not None and full.speed is not None
            # A step looks states up: it has its price, but no operations to speak of.
            return cost.num_steps * own.seconds / own.num_steps + work / full.speed
        pace = own or full
        return work / pace.speed if pace is not None and pace.speed else None

    def _freezes(self, key: str) -> bool:
        kind: Any = component_class("methods", self._entry(key)["name"], where="")
        return kind.freezes_backbone

    def _entry(self, key: str) -> dict[str, Any]:
        return {"name": "full"} if key == PLAIN else self.params.finetune.methods[key].method

    def _method(self, key: str) -> Pace | None:
        """Of a method, or of full fine-tuning; None of one that does not train."""
        assert self.run is not None
        if key not in self._of_methods:
            method: Method = build("methods", self._entry(key), where="")
            model = _model(self.run, self._vocabulary.vocab_size)
            model.backbone = model.backbone.for_tokens()
            if not method.trains or method.misfit(model.backbone):
                return None if key == PLAIN else self._method(PLAIN)
            self._of_methods[key] = self._pace_of(method, model, key)
        return self._of_methods[key]

    @property
    def _vocabulary(self) -> Vocabulary:
        assert self.run is not None
        found = vocabulary_of(self.params, self.run)
        assert found is not None
        return found

    def _pace_of(self, method: Method, model: Headed, key: str) -> Pace:
        assert self.run is not None
        vocabulary: Any = self._vocabulary
        task = Classification(["0", "1"], vocabulary, self._length)
        model.head = task.head(model.backbone)
        method.apply(model, generator=torch_stream(0, "method"))
        entry = self.params.finetune.methods.get(key)
        rows = entry.training.batch_examples if entry and entry.training else USUAL_EXAMPLES
        ids = stream(0, "plan").integers(5, vocabulary.vocab_size, size=(rows, self._length))
        examples = [Example(str(i), row, np.array([i % 2])) for i, row in enumerate(ids)]
        batch = task.collate(examples, rngs=[])
        method.before_training(model, [batch])
        threads = self.params.compute.trial_threads
        return paced(self.params, self.run, model, task, batch, threads=threads)


def _model(run: Run, vocab_size: int) -> Headed:
    backbone = build("models", run.model, vocab_size, where="model")
    backbone.initialise(generator=torch_stream(0, "weights"))
    return Headed(backbone, nn.Identity())


def paced(
    params: Params, run: Run, model: Headed, criterion: Any, batch: Batch, *, threads: int
) -> Pace:
    """What steps on this batch take, but for the first."""
    device = resolve(params.compute, threads=threads)
    model.to(device.torch)
    pace = _measured(model, criterion, batch, run, device, STEPS)
    if pace.seconds < SECONDS / 2:  # too short to be told apart from what else goes on
        each = max(pace.seconds / pace.num_steps, SECONDS / MOST_STEPS)
        pace = _measured(model, criterion, batch, run, device, round(SECONDS / each) + 1)
    return pace


def _measured(
    model: Headed, criterion: Any, batch: Batch, run: Run, device: Device, num_steps: int
) -> Pace:
    ends: list[tuple[float, int]] = []

    def after_step(done: Step) -> dict[str, float]:
        ends.append((time.monotonic(), done.flops))
        return {}

    schedule: Any = run.training
    train(
        model,
        criterion,
        _Same(batch),
        schedule,
        num_steps=num_steps,
        seed=0,
        device=device,
        after_step=after_step,
    )
    seconds = ends[-1][0] - ends[0][0]
    return Pace(sum(flops for _, flops in ends[1:]), seconds, len(ends) - 1)


def _objective(params: Params, run: Run) -> Objective:
    """The run's own, or one of its architecture where it has none or learns from a teacher."""
    built = objective_of(params, run)
    if built.trains and not built.has_teacher:
        return built
    stand_in = {"name": STAND_INS[str(run.model["name"])]}
    return objective_of(params, run.model_copy(update={"objective": stand_in}))


@dataclass(frozen=True)
class _Same:
    """The same batch in each step."""

    batch: Batch

    def micro_batches(self, step: int) -> list[Batch]:
        return [self.batch]
