"""The speed and memory of trainings that have not run on this machine, from a few steps of each."""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from stages.core.artifacts import Json
from stages.core.params import Params, Run
from stages.core.process import die_with_parent
from stages.core.seeding import stream, torch_stream
from stages.matching.budget import vocabulary_of
from stages.methods._method import METHODS, Method, SolvedMethod, TrainedMethod
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead
from stages.objectives._objective import OBJECTIVES, Objective
from stages.planning.finetuning_costs import Finetuning
from stages.planning.pretraining_costs import Pretraining
from stages.planning.run_sizes import backbone_of, objective_of, planned_runs, random_batch
from stages.tasks._task import Example
from stages.tasks.classification import Classification
from stages.text.batch import Batch
from stages.tracking.view import View
from stages.training.device import Device, resolve, side_by_side
from stages.training.loop import Criterion, mean_loss, train
from stages.training.meter import Meter, peak_memory_bytes
from stages.training.solver import solve
from stages.trials.prediction import PREDICTED_AT_ONCE, predict

T = TypeVar("T")

STEPS, SECONDS, MOST_STEPS = 4, 1.0, 200  # of each; its first step counts in none
PLAIN, USUAL_EXAMPLES = "", 8  # full fine-tuning whatever methods there are, in batches of so many


@dataclass(frozen=True)
class Pace:
    """What some steps took, and the most memory that their process had."""

    flops: float
    seconds: float
    num_steps: int
    peak_memory_bytes: int

    @property
    def speed(self) -> float:
        """A second's operations."""
        return self.flops / self.seconds


@dataclass(frozen=True)
class TimeAndMemory:
    seconds: float
    peak_memory_bytes: int | None  # None of a model that another stood in for


class Calibration:
    """Trains the model of each run on random tokens by the study's own training loop and in its
    compute settings: by the run's objective, and by each method on a task of two classes. Models
    and settings that are the same are tried once; for a public checkpoint the reference's model
    stands in, or the first that is not public."""

    def __init__(self, params: Params, costs: Sequence[Finetuning]) -> None:
        self._params = params
        self._runs = planned_runs(params)
        means = [cost.text_tokens for cost in costs if cost.text_tokens]
        self._length = max(round(sum(means) / len(means)), 1) if means else 1
        self._longest = max((cost.longest_text or 1 for cost in costs), default=1)
        self._paces: dict[str, Pace | None] = {}
        self._progress = tqdm(desc="calibration", unit="model", disable=None, leave=False)

    def pretraining(self, cost: Pretraining) -> TimeAndMemory | None:
        """None if there is no model to tell by."""
        run = self._run(cost.run)
        if run is None or cost.flops is None or cost.validation_flops is None:
            return None
        shape = [run.training.micro_batch_rows, run.training.max_tokens]
        parent = self._runs.get(run.parent)  # whose model a teacher is
        key = json.dumps(
            ["", run.model, run.objective, parent and parent.model, shape], sort_keys=True
        )
        pace = self._pace(key, _pretraining_pace, self._params, run)
        if pace is None:
            return None
        memory = self._memory(cost.run, pace)
        return TimeAndMemory(
            (cost.flops + cost.validation_flops) / pace.speed,
            memory and memory + self._tracking_bytes,
        )

    def finetuning(self, cost: Finetuning) -> TimeAndMemory | None:
        """Of all trials one after the other, though as slow as they are side by side; None if there
        is no model to tell by."""
        run = self._run(cost.run)
        if run is None or cost.flops is None or cost.prediction_flops is None:
            return None
        own, work = self._method(run, cost.method), cost.flops + cost.prediction_flops
        if own is not None and not self._freezes(cost.method):
            return TimeAndMemory(work / own.speed, self._memory(cost.run, own))
        full = self._method(run, PLAIN)
        assert full is not None
        memory = self._memory(cost.run, own or full)
        if own is None or cost.num_steps is None:
            return TimeAndMemory(work / (own or full).speed, memory)
        # A pass looks states up: it has its price, but no operations to speak of.
        steps = cost.num_steps * own.seconds / own.num_steps
        return TimeAndMemory(steps + work / full.speed, memory)

    def _run(self, key: str) -> Run | None:
        reference = self._runs[self._params.budget.reference]
        candidates = [self._runs[key], reference, *self._runs.values()]
        return next((run for run in candidates if not run.is_public), None)

    def _memory(self, run: str, pace: Pace) -> int | None:
        return None if self._runs[run].is_public else pace.peak_memory_bytes

    @cached_property
    def _tracking_bytes(self) -> int:
        """What a pretraining holds for MLflow's client."""
        if resolve(self._params.compute, threads=1).device != "cpu":
            return 0  # of a GPU's memory
        return in_processes(self._params, _tracking_bytes, copies=1)[0]

    def _freezes(self, key: str) -> bool:
        kind = METHODS.find(_entry(self._params, key)["name"], where="")
        return kind.freezes_backbone

    def _method(self, run: Run, method: str) -> Pace | None:
        """Of a method, or of full fine-tuning; None of one that does not train."""
        copies = side_by_side(self._params.compute)
        key = json.dumps([method, run.model], sort_keys=True)
        arguments = (self._params, run, method, self._length, self._longest)
        return self._pace(key, _finetuning_pace, *arguments, copies=copies)

    def _pace(
        self, key: str, function: Callable[..., Pace | None], *arguments: object, copies: int = 1
    ) -> Pace | None:
        if key not in self._paces:
            found = in_processes(self._params, function, *arguments, copies=copies)
            paces = [pace for pace in found if pace is not None]
            self._paces[key] = max(paces, key=lambda pace: 1 / pace.speed, default=None)
            self._progress.update()
        return self._paces[key]


