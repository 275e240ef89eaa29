"""How often intervals cover the true difference, in simulated studies: benchmarks/coverage.md.

Two runs are compared by the rows that they get right. A row is right if a normal variable exceeds
0: the sum of how easy the row is for all, and for a run; of the effects of the pretraining seed, of
the fine-tuning seed and of the drawn labels, which both runs share; and of what a checkpoint and a
trial make of the row. So predictions are correlated, seeds are nested, and labels and rows are
paired, as in a study.

    python -m benchmarks.coverage > benchmarks/coverage.md    # about 5 minutes
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy import special

from stages.core.seeding import stream
from stages.evaluation.row_scores import row_scores
from stages.evaluation.statistics import difference, mean
from stages.evaluation.variance import Sample, added, of_rows

CONFIDENCE = 0.95
SIMULATIONS, FEWER, FEWEST = 1000, 250, 100
RESAMPLES = 400
EASE = 0.3  # of a row on average: about 60 % are right
ROW, ROW_OF_RUN, ROW_OF_CHECKPOINT, ROW_OF_TRIAL = 1.0, 0.4, 0.5, 0.5  # standard deviations
OTHERS = 10  # groups of a study, whose seeds vary less where the variances are unequal
LABELS = ["a", "b", "c", "d"]
FREQUENCIES = [0.4, 0.3, 0.2, 0.1]


@dataclass(frozen=True)
class Design:
    """A study of two runs. ``spread`` is the standard deviation of the pretraining seed's effect
    on the normal variable; those of fine-tuning and of labels are ``finetuning`` and ``labels``
    times that. Where 0.05 is 1.4 points of accuracy, rows are 1.3 points (600 rows)."""

    pretrain_seeds: int
    finetune_seeds: int
    rows: int
    spread: float
    metric: str = "accuracy"
    finetuning: float = 0.7
    labels: float = 1.0
    first_spread: float = 1.0  # times ``spread``, in the first run
    second_spread: float = 1.0
    shift: float = 0.0  # of the first run's normal variable
    scratch: bool = False  # the second run: each trial has its own weights
    same_checkpoints: bool = False


def drawn(design: Design, rng: np.random.Generator) -> tuple[Sample, Sample]:
    """The trials of two runs."""
    seeds, again, num = design.pretrain_seeds, design.finetune_seeds, design.rows

    def normal(spread: float, *shape: int) -> np.ndarray:
        return spread * rng.standard_normal(shape, dtype=np.float32)

    easy, labels = EASE + normal(ROW, num), normal(design.labels * design.spread, seeds, again, 1)
    shared = normal(design.spread, seeds, 1, 1) + normal(ROW_OF_CHECKPOINT, seeds, 1, num)
    gold = rng.choice(LABELS, num, p=FREQUENCIES)
    wrong = rng.choice(LABELS, num)
    keys = tuple((p, f) for p in range(seeds) for f in range(again))
    samples = []
    for side, times in enumerate((design.first_spread, design.second_spread)):
        scratch = bool(side and design.scratch)
        of_seed = normal(times * design.spread, seeds, again if scratch else 1, 1)
        of_seed = of_seed + normal(ROW_OF_CHECKPOINT, seeds, again if scratch else 1, num)
        if design.same_checkpoints:
            of_seed = shared
        of_trial = normal(times * design.finetuning * design.spread, seeds, again, 1)
        of_trial = of_trial + normal(ROW_OF_TRIAL, seeds, again, num)
        ease = easy + normal(ROW_OF_RUN, num) + labels + of_seed + of_trial
        right = (ease + (0 if side else design.shift) > 0).reshape(len(keys), num)
        rows = right.astype(np.float32)
        if design.metric != "accuracy":
            answers = np.where(right, gold, wrong)
            rows = np.array([row_scores(design.metric, [*gold], [*each]) for each in answers])
        values = rows.mean(axis=1, dtype=float)
        samples.append(Sample(keys, values, rows, "none" if scratch else "pretrained here"))
    return samples[0], samples[1]


def true_difference(design: Design) -> float | None:
    """Of accuracy; None if it is to be estimated."""
    if design.metric != "accuracy":
        return None if design.shift else 0.0
    found = []
    for shift, times in ((design.shift, design.first_spread), (0.0, design.second_spread)):
        of_seeds = times**2 * (1 + design.finetuning**2) + design.labels**2
        if design.same_checkpoints:
            of_seeds += 1 - times**2
        of_rows = ROW**2 + ROW_OF_RUN**2 + ROW_OF_CHECKPOINT**2 + ROW_OF_TRIAL**2
        found.append(special.ndtr((EASE + shift) / (of_rows + of_seeds * design.spread**2) ** 0.5))
    return float(found[0] - found[1])


Ends = tuple[float, float]


def intervals(
    a: Sample,
    b: Sample,
    weights: np.ndarray,
    rng: np.random.Generator,
    *,
    same_checkpoints: bool,
    usual: float,
) -> Iterator[tuple[str, Ends]]:
    """By the name of their method. ``usual``: the true variance between seeds of other groups."""
    ours = difference(a, b, same_checkpoints=same_checkpoints, confidence=CONFIDENCE)
    value, variance = ours.value, ours.variance
    assert variance is not None

    def around(quantile: float, total: float) -> Ends:
        half = float(quantile) * total**0.5
        return value - half, value + half

    def t(df: float) -> float:
        return float(special.stdtrit(df, (1 + CONFIDENCE) / 2))

    yield "ours", around(variance.half_width(CONFIDENCE), 1)
    parts = variance.between.units**2 / variance.between.df
    parts += variance.rows**2 / (variance.num_rows - 1)
    yield "Satterthwaite", around(t(variance.total**2 / parts), variance.total)
    pairs = a.minus(b).between(fixed_checkpoints=False)
    sides = [side.between(fixed_checkpoints=False) for side in (a, b)]
    both = added([side for side in sides if side])
    assert pairs is not None
    of_pairs = replace(variance, between=pairs)
    yield "ours, always paired", around(of_pairs.half_width(CONFIDENCE), 1)
    yield "ours, never paired", around(replace(variance, between=both).half_width(CONFIDENCE), 1)
    yield "seeds alone, paired t", around(t(pairs.df), pairs.units)
    yield "rows alone", around(t(variance.num_rows - 1), of_rows(a.row_means - b.row_means))
    # The variance between seeds from all groups of a study, as if it were the same in all.
    more = OTHERS * (a.num_checkpoints - 1)
    df = both.df + more
    pooled = (both.df * both.units + usual * rng.chisquare(more)) / df
    yield "pooled over groups", around(t(df), pooled + variance.rows)
    yield from multi_bootstrap(a, b, weights, rng, value)


def multi_bootstrap(
    a: Sample, b: Sample, weights: np.ndarray, rng: np.random.Generator, value: float
) -> Iterator[tuple[str, Ends]]:
    """Seeds and rows are drawn again together (Sellam et al. 2022, algorithm 1)."""
    number = a.num_checkpoints
    # The scores of each checkpoint on each resample of the rows.
    one, other = (side.rows.reshape(number, -1, side.rows.shape[1]).mean(1) for side in (a, b))
    one, other = weights @ one.T, weights @ other.T
    seeds, more = (
        rng.multinomial(number, np.full(number, 1 / number), size=len(weights)) / number
        for _ in range(2)
    )
    for name, second in (("paired", seeds), ("unpaired", more)):
        found = (one * seeds).sum(1) - (other * second).sum(1)
        low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        yield f"Multi-Bootstrap, {name}, percentiles", (float(low), float(high))
        for kind, df in (("normal", np.inf), ("t", number - 1)):
            half = float(special.stdtrit(df, (1 + CONFIDENCE) / 2) * found.std())
            yield f"Multi-Bootstrap, {name}, {kind}", (value - half, value + half)


@dataclass(frozen=True)
class Measured:
    coverage: float
    width: float  # mean


def simulate(design: Design, simulations: int) -> Mapping[str, Measured]:
    """Method -> how often its interval holds the true difference, and how wide it is."""
    rng = stream(1, "coverage", repr(design))
    num = design.rows
    # The rows of each resample: independent of the data, and so the same for all simulations.
    draws = rng.multinomial(num, np.full(num, 1 / num), size=RESAMPLES)
    weights = draws.astype(np.float32) / num
    found: dict[str, list[Ends]] = defaultdict(list)
    values = []
    ordinary = replace(design, first_spread=1.0, second_spread=1.0)
    usual = float(np.mean([_units(*drawn(ordinary, rng)) for _ in range(simulations // 5)]))
    for _ in range(simulations):
        a, b = drawn(design, rng)
        values.append(a.mean - b.mean)
        alike = design.same_checkpoints
        for name, ends in intervals(a, b, weights, rng, same_checkpoints=alike, usual=usual):
            found[name].append(ends)
    exact = true_difference(design)
    truth = float(np.mean(values)) if exact is None else exact
    return {
        name: Measured(
            float(np.mean([low <= truth <= high for low, high in ends])),
            float(np.mean([high - low for low, high in ends])),
        )
        for name, ends in found.items()
    }


def _units(a: Sample, b: Sample) -> float:
    parts = [side.between(fixed_checkpoints=False) for side in (a, b)]
    return added([part for part in parts if part]).units


def coverage_of_means(design: Design, simulations: int) -> float:
    """Of the interval of one run's accuracy."""
    rng = stream(1, "coverage of means", repr(design))
    no_shift = replace(design, shift=8.0, second_spread=design.first_spread)
    truth = 1 - (true_difference(no_shift) or 0.0)  # with a shift of 8 all rows are right
    intervals = [mean(drawn(design, rng)[1], confidence=CONFIDENCE) for _ in range(simulations)]
    return float(np.mean([(i.low or 0) <= truth <= (i.high or 0) for i in intervals]))


