"""Training at each learning rate of a trial, and the epoch that is best on validation."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from stages.core.params import Adaptation
from stages.evaluation.records import EpochRecord
from stages.methods._method import TrainedMethod
from stages.models._heads import ModelWithHead
from stages.tasks._task import Example, Task
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import Diverged, Step, train
from stages.trials.best_epoch import BestEpoch, Patience, still_improving
from stages.trials.outcome import Fit, at_edge
from stages.trials.validation import Validated


@dataclass(frozen=True)
class Found:
    """The model with the weights that are best on validation, and how they were found."""

    model: ModelWithHead
    fit: Fit
    threshold: float
    epochs: list[EpochRecord]  # of all learning rates
    flops: int  # of these


def search(
    start: Callable[[], ModelWithHead],
    validate: Callable[[ModelWithHead], Validated],
    method: TrainedMethod,
    task: Task,
    examples: Sequence[Example],
    *,
    settings: Adaptation,
    metric: str,
    trial: dict[str, Any],  # the columns of a record that say which trial it is
    seed: int,  # of the order of examples and of dropout
    device: Device,
) -> Found:
    """Train from the same start at each learning rate; keep the best epoch of all.

    Raises ValueError if training diverges at every rate before the end of an epoch.
    """
    data = FinetuningData(examples, task, batch_examples=settings.batch_examples, seed=seed)
    best, epochs, flops = BestEpoch(metric), list[EpochRecord](), 0
    model = None
    for lr in settings.rates:
        model = start()
        history, frozen = list[Step](), [*method.frozen(model, 0)]
        patience = Patience(settings, metric, num_examples=len(examples))
        steps = train(
            model,
            task,
            data,
            settings.at(lr),
            num_steps=settings.max_epochs(len(examples)) * data.steps_per_epoch,
            seed=seed,
            device=device,
            history=history,
            frozen=frozen,
        )
        try:
            with closing(steps):
                for step in steps:
                    epoch, rest = divmod(step.step, data.steps_per_epoch)
                    if rest:
                        continue
                    found = validate(model)
                    step.validation_loss = found.loss
                    if not math.isfinite(found.loss):
                        continue  # to where training refuses it
                    epochs.append(
                        EpochRecord(
                            **trial,
                            lr=lr,
                            epoch=epoch,
                            train_loss=_mean_loss(history[-data.steps_per_epoch :]),
                            validation_metric=found.value,
                            validation_loss=found.loss,
                        )
                    )
                    best.update(model, epochs[-1], threshold=found.threshold)
                    if patience.is_over(epochs[-1]):
                        break
                    frozen[:] = method.frozen(model, epoch)
        except Diverged as error:
            if not epochs and lr == settings.rates[-1]:
                raise ValueError(f"finetune.methods.{trial['method']}.training.{error}") from None
        flops += sum(step.flops for step in history)
    assert model is not None, "there is at least one rate"
    best.restore(model)  # the models of the rates differ only in trained weights
    curve = [epoch for epoch in epochs if epoch.lr == best.lr]
    return Found(model, _fit(settings, len(examples), best, curve), best.threshold, epochs, flops)


def _mean_loss(steps: Sequence[Step]) -> float:
    return sum(step.loss for step in steps) / len(steps)


def _fit(
    settings: Adaptation, num_examples: int, best: BestEpoch, curve: Sequence[EpochRecord]
) -> Fit:
    """How training went at the rate that was kept, whose epochs are ``curve``."""
    return Fit(
        lr=best.lr,
        best_epoch=best.epoch,
        num_epochs=len(curve),
        num_steps=len(curve) * settings.steps_per_epoch(num_examples),
        last_train_loss=curve[-1].train_loss,
        best_is_last=int(best.epoch == len(curve)),
        chosen_in_warmup=int(best.epoch <= settings.warmup_epochs(num_examples)),
        still_improving=int(still_improving(curve, best.epoch)),
        num_tries=len(settings.rates),
        at_edge=at_edge(best.lr, settings.rates),
    )
