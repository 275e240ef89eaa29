"""The search of a trial: trains at each learning rate, and keeps the best rate and epoch."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from torch import Tensor

from stages.core.artifacts import Json
from stages.core.params import Adaptation
from stages.evaluation.records import EpochRecord
from stages.methods._method import TrainedMethod
from stages.models._heads import ModelWithHead
from stages.tasks._task import Example, Task
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.finetuning import (
    FinetuningData,
    max_epochs,
    steps_per_epoch,
    warmup_epochs,
)
from stages.training.loop import Diverged, Step, train
from stages.trials.best_epoch import (
    BestEpoch,
    Patience,
    best_on_validation,
    still_improving,
)
from stages.trials.outcome import Fit, at_edge
from stages.trials.validation import Validated


@dataclass(frozen=True)
class Searched:
    """The model with the weights that are kept, and how training went."""

    model: ModelWithHead
    fit: Fit
    kept: Validated  # the validation of the epoch that is kept
    epochs: list[EpochRecord]  # of all learning rates
    flops: int  # of training at all learning rates


class DivergedAtEveryRate(ValueError):
    """Raised if there is no epoch to keep; the message begins with the setting to lower."""

    def __init__(self, reason: str, epochs: list[EpochRecord], flops: int) -> None:
        super().__init__(reason)
        self.epochs, self.flops = epochs, flops


def search(
    start: Callable[[], ModelWithHead],
    validate: Callable[[ModelWithHead], Validated],
    method: TrainedMethod,
    task: Task,
    examples: Sequence[Example],
    *,
    settings: Adaptation,
    metric: str,
    trial: dict[str, Any],  # the columns that identify the trial and its variant in a record
    seed: int,  # for the order of examples and for dropout
    device: Device,
    unfinished: Resumable,
) -> Searched:
    """Trains from the same start at each learning rate, and keeps the best epoch of all rates. If
    ``patience`` is ``none``, only the last epoch of each rate can be kept. Resumes from the state
    in ``unfinished``.

    Raises DivergedAtEveryRate if training at every rate diverges before an epoch that can be kept.
    """
    data = FinetuningData(
        examples,
        task,
        batch_examples=settings.batch_examples,
        seed=seed,
        few_widths=device.device == "cuda",
    )
    num_epochs = max_epochs(settings, len(examples))
    so_far = _SoFar(BestEpoch(metric))
    best, epochs = so_far.best, so_far.epochs
    model, reason = None, "lr: the validation loss is not finite"
    for lr, state in so_far.go_on(settings.rates, unfinished):
        model = start()
        done = [epoch for epoch in epochs if epoch.lr == lr]
        history, frozen = list[Step](), [*method.frozen(model, len(done))]
        patience = Patience(settings, metric, num_examples=len(examples))
        for epoch in done:
            patience.is_over(epoch)
        steps = train(
            model,
            task,
            data,
            settings.at(lr),
            num_steps=num_epochs * data.steps_per_epoch,
            seed=seed,
            device=device,
            history=history,
            frozen=frozen,
            resumable=state,
        )
        try:
            with closing(steps):
                for step in steps:
                    epoch, rest = divmod(step.step, data.steps_per_epoch)
                    if rest:
                        continue
                    validated = validate(model)
                    step.validation_loss = validated.loss
                    if not math.isfinite(validated.loss):
                        continue  # ``train`` raises Diverged next
                    of_epoch = history[-data.steps_per_epoch :]
                    epochs.append(
                        EpochRecord(
                            **trial,
                            lr=lr,
                            epoch=epoch,
                            train_loss=fmean(step.loss for step in of_epoch),
                            validation_metric=validated.value,
                            validation_loss=validated.loss,
                        )
                    )
                    if settings.patience != "none" or epoch == num_epochs:
                        best.update(model, epochs[-1], threshold=validated.threshold)
                    if patience.is_over(epochs[-1]):
                        break
                    frozen[:] = method.frozen(model, epoch)
        except Diverged as error:
            reason = str(error)
        so_far.flops += sum(step.flops for step in history)
    assert model is not None, "there is at least one rate"
    if not best.epoch:
        reason = f"finetune.methods.{trial['method']}.training.{reason}"
        raise DivergedAtEveryRate(reason, epochs, so_far.flops)
    best.put_into(model)  # the models of the rates differ only in trained weights
    curve = [epoch for epoch in epochs if epoch.lr == best.lr]
    kept = next(epoch for epoch in curve if epoch.epoch == best.epoch)
    return Searched(
        model,
        _fit(settings, len(examples), best, curve),
        Validated(kept.validation_metric, kept.validation_loss, best.threshold),
        epochs,
        so_far.flops,
    )


@dataclass
class _SoFar:
    """The results of the learning rates so far, some perhaps from an interrupted process."""

    best: BestEpoch
    epochs: list[EpochRecord] = field(default_factory=list)  # of all rates
    flops: int = 0  # of the rates that are done

    def go_on(
        self, rates: Sequence[float], unfinished: Resumable
    ) -> Iterator[tuple[float, Resumable]]:
        """Yields each rate that is not done, with the state of its training. First restores the
        results of an interrupted process."""
        states = [unfinished.another(str(i), beside=self) for i in range(len(rates))]
        begun = max((i for i, state in enumerate(states) if state.exists()), default=None)
        if begun is not None:
            states[begun].restore_beside()
        yield from [*zip(rates, states, strict=True)][begun or 0 :]

    def state(self) -> tuple[Json, dict[str, Tensor]]:
        best, weights = self.best.state()
        epochs = [*map(asdict, self.epochs)]
        return {"best": best, "epochs": epochs, "flops": self.flops}, weights

    def restore(self, record: Json, tensors: dict[str, Tensor]) -> None:
        self.best.restore(record["best"], tensors)
        self.epochs[:] = [EpochRecord(**epoch) for epoch in record["epochs"]]
        self.flops = record["flops"]


def _fit(
    settings: Adaptation, num_examples: int, best: BestEpoch, curve: Sequence[EpochRecord]
) -> Fit:
    """Returns how training went at the rate of the kept epoch; ``curve`` has its epochs."""
    return Fit(
        lr=best.lr,
        best_epoch=best.epoch,
        num_epochs=len(curve),
        num_steps=len(curve) * steps_per_epoch(settings, num_examples),
        last_train_loss=curve[-1].train_loss,
        best_is_last=int(best_on_validation(curve, best.metric) == curve[-1].epoch),
        chosen_in_warmup=int(best.epoch <= warmup_epochs(settings, num_examples)),
        still_improving=int(still_improving(curve, best.metric)),
        num_tries=len(settings.rates),
        at_edge=at_edge(best.lr, settings.rates),
    )
