"""The training loop of pretraining and fine-tuning, for every objective, task and method.

The data of a step are a pure function of the step, so training can resume at any step. The loss is
a sum over targets divided by their number in the whole step, so results depend neither on the size
of micro-batches nor on the number of processes (ranks) that share them.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from stages.core.components import file_of
from stages.core.ending import held_signals
from stages.core.params import Optimisation
from stages.core.seeding import derive
from stages.models._heads import ModelWithHead
from stages.optimizers._optimizer import OPTIMIZERS
from stages.text.batch import Batch, in_few_widths
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.flops import StepFlops
from stages.training.ranks import ALONE, Ranks, whole

# Time between saves (0: a save after each step). Not a setting of a study: it changes no result.
CHECKPOINT_SECONDS = float(os.environ.get("CHECKPOINT_SECONDS", "20"))


@runtime_checkable
class Criterion(Protocol):
    """The part of an Objective or a Task that the loop uses.

    It is a protocol so that the loop imports neither. A stage runs again if code that it imports
    changes, and an edit of an objective or a task must not run the other's stage again.
    """

    max_tokens: int

    def loss(self, model: ModelWithHead, batch: Batch) -> Mapping[str, tuple[float, Tensor]]: ...


@runtime_checkable
class Data(Protocol):
    """The micro-batches of each step: a pure function of the step (from 0) and the rank."""

    def micro_batches(self, step: int) -> list[Batch]: ...


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
    The state is saved from time to time, at the end, and when a signal ends this process, always
    after the caller is done with a step. ``description`` begins the progress line, if there is one.

    Raises Diverged for a NaN or infinite loss (such a step is in ``history``, but is not yielded)
    or validation loss.
    """
    optimizer = OPTIMIZERS.build(
        schedule.optimizer, model, schedule.weight_decay, device.dtype, where="optimizer"
    )
    step_flops = StepFlops(model, criterion, device, resumes=resumable is not None)
    history, start = [] if history is None else history, 0
    if resumable and (state := resumable.load(model, optimizer)):
        start, step_flops.counts = state["step"], state["flops"]
        history += [Step(**row) for row in state["history"]]
    weights = list(model.parameters())
    widest = criterion.max_tokens if device.device == "cuda" else 0
    if device.compile:
        model.compile()
    called = ranks.synchronised(model)
    saved, saving_s = time.monotonic(), 0.0
    model.train()  # all its parts, whichever mode they were built in
    with (
        held_signals() if resumable else nullcontext([]) as signals,
        # tqdm's None for ``disable``: hidden unless on a terminal.
        tqdm(
            total=num_steps, initial=start, desc=description, disable=description is None or None
        ) as progress,
        closing(_prefetched(data, start, num_steps, widest)) as prefetched,
    ):
        for index, batches in enumerate(prefetched, start=start):
            if not model.training:  # the caller has evaluated it
                model.train()
            lr = schedule.lr * lr_factor(schedule, index, num_steps)
            # A micro-batch's dropout depends on its place in the whole step, not on the rank.
            first = ranks.rank * len(batches)
            seeds = [derive(seed, "dropout", index, first + i) for i in range(len(batches))]
            still = [weight.requires_grad_(False) for weight in frozen]  # the optimizer skips them
            losses, flops = step_flops.of(
                lambda b=batches, s=seeds: add_gradients(
                    called, criterion, b, device, dropout_seeds=s, ranks=ranks
                ),
                batches,
            )
            for weight in still:
                weight.requires_grad_(True)
            norm = whole(nn.utils.clip_grad_norm_(weights, schedule.max_grad_norm))
            optimizer.step(lr=lr)
            # Read after the whole step is launched, because the host waits for the device here.
            *parts, gradient_norm = _values([*losses, norm])
            # Large models are saved less often: saves take at most 2 % of the time.
            pause_s = max(CHECKPOINT_SECONDS, 50 * saving_s) if CHECKPOINT_SECONDS > 0 else -1
            due = ranks.is_first and time.monotonic() - saved > pause_s
            known = ranks.total(
                {"loss": math.fsum(parts), "flops": flops, "due": due, "ends": bool(signals)}
            )

            step = Step(index + 1, known["loss"], lr, int(known["flops"]))
            history.append(step)
            _refuse_divergence(step, schedule.lr, num_steps)
            yield step
            _refuse_divergence(step, schedule.lr, num_steps)

            if not progress.disable:
                tokens = ranks.number * sum(batch.input_ids.numel() for batch in batches)
                per_s = tqdm.format_sizeof(tokens * (progress.format_dict["rate"] or 0.0))
                about = f"loss {step.loss:.3f}, norm {gradient_norm:.2f}, {per_s} tokens/s"
                progress.set_postfix_str(about, refresh=False)
            progress.update()
            if resumable and (known["due"] or known["ends"] or step.step == num_steps):
                began, rows = time.monotonic(), [*map(vars, history)]
                record = {"step": step.step, "history": rows, "flops": step_flops.counts}
                resumable.save(record, model, optimizer)
                saved, saving_s = time.monotonic(), time.monotonic() - began
                if known["ends"]:  # on all ranks, whichever of them got the signal
                    raise KeyboardInterrupt


