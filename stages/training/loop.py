"""The training loop of pretraining and fine-tuning, for every objective, task and method.

The data of a step are a pure function of the step, so a run can resume at any step. The loss is a
sum over targets divided by their number in the whole step, so results depend neither on the size of
micro-batches nor on the number of processes (ranks) that share them.
"""

import math
import operator
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from stages.core.components import BrokenContract, file_of
from stages.core.ending import held_signals
from stages.core.params import Optimisation
from stages.core.seeding import derive
from stages.core.sharded import whole
from stages.models._heads import ModelWithHead
from stages.optimizers._optimizer import OPTIMIZERS
from stages.text.batch import Batch
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.flops import StepFlops
from stages.training.learning_rate import lr_factor
from stages.training.progress import Progress
from stages.training.ranks import ALONE, Ranks

# Time between saves (0: a save after each step). Not a setting of a study: it changes no result.
CHECKPOINT_SECONDS = float(os.environ.get("CHECKPOINT_SECONDS", "20"))
SAVING_SHARE = 0.02  # share of the time that saves may take: large models are saved less often
T = TypeVar("T")


@runtime_checkable
class Criterion(Protocol):
    """The part of an Objective or a Task that the loop uses: its loss.

    It is a protocol so that the loop imports neither. A stage runs again if code that it imports
    changes, and an edit of an objective or a task must not run the other's stage again.
    """

    def loss(self, model: ModelWithHead, batch: Batch) -> Mapping[str, tuple[float, Tensor]]: ...


@runtime_checkable
class Data(Protocol):
    """The micro-batches of each step: a pure function of the step (from 0) and the rank."""

    def micro_batches(self, step: int) -> list[Batch]: ...


@runtime_checkable
class Divisible(Data, Protocol):
    """Data whose micro-batches can become smaller, which changes gradients only through dropout."""

    @property
    def at_once(self) -> str: ...  # setting and size of a micro-batch: ``batch_examples: 16``

    def halve(self) -> bool: ...  # halves the rows of micro-batches; False if that is impossible


@dataclass
class Step:
    """The numbers of a training step."""

    step: int  # counted from 1
    loss: float  # before the step's update
    lr: float
    flops: int  # of the forward and the backward pass
    validation_loss: float | None = None  # set by the caller of ``train``, if it validates


class Diverged(ValueError):
    """Raised for a NaN or infinite loss; the message begins with the setting to lower."""

    def __init__(self, what: str, value: float, *, lr: float, step: int, num_steps: int) -> None:
        super().__init__(
            f"lr: training diverged at {lr:g}, the {what} of step {step} of {num_steps} is "
            f"{value}; lower it, or max_grad_norm"
        )


class OutOfMemory(ValueError):
    """Raised if even the smallest micro-batches do not fit into memory; the message begins with the
    setting of their size."""


