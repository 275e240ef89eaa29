"""The race beside planted truths: how often it loses the best, what it saves, what is covered."""

import numpy as np
import pytest
from scipy import stats

from stages.evaluation.racing import ERROR_RATE, FEWEST, beaten, race

FIRST, MOST = 3, 10
STUDIES = 400


def races(means: list[float], sds: list[float] | None = None, *, error_rate: float = ERROR_RATE):
    """Of so many studies: the race and the merits of all seeds, which vary by ``sds`` (1) and by
    what all candidates share."""
    mean, sd = np.array(means), np.array(sds or [1.0] * len(means))
    rng = np.random.default_rng(7)
    for _ in range(STUDIES):
        shared = 0.5 * rng.normal(size=MOST)
        merits = mean[:, None] + shared + sd[:, None] * rng.normal(size=(len(mean), MOST))
        result = race(
            len(mean),
            lambda seed, left, merits=merits: merits[left, seed].tolist(),
            first=FIRST,
            most=MOST,
            error_rate=error_rate,
        )
        yield result, merits


def lost(means: list[float], sds: list[float] | None = None, **settings: float) -> float:
    """The share of studies that lose the first candidate."""
    return float(np.mean([0 not in result.won for result, _ in races(means, sds, **settings)]))


@pytest.mark.parametrize(
    ("means", "sds"),
    [
        ([0.0] * 8, None),  # the first one is as good as the best
        ([0.5] + [0.0] * 7, None),
        ([0.3, 0.0, 0.0, 0.0] + [-10.0] * 4, None),
        ([0.2] + [0.0] * 7, [4.0] + [1.0] * 7),
        ([0.2] + [0.0] * 7, [1.0] + [0.01] * 7),
    ],
)
def test_the_best_is_lost_no_more_often_than_is_said(
    means: list[float], sds: list[float] | None
) -> None:
    limit = stats.binom(STUDIES, ERROR_RATE).ppf(0.999) / STUDIES
    assert lost(means, sds) <= limit


def test_without_the_correction_it_would_be() -> None:
    """Else the test above would show nothing."""
    assert lost([0.0] * 8, error_rate=ERROR_RATE * 7 * (MOST - FIRST)) > 3 * ERROR_RATE


def test_seeds_go_to_those_that_may_be_the_best() -> None:
    """All of them where candidates tie, and to the best two of eight that differ clearly."""
    tied = [sum(result.seeds) for result, _ in races([0.0] * 8)]
    assert np.mean(tied) > 0.95 * 8 * MOST
    clear = [result.seeds for result, _ in races([0.0, -0.2, *[-8.0] * 6])]
    assert np.mean([sum(seeds[:2]) for seeds in clear]) > 0.95 * 2 * MOST
    assert np.mean([sum(seeds[2:]) for seeds in clear]) < 0.55 * 6 * MOST


def test_intervals_of_raced_seeds_hold_the_truth_as_those_of_a_fixed_number() -> None:
    means = [-1.0 * i for i in range(8)]

    limit = {n: float(stats.t(n - 1).ppf(0.975)) for n in range(FIRST, MOST + 1)}

    def holds(values: np.ndarray, truth: float) -> bool:
        error = values.std(ddof=1) / np.sqrt(len(values))
        return bool(abs(values.mean() - truth) <= limit[len(values)] * error)

    raced, fixed = list[bool](), list[bool]()
    for result, merits in races(means):
        raced += [holds(m[:n], t) for m, n, t in zip(merits, result.seeds, means, strict=True)]
        fixed += [holds(m, t) for m, t in zip(merits, means, strict=True)]
    assert np.mean(fixed) == pytest.approx(0.95, abs=0.015)
    assert np.mean(raced) == pytest.approx(0.95, abs=0.015)


def test_the_test_is_that_of_scipy() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        merits = rng.normal(size=(4, 6)) + np.array([[0.0], [1.0], [2.0], [3.0]])
        found = beaten(merits, error_rate=0.05, num_tests=10)
        for i in range(4):
            p = min(
                stats.ttest_rel(merits[j], merits[i], alternative="greater").pvalue
                for j in range(4)
                if j != i
            )
            assert found[i] == (p < 0.05 / 10)


def test_nobody_is_out_by_two_seeds_or_by_seeds_that_agree() -> None:
    far = np.array([[0.0, 0.1, 0.2], [90.0, 90.3, 90.1]])
    assert not beaten(far[:, : FEWEST - 1], error_rate=0.05, num_tests=1).any()
    assert beaten(far, error_rate=0.05, num_tests=1).tolist() == [True, False]
    assert not beaten(np.array([[0.0] * 3, [1.0] * 3]), error_rate=0.05, num_tests=1).any()
    assert not beaten(far[:1], error_rate=0.05, num_tests=1).any()


def test_a_race_ends_with_one_left_and_asks_only_for_those_that_are() -> None:
    asked = list[tuple[int, tuple[int, ...]]]()
    noise = np.random.default_rng(5).normal(size=(3, MOST))

    def merits_of(seed: int, left):
        asked.append((seed, tuple(left)))
        return [100.0 * each + noise[each, seed] for each in left]

    result = race(3, merits_of, first=FIRST, most=MOST)
    assert result.won == (2,) and max(result.seeds) < MOST
    for number, seeds in enumerate(result.seeds):
        assert sum(number in left for _, left in asked) == seeds
    assert race(1, lambda seed, left: [0.0], first=FIRST, most=MOST).seeds == (FIRST,)
    assert race(0, lambda seed, left: [], first=FIRST, most=MOST).seeds == ()


def test_seeds_that_agree_but_for_rounding_put_nobody_out() -> None:
    merits = np.array([[0.81, 0.82, 0.83], [0.79, 0.80, 0.81]])
    assert (merits[0] - merits[1]).std(ddof=1) > 0  # of rounding
    assert not beaten(merits, error_rate=0.05, num_tests=2).any()
