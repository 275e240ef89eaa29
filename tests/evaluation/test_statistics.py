import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stages.core.seeding import stream
from stages.evaluation.statistics import (
    AGREEING,
    FINETUNING,
    POWER,
    PRETRAINING,
    SINGLE,
    difference,
    holm,
    mean,
    seeds_needed,
)

Values = dict[int, dict[int, float]]
SIMULATIONS = 500


def draw(
    rng: np.random.Generator,
    num_pretrain: int,
    num_finetune: int,
    *,
    centre: float = 0.5,
    between: float = 0.02,
    within: float = 0.01,
    first_seed: int = 1,
) -> Values:
    """Scores that vary with the pretraining seed and, around that, with the fine-tuning seed."""
    return {
        seed: dict(enumerate(rng.normal(rng.normal(centre, between), within, num_finetune), 1))
        for seed in range(first_seed, first_seed + num_pretrain)
    }


def test_mean_by_hand() -> None:
    """Three values 1, 2, 3: mean 2, standard error 1/sqrt(3), t(0.975, 2) = 4.302653."""
    interval = mean({1: {1: 0.1, 2: 0.2, 3: 0.3}}, confidence=0.95)
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (interval.value, interval.low, interval.high) == pytest.approx(
        (0.2, 0.2 - half, 0.2 + half)
    )
    assert interval.basis == FINETUNING


def test_several_pretraining_seeds_count_once_each() -> None:
    """More fine-tuning of the same checkpoints says nothing new about pretraining."""
    few = {1: {1: 0.1}, 2: {1: 0.2}, 3: {1: 0.3}}
    many = {seed: dict.fromkeys(range(10), by_seed[1]) for seed, by_seed in few.items()}
    a, b = mean(few, confidence=0.95), mean(many, confidence=0.95)
    assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high))
    assert mean(few, confidence=0.95).basis == PRETRAINING


def test_a_shared_shift_per_seed_cancels_in_a_paired_difference() -> None:
    rng = stream(1, "shift")
    shifts = rng.normal(0, 0.2, 6)
    a = {1: {i: 0.5 + shift + rng.normal(0, 0.001) for i, shift in enumerate(shifts)}}
    b = {1: {i: 0.49 + shift for i, shift in enumerate(shifts)}}
    paired = difference(a, b, confidence=0.95)
    welch = difference(a, {1: {i + 10: v for i, v in b[1].items()}}, confidence=0.95)
    assert paired.test == "paired t" and paired.excludes_zero
    assert welch.test == "Welch's t" and not welch.excludes_zero
    assert paired.value == pytest.approx(welch.value)


def test_difference_agrees_with_scipy() -> None:
    rng = stream(1, "scipy")
    a, b = draw(rng, 4, 3), draw(rng, 5, 3, first_seed=10)
    x, y = ([np.mean(list(v.values())) for v in side.values()] for side in (a, b))
    expected: Any = stats.ttest_ind(x, y, equal_var=False)
    found = difference(a, b, confidence=0.9)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.9)))


def test_swapping_sides_flips_the_sign_and_nothing_else() -> None:
    rng = stream(1, "swap")
    a, b = draw(rng, 3, 3), draw(rng, 3, 3, centre=0.6)
    ab, ba = difference(a, b, confidence=0.95), difference(b, a, confidence=0.95)
    assert ab.low is not None and ab.high is not None
    assert (ba.value, ba.low, ba.high) == pytest.approx((-ab.value, -ab.high, -ab.low))
    assert ba.p_value == pytest.approx(ab.p_value)


def test_one_pretraining_seed_makes_no_claim_beyond_fine_tuning() -> None:
    rng = stream(1, "one")
    assert difference(draw(rng, 1, 5), draw(rng, 1, 5), confidence=0.95).basis == FINETUNING
    assert difference(draw(rng, 3, 5), draw(rng, 1, 5), confidence=0.95).basis == FINETUNING
    assert difference(draw(rng, 2, 5), draw(rng, 2, 5), confidence=0.95).basis == PRETRAINING


