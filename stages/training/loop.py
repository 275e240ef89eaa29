"""The one training loop, of pretraining and of fine-tuning, for every objective, task and method.

The order of data is a pure function of the step, so resuming is ``start at step s``. The loss is
a sum over targets divided by their number in the whole step, so micro-batches change no result.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from tqdm import tqdm

from stages.core.seeding import derive
from stages.text.batch import Batch
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.optimizer import AdamW, lr_factor

# Of lost work, at most. When a state is saved changes no result, so this is no setting of a study.
CHECKPOINT_SECONDS = float(os.environ.get("CHECKPOINT_SECONDS", "20"))


@runtime_checkable
class Criterion(Protocol):
    """What is learnt: an Objective or a Task."""

    def loss(self, model: Any, batch: Batch) -> dict[str, tuple[float, Any]]: ...

    def flops(self, model: Any, batch: Batch) -> int: ...

    def frozen_flops(self, batch: Batch) -> int: ...


@runtime_checkable
class Data(Protocol):
    """The batches of each step, a pure function of the step."""

    def micro_batches(self, step: int) -> list[Batch]: ...


@runtime_checkable
class Schedule(Protocol):
    """The settings of an optimisation: ``params.Optimisation``."""

    @property
    def lr(self) -> float: ...
    @property
    def warmup_fraction(self) -> float: ...
    @property
    def decay(self) -> str: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def max_grad_norm(self) -> float: ...


@dataclass(frozen=True)
class Step:
    """What is known after a step."""

    step: int  # counted from 1
    loss: float  # before the step's update
    lr: float
    flops: int  # of the forward and the backward pass


class Diverged(ValueError):
    """A loss that is no number, or no finite one; the message begins with the setting to lower."""

    def __init__(self, lr: float, num_steps: int, history: list[dict[str, float]]) -> None:
        last = history[-1]
        super().__init__(
            f"lr: training diverged at {lr:g}, the loss of step {last['step']} of {num_steps} is "
            f"{last['loss']}; lower it, or max_grad_norm"
        )
        self.history = history


def train(
    model: Any,
    criterion: Criterion,
    data: Data,
    schedule: Schedule,
    *,
    num_steps: int,
    seed: int,
    device: Device,
    frozen: Callable[[int], Iterable[nn.Parameter]] = lambda step: (),
    after_step: Callable[[Step], dict[str, float]] = lambda step: {},
    resumable: Resumable | None = None,
    description: str | None = None,
) -> list[dict[str, float]]:
    """Train ``model``, a Headed one, in place; returns its history, one row per step.

    What is ``frozen`` in a step, counted from 0, is left as it is. ``after_step`` may add columns
    to a row (a validation loss). With ``resumable`` the state is saved from time to time and
    training goes on from what an interrupted process left.

    Raises Diverged if the loss, or what ``after_step`` adds, is not finite.
    """
    optimizer = AdamW(model, weight_decay=schedule.weight_decay)
    start, history = resumable.load(model, optimizer) if resumable else (0, [])
    weights = list(model.parameters())
    if device.compile:
        model.backbone.compile()
    progress = tqdm(
        total=num_steps, initial=start, desc=description, unit="step", disable=_quiet(description)
    )
    saved = time.monotonic()
    model.train()  # all of it, whatever state its parts were read or built in
    for step, micro_batches in enumerate(_prefetched(data, start, num_steps), start=start):
        if not model.training:  # which after_step has seen to
            model.train()
        _seed(derive(seed, "dropout", step), device)
        lr = schedule.lr * lr_factor(
            step, num_steps, warmup_fraction=schedule.warmup_fraction, decay=schedule.decay
        )
        with _without_gradients(frozen(step)):
            loss = accumulate(model, criterion, micro_batches, device)
        nn.utils.clip_grad_norm_(weights, schedule.max_grad_norm)
        optimizer.step(lr=lr)

        # A backward pass takes twice the operations of the forward pass where all weights train,
        # and less where some are frozen: what is counted then is the most that it can be.
        flops = sum(
            3 * criterion.flops(model, batch) + criterion.frozen_flops(batch)
            for batch in micro_batches
        )
        done = Step(step + 1, loss, lr, flops)
        history.append(vars(done) | (after_step(done) if math.isfinite(loss) else {}))
        if not all(map(math.isfinite, history[-1].values())):
            raise Diverged(schedule.lr, num_steps, history)
        progress.update()
        progress.set_postfix(loss=f"{loss:.3f}", refresh=False)
        if resumable and time.monotonic() - saved > CHECKPOINT_SECONDS and step + 1 < num_steps:
            resumable.save(step + 1, model, optimizer, history)
            saved = time.monotonic()
    progress.close()
    return history


def _seed(seed: int, device: Device) -> None:
    """As torch.manual_seed does, but for kinds of devices that are not in use: for each of those it
    keeps the call, with the stack that it came from, which takes time and memory in every step."""
    torch.default_generator.manual_seed(seed)
    if device.device == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def _without_gradients(weights: Iterable[nn.Parameter]) -> Iterator[None]:
    """The optimiser leaves a weight that has no gradient as it is, bit for bit."""
    weights = list(weights)
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def accumulate(
    model: nn.Module,
    criterion: Criterion,
    micro_batches: list[Batch],
    device: Device,
) -> float:
    """Add the gradients of a step's loss to the model's; returns the loss.

    Each term is divided by its own number of targets in the whole step, counted before the first
    backward.
    """
    totals = count_targets(micro_batches)
    total_loss = 0.0
    for batch in micro_batches:
        with device.autocast():
            terms = criterion.loss(model, batch.to(device.torch))
        loss = sum(
            weight * loss_sum / max(totals[term], 1) for term, (weight, loss_sum) in terms.items()
        )
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        total_loss += loss.item()
    return total_loss


@torch.no_grad()
def mean_loss(
    model: nn.Module, criterion: Criterion, batches: list[Batch], device: Device
) -> float:
    """The loss over all batches as over one."""
    model.eval()
    totals = count_targets(batches)
    result = 0.0
    for batch in batches:
        with device.autocast():
            terms = criterion.loss(model, batch.to(device.torch))
        result += sum(
            weight * float(loss_sum) / max(totals[term], 1)
            for term, (weight, loss_sum) in terms.items()
        )
    return result


def count_targets(batches: list[Batch]) -> dict[str, int]:
    """The number of targets of each term over all batches."""
    totals: dict[str, int] = {}
    for batch in batches:
        for term, number in batch.num_targets.items():
            totals[term] = totals.get(term, 0) + number
    return totals


def _prefetched(data: Data, start: int, num_steps: int) -> Iterator[list[Batch]]:
    """The micro-batches of each step; the next step's are made while this one's are used."""
    if start >= num_steps:
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(data.micro_batches, start)
        for step in range(start, num_steps):
            ready = coming.result()
            if step + 1 < num_steps:
                coming = pool.submit(data.micro_batches, step + 1)
            yield ready


def _quiet(description: str | None) -> bool | None:
    """No bar without a description; with one, only on a terminal (tqdm's None)."""
    return True if description is None else None