def in_processes(
    params: Params, function: Callable[..., T], *arguments: object, copies: int
) -> list[T]:
    """Call ``function`` in ``copies`` processes at once, as trainings run: this measures the memory
    of one of them and how much they slow each other down. On a GPU it runs in this process."""
    if resolve(params.compute, threads=1).device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        return [function(*arguments)]
    # Forked from a server that has computed nothing: a fork of this process would deadlock on
    # torch's threads.
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(copies, context, initializer=die_with_parent) as pool:
        found = [pool.submit(function, *arguments) for _ in range(copies)]
        return [each.result() for each in found]


def _tracking_bytes() -> int:
    with TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        before = peak_memory_bytes()
        View("calibration")
        return peak_memory_bytes() - before


def _pretraining_pace(params: Params, run: Run) -> Pace | None:
    """By the run's own objective, a teacher of random weights included; for a run that trains
    nothing, by an objective that supports its model. None if there is none."""
    device = resolve(params.compute, threads=params.compute.threads)
    meter = Meter(device)
    objective = _objective(params, run)
    if objective is None:
        return None
    model = _model(run, objective.vocabulary.vocab_size)
    if objective.has_teacher:
        teacher = _model(planned_runs(params)[run.parent], objective.vocabulary.vocab_size).backbone
        frozen = teacher.to(device.torch).requires_grad_(False).eval()
        objective.learn_from(frozen, model.backbone.to(device.torch))
    model.head = objective.head(model.backbone)
    training = run.training
    batch = random_batch(objective, rows=training.micro_batch_rows, length=training.max_tokens)
    timed = _timed(model, objective, [batch], run, device)
    mean_loss(model, objective, [batch], device)  # validation
    return Pace(*timed, meter.read().peak_memory_bytes)


