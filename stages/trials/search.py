"""The search of a trial: trains at each learning rate, and keeps the best rate and epoch."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean

from stages.core.artifacts import Json
from stages.core.keys import TrialKey
from stages.core.params import Adaptation
from stages.evaluation.records import EpochRecord
from stages.methods._method import TrainedMethod
from stages.models._heads import ModelWithHead
from stages.tasks._task import Example, Task
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
from stages.trials.validation import Validated


@dataclass(frozen=True)
class Searched:
    """The model with the weights that are kept, and how training went."""

    model: ModelWithHead
    kept: Validated  # the validation of the epoch that is kept
    fit: Json  # fields of ``TrialRecord``
    epochs: list[EpochRecord]  # of all learning rates


def at_edge(chosen: float, tried: Sequence[float]) -> int | None:
    """Returns 1 if the chosen value is the smallest or largest of several values tried, so that a
    better one may lie beyond them, else 0; None if only one value was tried."""
    return int(chosen in (min(tried), max(tried))) if len(tried) > 1 else None


def search(
    start: Callable[[], ModelWithHead],
    validate: Callable[[ModelWithHead], Validated],
    method: TrainedMethod,
    task: Task,
    examples: Sequence[Example],
    *,
    settings: Adaptation,
    metric: str,
    key: TrialKey,
    seed: int,  # for the order of examples and for dropout
    device: Device,
) -> Searched:
    """Trains from the same start at each learning rate, and keeps the best epoch of all rates. If
    ``patience`` is ``none``, only the last epoch of each rate can be kept.

    Raises ValueError if training at every rate diverges before an epoch that can be kept.
    """
    data = FinetuningData(
        examples,
        task,
        batch_examples=settings.batch_examples,
        seed=seed,
        few_widths=device.device == "cuda",
    )
    num_epochs = max_epochs(settings, len(examples))
    best, epochs, flops = BestEpoch(metric), list[EpochRecord](), 0
    model, reason = None, "lr: the validation loss is not finite"
    for lr in settings.rates:
        model = start()
        history, frozen = list[Step](), [*method.frozen(model, 0)]
        patience = Patience(settings, metric, num_examples=len(examples))
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
                            **key._asdict(),
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
        flops += sum(step.flops for step in history)
    assert model is not None, "there is at least one rate"
    if not best.epoch:
        raise ValueError(f"finetune.methods.{key.method}.training.{reason}")
    best.put_into(model)  # the models of the rates differ only in trained weights
    curve = [epoch for epoch in epochs if epoch.lr == best.lr]
    kept = next(epoch for epoch in curve if epoch.epoch == best.epoch)
    # Some weights are still frozen in the last epoch if there are fewer epochs than layers.
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    trained -= sum(weight.numel() for weight in method.frozen(model, len(curve) - 1))
    fit = {
        "num_trained_params": trained,
        "finetune_flops": flops,
        "lr": best.lr,
        "best_epoch": best.epoch,
        "num_epochs": len(curve),
        "num_steps": len(curve) * steps_per_epoch(settings, len(examples)),
        "last_train_loss": curve[-1].train_loss,
        "best_is_last": int(best_on_validation(curve, metric) == curve[-1].epoch),
        "chosen_in_warmup": int(best.epoch <= warmup_epochs(settings, len(examples))),
        "still_improving": int(still_improving(curve, metric)),
        "num_tries": len(settings.rates),
        "at_edge": at_edge(best.lr, settings.rates),
    }
    validated = Validated(kept.validation_metric, kept.validation_loss, best.threshold)
    return Searched(model, validated, fit, epochs)
