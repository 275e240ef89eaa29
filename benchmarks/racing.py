"""How often a race for fine-tuning seeds loses the best run, what it saves, and what it does to
intervals, in simulated studies: benchmarks/racing.md.

    python -m benchmarks.racing > benchmarks/racing.md    # some minutes

Merits of C candidates are normal over seeds: a mean of each, what a seed has in common for all
(half a standard deviation), and the candidate's own noise, of one standard deviation unless said
otherwise. The race sees validation scores; intervals are t intervals of test scores of the seeds
that it gave. Test and validation are equal unless said otherwise: the worst case for intervals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy import special

from stages.evaluation.racing import race

STUDIES, FIRST, MOST, CONFIDENCE = 1000, 3, 10, 0.95


@dataclass(frozen=True)
class Design:
    name: str
    means: Sequence[float]  # the best first
    spreads: Sequence[float] = field(default=(1.0,))
    failing: float = 0.0  # the share of trainings that fall by so many standard deviations
    fall: float = 5.0
    reliable: int = 0  # candidates whose trainings do not, the first ones
    rows: float = 0.0  # of the mean on these validation rows: its standard deviation over rows
    correlation: float = 1.0  # of a trial's noise on validation with that on test


TIED = [0.0] * 8
DESIGNS = [
    Design("8 tie", TIED),
    Design("1 is ahead by 0.5", [0.5, *TIED[1:]]),
    Design("1 is ahead by 0.5, and 3 times as noisy", [0.5, *TIED[1:]], [3.0] + [1.0] * 7),
    Design("8, each 1 behind the last", [-1.0 * i for i in range(8)]),
    Design(
        "the same, test and validation correlate by .5",
        [-1.0 * i for i in range(8)],
        rows=0.0,
        correlation=0.5,
    ),
    Design("the same, 1 training of 10 fails", [-1.0 * i for i in range(8)], failing=0.1),
    Design("the same, few validation rows (1)", [-1.0 * i for i in range(8)], rows=1.0),
    Design("16, each 0.7 behind the last", [-0.7 * i for i in range(16)]),
    Design("4 tie, 4 are 10 behind", [0.0] * 4 + [-10.0] * 4),
    *(
        Design(
            f"1 before {rivals} that fall by 15 in 1 of 10 trainings, 0.5 behind in the mean",
            [0.0] + [-0.5] * rivals,
            failing=0.1,
            fall=15.0,
            reliable=1,
        )
        for rivals in (1, 7)
    ),
]


def main() -> None:
    found = pd.DataFrame(simulated(design) for design in DESIGNS)
    print(f"# A race for fine-tuning seeds\n\n{__doc__}")
    print(f"{STUDIES:,} studies each, {FIRST} seeds for all and up to {MOST}.\n")
    print(found.to_markdown(index=False, disable_numparse=True))
    print(
        "\n- best lost: the share of studies in which the first candidate is out.\n"
        "- intervals: the share that hold the truth, of all candidates after the race and with the "
        f"{MOST} seeds that all would have; of those that are out; and of the candidate with the "
        "best mean, which is favoured by chance in both.\n"
        "- bias: of the mean of those that are out, in standard deviations of a trial."
    )


def simulated(design: Design) -> dict[str, str]:
    rng = np.random.default_rng(1)
    studies = [*_studies(design, rng)]
    names = ("lost", "saved", "raced", "fixed", "out", "best", "best_fixed", "bias")
    mean = {name: _mean([study[name] for study in studies]) for name in names}
    return {
        "candidates": design.name,
        "best lost": f"{mean['lost']:.1%}",
        "seeds saved": f"{mean['saved']:.0%}",
        "intervals": f"{mean['raced']:.1%}",
        "fixed": f"{mean['fixed']:.1%}",
        "out": f"{mean['out']:.1%}",
        "best": f"{mean['best']:.1%}",
        "best, fixed": f"{mean['best_fixed']:.1%}",
        "bias": f"{mean['bias']:+.2f}",
    }


def _studies(design: Design, rng: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
    means = np.array(design.means)
    number = len(means)
    spreads = np.broadcast_to(np.array(design.spreads), number)
    failing = np.where(np.arange(number) < design.reliable, 0.0, design.failing)[:, None]

    def noise() -> np.ndarray:
        fallen = rng.random((number, MOST)) < failing
        return rng.normal(size=(number, MOST)) - design.fall * (fallen - failing)

    for _ in range(STUDIES):
        own, shared = noise(), 0.5 * rng.normal(size=MOST)
        rest = np.sqrt(1 - design.correlation**2)
        other = design.correlation * own + (rest * noise() if rest else 0.0)
        validation = means[:, None] + shared + spreads[:, None] * own
        validation += design.rows * rng.normal(size=(number, 1))
        test = means[:, None] + shared + spreads[:, None] * other
        result = race(
            number, lambda s, left, v=validation: v[left, s].tolist(), first=FIRST, most=MOST
        )
        out = np.array([i not in result.won for i in range(number)])
        counts = np.array(result.seeds)
        raced, fixed = _held(test, counts, means), _held(test, np.full(number, MOST), means)
        of_raced = np.array([test[i, :n].mean() for i, n in enumerate(counts)])
        yield {
            "lost": out[:1],
            "saved": 1 - counts / MOST,
            "raced": raced,
            "fixed": fixed,
            "out": raced[out],
            "best": raced[[of_raced.argmax()]],
            "best_fixed": fixed[[test.mean(axis=1).argmax()]],
            "bias": (of_raced - means)[out],
        }


def _held(test: np.ndarray, counts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Whether the t interval of the first ``counts`` seeds holds the mean."""
    found = np.zeros(len(means), dtype=bool)
    for i, n in enumerate(counts):
        some = test[i, :n]
        half = -special.stdtrit(n - 1, (1 - CONFIDENCE) / 2) * some.std(ddof=1) / np.sqrt(n)
        found[i] = abs(some.mean() - means[i]) <= half
    return found


def _mean(parts: Sequence[np.ndarray]) -> float:
    every = np.concatenate(parts)
    return float(every.mean()) if len(every) else np.nan


if __name__ == "__main__":
    main()