def train(
    model: ModelWithHead,
    criterion: Criterion,
    data: Data,
    schedule: Optimisation,
    *,
    num_steps: int,
    seed: int,
    device: Device,
    history: list[Step] | None = None,
    frozen: Sequence[nn.Parameter] = (),
    resumable: Resumable | None = None,
    description: str | None = None,
    ranks: Ranks = ALONE,
) -> Generator[Step, None, None]:
    """Trains ``model`` in place; yields each step after its update. Each of several ``ranks`` has
    its own part of ``data``, and all yield the same steps.

    ``history`` gets the steps of interrupted processes, and then each step before it is yielded.
    Between steps the caller may set the ``validation_loss`` of the last step and change ``frozen``,
    the weights that get no gradient. With ``resumable`` training continues from the saved state.
    The state is saved from time to time and when a signal ends this process, always after the
    caller is done with a step.

    A single process that is out of memory goes on with smaller micro-batches.

    Raises Diverged for a NaN or infinite loss (such a step is in ``history``, but is not yielded)
    or validation loss, and OutOfMemory.
    """
    optimizer = OPTIMIZERS.build(
        schedule.optimizer, model, schedule.weight_decay, device.dtype, where="optimizer"
    )
    history = [] if history is None else history
    start, earlier = resumable.load(model, optimizer) if resumable else (0, [])
    history += [Step(**row) for row in earlier]
    weights = list(model.parameters())
    step_flops = StepFlops(compiles=device.compile, ranks=ranks)
    if device.compile:
        model.compile()
    saved, saving_s = time.monotonic(), 0.0
    model.train()  # all its parts, whichever mode they were built in
    # With several ranks the process that started them handles the death of its own parent.
    held = held_signals(of_parent=ranks.number == 1) if resumable else nullcontext([])
    with (
        held as signals,
        Progress(
            description, num_steps=num_steps, start=start, device=device, num_ranks=ranks.number
        ) as progress,
        closing(_prefetched(data, start, num_steps)) as prefetched,
    ):
        for index, micro_batches in enumerate(prefetched, start=start):
            if not model.training:  # the caller has evaluated it
                model.train()
            lr = schedule.lr * lr_factor(
                index, num_steps, warmup_fraction=schedule.warmup_fraction, decay=schedule.decay
            )

            def compute(
                micro_batches: list[Batch], *, index: int = index
            ) -> tuple[list[Tensor], int]:
                first, number = len(micro_batches) * ranks.rank, len(micro_batches)
                gradients = partial(
                    add_gradients,
                    model,
                    criterion,
                    micro_batches,
                    device,
                    dropout_seeds=[
                        _dropout_seed(seed, index, place) for place in range(first, first + number)
                    ],
                    ranks=ranks,
                )
                return step_flops.of(gradients, weights, micro_batches)

            with _without_gradients(frozen):
                losses, flops = _in_memory(compute, micro_batches, data, index, weights, ranks)
            ranks.sum_gradients(weights)
            norm = whole(nn.utils.clip_grad_norm_(weights, schedule.max_grad_norm))
            optimizer.step(lr=lr)
            # Read after the whole step is launched, because the host waits for the device here.
            *parts, gradient_norm = _values([*losses, norm])
            loss = ranks.total({"loss": math.fsum(parts)})["loss"]

            due = ranks.is_first and time.monotonic() - saved > _seconds_between_saves(saving_s)
            known = ranks.total({"flops": flops, "due": int(due), "ends": int(bool(signals))})
            step = Step(index + 1, loss, lr, known["flops"])
            history.append(step)
            _refuse_divergence(step, schedule.lr, num_steps)
            yield step
            _refuse_divergence(step, schedule.lr, num_steps)

            progress.update(
                loss=loss,
                gradient_norm=gradient_norm,
                tokens=ranks.number * sum(batch.input_ids.numel() for batch in micro_batches),
                flops=step.flops,
            )
            if resumable and (known["due"] or known["ends"]) and step.step < num_steps:
                began = time.monotonic()
                resumable.save(step.step, model, optimizer, [*map(vars, history)])
                saved = time.monotonic()
                saving_s = saved - began
                if known["ends"]:  # on all ranks, whichever of them got the signal
                    raise KeyboardInterrupt


def _seconds_between_saves(saving_s: float) -> float:
    """Returns the time until the next save, after a save that took ``saving_s``."""
    if CHECKPOINT_SECONDS <= 0:
        return CHECKPOINT_SECONDS
    return max(CHECKPOINT_SECONDS, saving_s / SAVING_SHARE)


def _refuse_divergence(step: Step, lr: float, num_steps: int) -> None:
    for what, value in {"loss": step.loss, "validation loss": step.validation_loss}.items():
        if value is not None and not math.isfinite(value):
            raise Diverged(what, value, lr=lr, step=step.step, num_steps=num_steps)


def _in_memory(
    compute: Callable[[list[Batch]], T],
    micro_batches: list[Batch],
    data: Data,
    step: int,
    weights: Sequence[nn.Parameter],
    ranks: Ranks,
) -> T:
    """Returns the result of ``compute`` for the micro-batches of a step, which are made smaller
    until they fit into memory.

    Raises OutOfMemory if they cannot be smaller, or with several ranks, which would have to agree
    on a size.
    """
    while True:
        try:
            return compute(micro_batches)
        except torch.OutOfMemoryError as error:
            # The error itself is not kept: its frames hold the tensors of the step. torch's advice
            # is left out.
            reason = str(error).partition(" If reserved")[0]
        for weight in weights:
            weight.grad = None
        if ranks.number > 1 or not isinstance(data, Divisible):
            setting = data.at_once if isinstance(data, Divisible) else "memory"
            raise OutOfMemory(f"{setting} do not fit: {reason}")
        smaller = data.micro_batches(step)
        if len(smaller) == len(micro_batches):  # else they were prefetched before the last halving
            if not data.halve():
                raise OutOfMemory(f"{data.at_once} do not fit; lower max_tokens: {reason}")
            print(f"note: out of memory; from now on {data.at_once} at once", file=sys.stderr)
            smaller = data.micro_batches(step)
        micro_batches = smaller


