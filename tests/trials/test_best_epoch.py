"""The epoch that is kept, when training ends, and whether it ended too early."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from stages.core.params import Adaptation
from stages.evaluation.records import EpochRecord
from stages.models._heads import ModelWithHead
from stages.training.finetuning import max_epochs, steps_per_epoch, warmup_epochs
from stages.trials.best_epoch import (
    BestEpoch,
    Patience,
    best_on_validation,
    still_improving,
)
from tests.small import headless, small_model
from tests.trials.small_trials import TRAINING

SCHEDULE = TRAINING | {"num_epochs": 6, "batch_examples": 10, "warmup_fraction": 0.1}


def curve(
    metric: Sequence[float], loss: Sequence[float], train: Sequence[float] = ()
) -> list[EpochRecord]:
    return [
        EpochRecord(
            run="run",
            pretrain_seed=1,
            method="full",
            task="tag",
            label_budget="200",
            finetune_seed=1,
            lr=0.1,
            epoch=i + 1,
            train_loss=train[i] if train else 1.0,
            validation_metric=metric[i],
            validation_loss=loss[i],
        )
        for i in range(len(metric))
    ]


def kept(metric: str, epochs: Sequence[EpochRecord]) -> tuple[int, float]:
    """Returns the kept epoch, and the weight that the model had in it."""
    model: ModelWithHead = headless(small_model("encoder"))
    weight = next(model.parameters())
    best = BestEpoch(metric)
    for epoch in epochs:
        torch.nn.init.constant_(weight, epoch.epoch)
        best.update(model, epoch, threshold=0.0)
    best.put_into(model)
    return best.epoch, weight.flatten()[0].item()


def test_best_epoch_has_the_best_metric_and_of_equal_ones_the_lowest_loss() -> None:
    """Metrics have both directions. Of epochs with equal metric and loss, the first is best."""
    assert kept("entity_f1", curve([0.1, 0.5, 0.5, 0.4], [0.2, 0.9, 0.8, 0.1])) == (3, 3.0)
    assert kept("entity_f1", curve([0.5, 0.5, 0.5], [0.8, 0.8, 0.9])) == (1, 1.0)
    assert kept("bits_per_byte", curve([3.0, 2.0, 2.0], [0.1, 0.8, 0.7])) == (3, 3.0)


def settings(**changes: float | str) -> Adaptation:
    return Adaptation.model_validate(SCHEDULE | changes)


def test_max_epochs_are_enough_for_the_steps_and_epochs() -> None:
    few = settings(num_epochs=4, min_steps=500)
    assert (max_epochs(few, 200), max_epochs(few, 10_000)) == (25, 4)
    assert max_epochs(few, 195) * steps_per_epoch(few, 195) >= 500
    assert max_epochs(settings(num_epochs=4, min_steps=0), 200) == 4
    assert warmup_epochs(few, 200) == pytest.approx(2.5)


def stops(patience: int | str, epochs: Sequence[EpochRecord], **changes: float) -> int | None:
    """Returns the epoch after which training stops, or None."""
    waiting = Patience(settings(patience=patience, **changes), "entity_f1", num_examples=100)
    return next((epoch.epoch for epoch in epochs if waiting.is_over(epoch)), None)


def test_patience_ends_without_a_better_metric_or_loss() -> None:
    worse = curve([0.1, 0.5, 0.4, 0.4, 0.4, 0.4], [1.0, 1.2, 0.9, 1.1, 1.2, 1.3])
    assert stops(2, worse, warmup_fraction=0.0) == 5  # the loss was lowest in the third
    assert stops(3, worse, warmup_fraction=0.0) == 6
    assert stops("none", worse, warmup_fraction=0.0) is None
    rising = curve([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    assert stops(1, rising, warmup_fraction=0.0) is None


def test_patience_does_not_count_epochs_of_the_warm_up() -> None:
    flat = curve([0.0] * 10, [1.0] * 10)
    assert stops(2, flat, warmup_fraction=0.0) == 3
    # The rate rises in 3 of 6 epochs.
    assert stops(2, flat, warmup_fraction=0.5) == 5


# From scratch with 200 labels: all epochs of a schedule of 4, and 13 of a schedule of 20.
SHORT = curve([0.10, 0.20, 0.23, 0.26], [2.03, 1.88, 1.79, 1.74], [2.11, 1.76, 1.45, 1.25])
LONG = curve(
    [0.12, 0.22, 0.29, 0.35, 0.32, 0.36, 0.35, 0.43, 0.34, 0.34, 0.34, 0.33, 0.32],
    [2.02, 1.80, 1.68, 1.66, 1.96, 2.07, 2.23, 2.28, 2.51, 2.52, 2.54, 2.64, 2.71],
    [2.05, 1.68, 1.02, 0.66, 0.35, 0.19, 0.17, 0.08, 0.06, 0.02, 0.01, 0.00, 0.00],
)


def test_still_improving_holds_for_training_that_ended_too_early() -> None:
    assert still_improving(SHORT, "macro_f1")
    assert not still_improving(LONG, "macro_f1")
    late = [*LONG[:-1], replace(LONG[-1], validation_metric=0.5)]
    assert not still_improving(late, "macro_f1")  # on a plateau, any epoch may be the best
    assert still_improving(curve([0.5], [1.0]), "macro_f1")  # a single epoch shows no plateau


def test_still_improving_is_false_for_what_grows_worse_on_validation() -> None:
    """In a measured curve of 1,000 labels, the training loss falls to the end, but the validation
    loss rises after the second epoch and the metric falls after the third."""
    overfitted = curve([0.62, 0.67, 0.68, 0.66], [0.66, 0.65, 1.24, 1.33], [0.72, 0.48, 0.17, 0.05])
    assert best_on_validation(overfitted, "accuracy") == 3
    assert not still_improving(overfitted, "accuracy")
    better = [*overfitted[:-1], replace(overfitted[-1], validation_metric=0.70)]
    assert still_improving(better, "accuracy")
    # Lower bits per byte are better, so the second epoch is the best.
    assert best_on_validation(curve([3.0, 2.0, 2.5], [1, 1, 1]), "bits_per_byte") == 2


def test_still_improving_ignores_the_noise_of_the_loss() -> None:
    loss = [1 + math.exp(-epoch) for epoch in range(12)]
    assert not still_improving(curve([0.5] * 12, loss, loss), "macro_f1")
    slow = [1 + math.exp(-epoch / 12) for epoch in range(12)]
    assert still_improving(curve([0.5] * 12, slow, slow), "macro_f1")