SEEDS = ((2, 3), (3, 2), (5, 3), (10, 1))
DESIGNS = {
    **{
        f"{p} x {f} seeds, {rows} rows, spread {spread}": Design(p, f, rows, spread)
        for p, f in SEEDS
        for rows in (200, 1000, 5000)
        for spread in (0.01, 0.05, 0.15)
    },
    **{
        f"{p} x {f} seeds, 1000 rows, spread 0.05, {name}": replace(
            Design(p, f, 1000, 0.05), **changed
        )
        for p, f in SEEDS
        for name, changed in {
            "true difference": {"shift": 0.15},
            "other labels": {"labels": 0.0},
            "one side varies twice as much": {"first_spread": 2.0},
            "one side does not vary": {"second_spread": 0.0, "labels": 0.0},
            "against from scratch": {"scratch": True},
            "same checkpoints": {"same_checkpoints": True},
        }.items()
    },
    **{
        f"{p} x {f} seeds, {rows} rows, spread 0.05, macro-F1{name}": Design(
            p, f, rows, 0.05, metric="macro_f1", shift=shift
        )
        for p, f in ((2, 3), (3, 2), (5, 1))
        for rows in (200, 1000)
        for name, shift in (("", 0.0), (", true difference", 0.15))
    },
}


INTRODUCTION = """\
The share of 95% intervals, in percent, that hold the true difference of two runs, and in brackets
their mean width in points: of 1,000 simulated studies, of 250 with 5,000 rows or anything else that
is named, of 100 with macro-F1 of 1,000 rows. So 95 is good to 1.4, 2.8 or 4.4. Seeds are
pretraining x fine-tuning. Where there is no true difference, 100 minus the coverage is the rate of
false findings. `benchmarks/coverage.py` says how scores are drawn, and makes this table.

"Ours" is the interval of the report. "Satterthwaite" is the same with one number of degrees of
freedom. "Pooled" takes the variance of seeds from ten other groups, too, as if it were the same
in all. "Rows alone" is the
interval of a paired test on test rows. The Multi-Bootstrap is that of Sellam et al. 2022.
"""