def _dropout_seed(seed: int, step: int, place: int) -> int:
    """Returns the dropout seed of the micro-batch at position ``place`` of the whole step. It does
    not depend on the rank."""
    return derive(seed, "dropout", step, *([place] if place else []))


def _seed(seed: int, device: Device) -> None:
    """Seeds torch's generators of the CPU and of the device in use. ``torch.manual_seed`` would
    also queue a call, with its stack trace, for all other kinds of devices, which costs time and
    memory in every step."""
    torch.default_generator.manual_seed(seed)
    if device.device == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def _without_gradients(frozen: Sequence[nn.Parameter]) -> Iterator[None]:
    """A context in which ``frozen`` weights get no gradient, so the optimizer leaves them exactly
    as they are."""
    weights = list(frozen)
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def accumulate(
    model: ModelWithHead, criterion: Criterion, micro_batches: list[Batch], device: Device
) -> float:
    """Adds the gradients of a step's loss to those of the model; returns the loss."""
    return math.fsum(_values(add_gradients(model, criterion, micro_batches, device)))


def add_gradients(
    model: ModelWithHead,
    criterion: Criterion,
    micro_batches: list[Batch],
    device: Device,
    *,
    dropout_seeds: Sequence[int] = (),
    ranks: Ranks = ALONE,
) -> list[Tensor]:
    """Adds the gradients of this rank's part of a step's loss to those of the model; returns the
    losses of its micro-batches, whose sum over all ranks is the loss of the step.

    Each term is divided by its number of targets in the whole step, counted over all micro-batches
    of all ranks before the first backward pass. ``dropout_seeds`` has one per micro-batch, or none.
    """
    totals = ranks.total(count_targets(micro_batches))
    losses = list[Tensor]()
    for number, batch in enumerate(micro_batches):
        if dropout_seeds:
            _seed(dropout_seeds[number], device)
        with device.autocast():
            terms = model(criterion.loss, _moved(batch, device))
        loss = sum(
            weight * loss_sum / _number(totals, term, criterion)
            for term, (weight, loss_sum) in terms.items()
        )
        assert isinstance(loss, torch.Tensor)
        ranks.scaled(loss).backward()
        losses.append(loss.detach())
    return losses


def _moved(batch: Batch, device: Device) -> Batch:
    """Returns the batch on the device."""
    moved = batch.to(device.torch)
    if device.compile:
        moved.declare_changing_sizes()
    return moved


@torch.no_grad()
def mean_loss(
    model: ModelWithHead, criterion: Criterion, batches: list[Batch], device: Device
) -> float:
    """Returns the loss of all batches as if they were one; leaves the model in evaluation mode."""
    model.eval()
    totals = count_targets(batches)
    weights, sums = list[float](), list[Tensor]()
    for batch in batches:
        with device.autocast():
            terms = model(criterion.loss, _moved(batch, device))
        for term, (weight, loss_sum) in terms.items():
            weights.append(weight / _number(totals, term, criterion))
            sums.append(loss_sum)
    # All losses are copied to the host at once, since every copy waits for the device.
    return math.fsum(map(operator.mul, weights, _values(sums)))


def _values(losses: Sequence[Tensor]) -> list[float]:
    """Returns the values of scalar tensors in one copy to the host, which waits for the device."""
    return torch.stack([loss.double() for loss in losses]).tolist() if losses else []


def _number(totals: Mapping[str, int], term: str, criterion: Criterion) -> int:
    """Returns the divisor of a term's sum: the number of its targets, or 1 if there are none.

    Raises BrokenContract for a term that ``collate`` does not count.
    """
    if term not in totals:
        raise BrokenContract(
            f"{file_of(type(criterion))}: loss has the term {term!r}, but num_targets of its "
            f"batches counts {', '.join(totals) or 'nothing'}; it needs the same terms"
        )
    return max(totals[term], 1)


def count_targets(batches: list[Batch]) -> dict[str, int]:
    """The number of targets of each term over all batches."""
    totals: dict[str, int] = {}
    for batch in batches:
        for term, number in batch.num_targets.items():
            totals[term] = totals.get(term, 0) + number
    return totals


def _prefetched(data: Data, start: int, num_steps: int) -> Generator[list[Batch], None, None]:
    """Yields the micro-batches of each step, and meanwhile makes those of the next step."""
    if start >= num_steps:
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(data.micro_batches, start)
        for step in range(start, num_steps):
            ready = coming.result()
            if step + 1 < num_steps:
                coming = pool.submit(data.micro_batches, step + 1)
            yield ready
