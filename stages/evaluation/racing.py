"""Which candidates get another seed: all whose interval still reaches the best one's.

Successive elimination (Even-Dar, Mannor and Mansour 2006) as a race with paired t tests (Maron and
Moore 1997; Birattari et al. 2002). After each seed a candidate is out if one that is left is better
by a one-sided paired t test. The error rate is divided by the number of other candidates and by the
number of tests in the race (Bonferroni), so that the candidate with the best expected merit stays
with a probability of at least 1 - ``error_rate``, whatever the spread of each and however they vary
together, if differences between two candidates are normal over seeds. Simulated in
benchmarks/racing.md, with what it does to intervals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from stages.evaluation.variance import NO_SPREAD

ERROR_RATE = 0.05
FEWEST = 3  # seeds before a candidate may be out: two say nothing of their spread


@dataclass(frozen=True)
class Race:
    """``seeds`` of each candidate, which are the first ones of all."""

    seeds: tuple[int, ...]
    won: tuple[int, ...]  # the candidates that were never out


def beaten(
    merits: Float[np.ndarray, "C n"], *, error_rate: float, num_tests: int
) -> Bool[np.ndarray, " C"]:
    """Which of C candidates are worse than another one of them, by n seeds that all have; more is
    better. ``error_rate`` is of all ``num_tests`` tests that a candidate takes part in.

    Candidates that differ by the same amount with every seed show no spread: seeds that agree
    are no evidence of a spread of 0, and nobody is out by them.
    """
    number, num_seeds = merits.shape
    if number < 2 or num_seeds < FEWEST:
        return np.zeros(number, dtype=bool)
    ahead = merits[:, None] - merits  # [other, candidate, seed]
    error = ahead.std(axis=2, ddof=1) / np.sqrt(num_seeds)
    limit = -special.stdtrit(num_seeds - 1, error_rate / num_tests)
    return ((ahead.mean(axis=2) > limit * error) & (error > NO_SPREAD)).any(axis=0)


def race(
    num_candidates: int,
    merits_of: Callable[[int, Sequence[int]], Sequence[float]],
    *,
    first: int,
    most: int,
    error_rate: float = ERROR_RATE,
) -> Race:
    """``merits_of(seed, candidates)`` are the merits of these candidates with the seed of that
    number, from 0. All get the ``first`` seeds; those that are left get one after the other, until
    one is left or they have ``most``.
    """
    left, merits = [*range(num_candidates)], np.empty((num_candidates, 0))
    num_tests = max((num_candidates - 1) * (most - max(first, FEWEST)), 1)
    seeds = [0] * num_candidates
    for seed in range(most):
        if seed >= first:
            out = beaten(merits[left], error_rate=error_rate, num_tests=num_tests)
            left = [each for each, is_out in zip(left, out, strict=True) if not is_out]
            if len(left) < 2:
                break
        column = np.full(num_candidates, np.nan)
        column[left] = merits_of(seed, left)
        merits = np.column_stack([merits, column])
        for each in left:
            seeds[each] += 1
    return Race(tuple(seeds), tuple(left))