def lr_factor(schedule: Optimisation, step: int, num_steps: int) -> float:
    """Returns the factor of the learning rate in ``step`` (0, 1, ..., num_steps - 1): it rises
    linearly to 1, then falls to 0 at ``num_steps`` or, without decay, stays at 1."""
    warmup = round(schedule.warmup_fraction * num_steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    remaining = (num_steps - step) / max(num_steps - warmup, 1)
    if schedule.decay == "cosine":
        return 0.5 * (1 - math.cos(math.pi * remaining))
    return remaining if schedule.decay == "linear" else 1.0


def _refuse_divergence(step: Step, lr: float, num_steps: int) -> None:
    for what, value in {"loss": step.loss, "validation loss": step.validation_loss}.items():
        if value is not None and not math.isfinite(value):
            raise Diverged(
                f"lr: training diverged at {lr:g}, the {what} of step {step.step} of {num_steps} "
                f"is {value}; lower it, or max_grad_norm"
            )


def add_gradients(
    model: nn.Module,
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
    apart = model.no_sync if isinstance(model, DistributedDataParallel) else nullcontext
    losses = list[Tensor]()
    for number, batch in enumerate(micro_batches, start=1):
        if dropout_seeds:
            # ``torch.manual_seed`` would queue a call for each kind of device in every step.
            torch.default_generator.manual_seed(dropout_seeds[number - 1])
            if device.device == "cuda":
                torch.cuda.manual_seed(dropout_seeds[number - 1])
        # Gradients are summed over the ranks once a step.
        with apart() if number < len(micro_batches) else nullcontext():
            loss = sum(
                weight * loss_sum / num_targets
                for weight, loss_sum, num_targets in _terms(model, criterion, batch, device, totals)
            )
            assert isinstance(loss, Tensor)
            (loss * ranks.number).backward()  # torch takes the mean over the ranks, not the sum
        losses.append(loss.detach())
    return losses


@torch.no_grad()
def mean_loss(
    model: ModelWithHead, criterion: Criterion, batches: list[Batch], device: Device
) -> float:
    """Returns the loss of all batches as if they were one; leaves the model in evaluation mode."""
    model.eval()
    totals = count_targets(batches)
    terms = [term for batch in batches for term in _terms(model, criterion, batch, device, totals)]
    values = _values([loss_sum for _, loss_sum, _ in terms])
    return math.fsum(w / n * value for (w, _, n), value in zip(terms, values, strict=True))


def _terms(
    model: nn.Module,
    criterion: Criterion,
    batch: Batch,
    device: Device,
    totals: Mapping[str, float],
) -> Iterator[tuple[float, Tensor, float]]:
    """Yields the weight of each term of a batch's loss, its sum over targets, and the number of
    these targets in all batches (at least 1).

    Raises TypeError for a term that ``collate`` does not count.
    """
    moved = batch.to(device.torch)
    if device.compile:
        moved.declare_changing_sizes()
    with device.autocast():
        terms: Mapping[str, tuple[float, Tensor]] = model(criterion.loss, moved)
    for term, (weight, loss_sum) in terms.items():
        if term not in totals:
            counted, file = ", ".join(totals) or "nothing", file_of(type(criterion))
            raise TypeError(f"{file}: loss has {term!r}, but num_targets counts {counted}")
        yield weight, loss_sum, max(totals[term], 1)


def _values(losses: Sequence[Tensor]) -> list[float]:
    """Returns the values of scalars in one copy to the host, since every copy waits for the
    device."""
    return torch.stack([loss.double() for loss in losses]).tolist()


def count_targets(batches: list[Batch]) -> dict[str, int]:
    """The number of targets of each term over all batches."""
    totals = Counter[str]()
    for batch in batches:
        totals.update(batch.num_targets)
    return dict(totals)


def _prefetched(
    data: Data, start: int, num_steps: int, widest: int
) -> Generator[list[Batch], None, None]:
    """Yields the micro-batches of each step, and meanwhile makes those of the next step; in few
    widths unless ``widest`` is 0."""

    def micro_batches(step: int) -> list[Batch]:
        with in_few_widths(widest):
            return data.micro_batches(step)

    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(micro_batches, start)
        for step in range(start, num_steps):
            ready = coming.result()
            if step + 1 < num_steps:
                coming = pool.submit(micro_batches, step + 1)
            yield ready