def _simulations(design: Design) -> int:
    """Fewer where a simulation takes longer."""
    plain = Design(design.pretrain_seeds, design.finetune_seeds, design.rows, design.spread)
    if design.metric != "accuracy" and design.rows > 200:
        return FEWEST
    return SIMULATIONS if design == plain and design.rows <= 1000 else FEWER


def main() -> None:
    print(INTRODUCTION)
    least: dict[str, float] = {}
    for described, design in DESIGNS.items():
        found = simulate(design, _simulations(design))
        if not least:
            print("| study | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
        cells = [f"{100 * each.coverage:.1f} ({100 * each.width:.1f})" for each in found.values()]
        print(f"| {described} | {' | '.join(cells)} |", flush=True)
        least = {name: min(each.coverage, least.get(name, 1)) for name, each in found.items()}
    print(f"| the least | {' | '.join(f'{100 * each:.1f}' for each in least.values())} |")
    print("\nOf the interval of one run's mean:\n\n| seeds | spread | coverage |\n|---|---|---|")
    for (p, f), spread in product(SEEDS, (0.01, 0.05, 0.15)):
        covered = coverage_of_means(Design(p, f, 1000, spread), 2 * FEWER)
        print(f"| {p} x {f} | {spread} | {100 * covered:.1f} |", flush=True)


if __name__ == "__main__":
    main()