def _finetuning_pace(params: Params, run: Run, key: str, length: int, longest: int) -> Pace | None:
    """On texts of ``length`` tokens, after a batch of the longest; those are predicted, too."""
    device = resolve(params.compute, threads=params.compute.trial_threads)
    meter = Meter(device)
    vocabulary: Any = vocabulary_of(params, run)
    method: Method = METHODS.build(_entry(params, key), where="")
    model = _model(run, vocabulary.vocab_size)
    model.backbone.drop_output_layers()
    fits = isinstance(method, TrainedMethod | SolvedMethod)
    if not fits or method.incompatibility(model.backbone):
        return None
    task = Classification(["0", "1"], vocabulary, longest)
    model.head = task.head(model.backbone)
    method.apply(model, generator=torch_stream(0, "method"))
    entry = params.finetune.methods.get(key)
    count = entry.training.batch_examples if entry and entry.training else USUAL_EXAMPLES
    ids = vocabulary.regular_ids

    def texts(number: int, tokens: int) -> list[Example]:
        drawn = ids[stream(0, "plan").integers(len(ids), size=(number, tokens))]
        return [Example(f"{i} of {tokens}", row, np.array([i % 2])) for i, row in enumerate(drawn)]

    batches = [task.collate(texts(count, n), rngs=[]) for n in (longest, length)]
    if isinstance(method, SolvedMethod):
        model.to(device.torch)
        timed = _solved(model, task, method, texts(PREDICTED_AT_ONCE, length), device)
    else:
        timed = _timed(model, task, batches, run, device)
    many = texts(PREDICTED_AT_ONCE, longest)
    predict(task, model, [{"id": each.id} for each in many], many, device)
    return Pace(*timed, meter.read().peak_memory_bytes)


def _solved(
    model: ModelWithHead,
    task: Classification,
    method: SolvedMethod,
    examples: Sequence[Example],
    device: Device,
) -> tuple[float, float, int]:
    """The operations, the seconds and the number of passes over one batch of states."""
    batches = [task.collate([*examples], rngs=[]).to(device.torch)]
    method.remember(model, batches)
    began = time.monotonic()
    found = solve(
        model,
        task,
        batches,
        batches,
        inverse_strengths=[1.0],
        merit=lambda: 0.0,
        device=device,
    )
    return found.flops, time.monotonic() - began, max(found.num_iterations, 1)


def _entry(params: Params, key: str) -> Json:
    return {"name": "full"} if key == PLAIN else params.finetune.methods[key].method


def _model(run: Run, vocab_size: int) -> ModelWithHead:
    backbone = MODELS.build(run.model, vocab_size, where="model")
    backbone.initialise(generator=torch_stream(0, "weights"))
    return ModelWithHead(backbone, nn.Identity())


def _objective(params: Params, run: Run) -> Objective | None:
    own = objective_of(params, run)
    return own if own.trains else stand_in(params, run)


def stand_in(params: Params, run: Run) -> Objective | None:
    """An objective that trains the run's model without settings of its own or a teacher."""
    for name in OBJECTIVES.names():
        try:
            other = objective_of(params, run.model_copy(update={"objective": {"name": name}}))
        except ValueError:  # it has settings without a default, or the tokenizer lacks tokens
            continue
        backbone = backbone_of(params, run)
        assert backbone is not None
        if other.trains and not other.has_teacher and not other.incompatibility(backbone):
            return other
    return None


def _timed(
    model: ModelWithHead, criterion: Criterion, batches: Sequence[Batch], run: Run, device: Device
) -> tuple[float, float, int]:
    """The operations, the seconds and the number of steps on the last of the batches; those before
    it come first and do not count."""
    model.to(device.torch)
    found = _steps(model, criterion, batches, run, device, STEPS)
    flops, seconds, num_steps = found
    if seconds < SECONDS / 2:  # too short to be told apart from what else goes on
        each = max(seconds / num_steps, SECONDS / MOST_STEPS)
        found = _steps(model, criterion, batches, run, device, round(SECONDS / each) + 1)
    return found


def _steps(
    model: ModelWithHead,
    criterion: Criterion,
    batches: Sequence[Batch],
    run: Run,
    device: Device,
    num_steps: int,
) -> tuple[float, float, int]:
    steps = train(
        model,
        criterion,
        _Ending(batches),
        run.training.at(run.training.rates[0]),
        num_steps=num_steps,
        seed=0,
        device=device,
    )
    ends = [(time.monotonic(), step.flops) for step in steps]
    counted = ends[len(batches) - 1 :]
    seconds = counted[-1][0] - counted[0][0]
    return sum(flops for _, flops in counted[1:]), seconds, len(counted) - 1


@dataclass(frozen=True)
class _Ending:
    """The batches, and then the last of them in each step."""

    batches: Sequence[Batch]

    def micro_batches(self, step: int) -> list[Batch]:
        return [self.batches[min(step, len(self.batches) - 1)]]
