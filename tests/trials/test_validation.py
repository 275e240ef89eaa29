"""The epoch that is kept, when training ends, and the threshold that is best on validation."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.core.params import Adaptation
from stages.core.seeding import stream
from stages.evaluation.metrics import score
from stages.evaluation.records import EpochRecord
from stages.tasks._task import Predicted
from stages.training.finetuning import max_epochs, steps_per_epoch, warmup_epochs
from stages.trials.validation import at_edge, best_epoch, best_threshold, is_over, still_improving
from tests.trials.small_trials import TRAINING


def curve(
    metric: Sequence[float], loss: Sequence[float], train: Sequence[float] = ()
) -> list[EpochRecord]:
    key: dict[str, Any] = {"model": "run", "pretrain_seed": 1, "method": "full", "task": "tag"}
    key |= {"label_budget": "200", "finetune_seed": 1, "lr": 0.1}
    epochs = zip(metric, loss, train or [1.0] * len(metric), strict=True)
    return [
        EpochRecord(
            **key, epoch=i, train_loss=train, validation_metric=metric, validation_loss=loss
        )
        for i, (metric, loss, train) in enumerate(epochs, start=1)
    ]


def test_best_epoch_has_the_best_metric_and_of_equal_ones_the_lowest_loss() -> None:
    better = curve([0.1, 0.5, 0.5, 0.4], [0.2, 0.9, 0.8, 0.1])
    assert best_epoch(better, "entity_f1") == 3
    fewer = curve([3.0, 2.0, 2.0], [0.1, 0.8, 0.8])
    assert best_epoch(fewer, "bits_per_byte") == 2
    rates = [1e-4, 1e-3, 1e-2]
    assert [at_edge(rate, rates) for rate in rates] == [1, 0, 1] and at_edge(1, [1]) is None


def test_max_epochs_are_enough_for_the_steps_and_epochs() -> None:
    changes = {"num_epochs": 4, "batch_examples": 10, "warmup_fraction": 0.1, "min_steps": 500}
    few = Adaptation.model_validate(TRAINING | changes)
    assert (max_epochs(few, 200), max_epochs(few, 10_000)) == (25, 4)
    assert max_epochs(few, 195) * steps_per_epoch(few, 195) >= 500
    assert warmup_epochs(few, 200) == pytest.approx(2.5)


def ends(patience: int | str, epochs: Sequence[EpochRecord], *, warmup: float = 0) -> int | None:
    """Returns the epoch after which training ends, or None."""
    parts = (epochs[: i + 1] for i in range(len(epochs)))
    over = (p for p in parts if is_over(p, patience, "entity_f1", warmup=warmup))
    return next((part[-1].epoch for part in over), None)


def test_is_over_without_a_better_metric_or_loss_after_the_warm_up() -> None:
    worse = curve([0.1, 0.5, 0.4, 0.4, 0.4, 0.4], [1.0, 1.2, 0.9, 1.1, 1.2, 1.3])
    assert [ends(patience, worse) for patience in (2, 3, "none")] == [5, 6, None]
    rising = curve([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    assert ends(1, rising) is None
    flat = curve([0.0] * 10, [1.0] * 10)
    assert (ends(2, flat), ends(2, flat, warmup=3)) == (3, 5)


FALL, SLOW_FALL = ([1 + math.exp(-epoch / time) for epoch in range(12)] for time in (1, 12))
OVERFITTED = [0.66, 0.65, 1.24, 1.33], [0.72, 0.48, 0.17, 0.05]  # losses of validation and train


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        (curve([0.10, 0.20, 0.23, 0.26], [2.03, 1.88, 1.79, 1.74], [2.11, 1.76, 1.45, 1.25]), True),
        (curve([0.5], [1.0]), True),  # a single epoch shows no plateau
        # The best epoch is the last, but nothing is left to learn.
        (curve([0.1, 0.3, 0.4, 0.5], [1.8, 1.9, 2.1, 2.2], [2.0, 0.5, 0.05, 0.0]), False),
        (curve([0.62, 0.67, 0.68, 0.66], *OVERFITTED), False),
        (curve([0.62, 0.67, 0.68, 0.70], *OVERFITTED), True),
        (curve([0.5] * 12, FALL, FALL), False),  # what still falls may be noise
        (curve([0.5] * 12, SLOW_FALL, SLOW_FALL), True),
    ],
)
def test_still_improving_holds_for_training_that_ended_too_early(
    epochs: list[EpochRecord], expected: bool
) -> None:
    assert still_improving(epochs, "macro_f1") == expected


# Thresholds --------------------------------------------------------------------------------------

NOTHING = json.dumps([])


def mean(metric: str, gold: list[str], predicted: list[Predicted], threshold: float) -> float:
    return score(metric, gold, [each.at(threshold) for each in predicted])


def right(text: str) -> str:
    return json.dumps([text])


def test_best_threshold_of_two_questions() -> None:
    for gold, margins, expected in (
        ([right("sea"), NOTHING], [2.0, -4.0], 0.0),  # the nearest to 0 of equally good ones
        ([right("sea"), NOTHING], [9.0, 5.0], 7.0),
        ([NOTHING, NOTHING], [3.0, 5.0], math.inf),
        ([right("sea"), right("oak")], [-3.0, -math.inf], -math.inf),
        ([right("sea"), right("oak")], [None, None], 0.0),
    ):
        predicted = [Predicted(t, margin=m) for t, m in zip(("sea", "oak"), margins, strict=True)]
        assert best_threshold("squad_f1", gold, predicted) == expected


@pytest.mark.parametrize("metric", ["macro_f1", "matthews", "f1_of_rare"])
def test_best_threshold_of_two_labels_is_the_best_of_all(metric: str) -> None:
    """Rows of a rare label have margins that are higher by 2, but mostly below 0."""
    rng = stream(1, "margins")
    for number in (20, 150, 400):
        gold = ["rare" if draw < 0.1 else "usual" for draw in rng.random(number)]
        margins = rng.normal(size=number) + [-1.5 if label == "rare" else -3.5 for label in gold]
        predicted = [Predicted("rare", margin=m, otherwise="usual") for m in margins.tolist()]
        chosen = mean(metric, gold, predicted, best_threshold(metric, gold, predicted))
        best = max(mean(metric, gold, predicted, t) for t in [0.0, *margins, math.inf])
        # Only half of the 400 margins are compared.
        assert best - (0.02 if number == 400 else 1e-9) <= chosen <= best + 1e-9
        assert chosen >= mean(metric, gold, predicted, 0.0)


@pytest.mark.slow
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([right("sea"), right("oak tree"), NOTHING]),
            st.sampled_from(["sea", "oak", "elm", ""]),
            st.integers(-4, 4).map(float) | st.just(-math.inf),
        ),
        min_size=1,
        max_size=9,
    ),
    metric=st.sampled_from(["squad_f1", "exact_match"]),
)
@example([(NOTHING, "sea", -math.inf), (right("sea"), "sea", -1.0)], "squad_f1")
def test_best_threshold_is_at_least_as_good_as_all_others(rows, metric) -> None:
    gold = [answer for answer, _, _ in rows]
    predicted = [Predicted(text, margin=margin) for _, text, margin in rows]
    chosen = mean(metric, gold, predicted, best_threshold(metric, gold, predicted))
    others = [-math.inf, *(i / 2 for i in range(-10, 11)), math.inf]
    assert chosen == pytest.approx(max(mean(metric, gold, predicted, t) for t in others))