def test_one_trial_has_no_interval() -> None:
    one, five = {1: {1: 0.5}}, {1: dict(enumerate([0.1, 0.2, 0.3, 0.4, 0.5], 1))}
    for interval in (
        mean(one, confidence=0.95),
        difference(one, one, confidence=0.95),
        difference(one, five, confidence=0.95),
    ):
        assert (interval.low, interval.high, interval.p_value) == (None, None, None)
        assert interval.basis == SINGLE and not interval.excludes_zero


def test_seeds_that_agree_are_no_evidence_and_nothing_is_nan() -> None:
    same = {1: dict.fromkeys(range(5), 0.3)}
    other = {1: dict.fromkeys(range(5), 0.1)}
    shifted = {1: {i: 0.1 * i for i in range(5)}}, {1: {i: 0.1 * i + 0.2 for i in range(5)}}
    for interval in (
        mean(same, confidence=0.95),
        difference(same, other, confidence=0.95),
        difference(*shifted, confidence=0.95),
        difference(same, same, confidence=0.95),
    ):
        assert (interval.low, interval.high, interval.p_value) == (None, None, None)
        assert interval.basis == AGREEING and not interval.excludes_zero
    assert difference(*shifted, confidence=0.95).value == pytest.approx(-0.2)
    varied = {1: {i: 0.1 * i for i in range(5)}}  # one side that varies is enough for an interval
    assert difference(varied, same, confidence=0.95).low is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_pretrain, shared_seeds", [(2, True), (2, False), (3, False), (5, True), (10, False)]
)
def test_intervals_cover_the_true_difference(num_pretrain: int, shared_seeds: bool) -> None:
    """At least 93 % do, with unequal variances; so at most 7 % find what is not there."""
    rng = stream(1, "coverage", num_pretrain, int(shared_seeds))
    covered = 0
    for _ in range(SIMULATIONS):
        a = draw(rng, num_pretrain, 3, centre=0.53, between=0.03)
        b = draw(rng, num_pretrain, 3, first_seed=1 if shared_seeds else 50, between=0.01)
        interval = difference(a, b, confidence=0.95)
        assert interval.low is not None and interval.high is not None
        covered += interval.low <= 0.03 <= interval.high
    assert covered / SIMULATIONS >= 0.93


def test_after_correction_a_study_without_effects_rarely_finds_any() -> None:
    rng = stream(1, "false positives")
    found = 0
    for _ in range(SIMULATIONS // 5):
        group = [draw(rng, 3, 3, first_seed=10 * i) for i in range(8)]
        p = [
            difference(a, b, confidence=0.95).p_value
            for a, b in zip(group[::2], group[1::2], strict=True)
        ]
        found += min(holm([value for value in p if value is not None])) < 0.05
    assert found / (SIMULATIONS // 5) <= 0.09  # 5 % and two standard errors


def test_as_many_seeds_as_the_tables_say() -> None:
    """Of effects of 0.2, 0.5 and 0.8 standard deviations at 5 % and 80 % (Cohen 1988, tables 2.4.1
    for two samples and 2.3.5 for one, by G*Power)."""
    one, other = [-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]  # of deviation 1 each
    for effect, two_samples, paired in ((0.2, 394, 199), (0.5, 64, 34), (0.8, 26, 15)):
        assert seeds_needed(effect, [one, other], confidence=0.95) == two_samples
        assert seeds_needed(-effect, [one], confidence=0.95) == paired
    assert seeds_needed(0.0, [one], confidence=0.95) is None
    assert seeds_needed(1e-4, [one], confidence=0.95) is None
    assert seeds_needed(5.0, [one], confidence=0.95) == 3
    assert seeds_needed(0.8, [one], confidence=0.99) == 22


@pytest.mark.slow
def test_studies_of_so_many_seeds_find_the_effect_as_often_as_asked() -> None:
    rng, found = stream(1, "power"), 0
    needed = seeds_needed(0.9, [[-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]], confidence=0.95)
    assert needed is not None
    for _ in range(SIMULATIONS):
        a, b = ({1: dict(enumerate(rng.normal(m, 1, needed), at))} for m, at in ((0.9, 0), (0, 99)))
        found += difference(a, b, confidence=0.95).excludes_zero
    assert abs(found / SIMULATIONS - POWER) < 3 * (POWER * (1 - POWER) / SIMULATIONS) ** 0.5


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []
