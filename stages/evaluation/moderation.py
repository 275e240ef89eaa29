"""Moderated variances: the variances of a study's cells, estimated together.

With three seeds a cell has two degrees of freedom, too few to find anything but large effects. So
the variance of every contrast is shrunk towards the variance of comparable contrasts (Smyth 2004;
limma). Plain moderation exceeds its nominal error rate if some cells vary more than others; this
procedure does not. It was chosen by simulation (benchmarks/coverage.md):

- For one task, method and label budget, a seed draws the same labels in all runs. So seeds are
  paired, and the prior of a contrast is the mean variance of paired differences. For two runs this
  is twice the residual mean square of runs and seeds; for two methods or label budgets it is the
  mean over runs.
- The prior is multiplied by a factor of the run (for two runs, by the mean of their factors): how
  much more or less the run varies than others over all tasks, methods and label budgets. The factor
  is itself shrunk towards 1. So a run whose seeds vary widely does not borrow the others' small
  variance.
- The prior counts for at most 3 degrees of freedom, at most 1.5 times those of the contrast itself,
  and at most the number that the other runs have. With a single task it counts for half as many,
  because a run's factor then comes from the same trials whose variance it corrects: without the
  halving, up to 10 % of studies made false claims where one run varied widely.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from jaxtyping import Float

from stages.core.keys import CellKey
from stages.evaluation.statistics import Interval, are_paired, difference, mean
from stages.evaluation.variance import Prior, Sample

PRIOR_DF = 3.0  # most degrees of freedom of a prior
PRIOR_DF_PER_OWN = 1.5  # most of them per degree of freedom of the contrast itself
OF_ONE_TASK = 0.5  # multiplies the degrees of freedom of a prior if the study has one task
FACTOR_DF = 3.0  # weight of the value 1, towards which a run's factor is shrunk


Place = tuple[str, str, str]  # task, method and label budget of a CellKey


@dataclass(frozen=True, eq=False)
class _Table:
    """Scores, or differences of scores, of runs that have the same units."""

    runs: tuple[str, ...]
    values: Float[np.ndarray, "runs units"]

    @property
    def num_units(self) -> int:
        return self.values.shape[1]

    @cached_property
    def residuals(self) -> Float[np.ndarray, "runs units"]:
        """The values minus the means of runs and of units."""
        centred = self.values - self.values.mean(axis=1, keepdims=True)
        return centred - centred.mean(axis=0)

    @property
    def residual_mean_square(self) -> float:
        """The mean variance of a run between units, without the part that all runs share."""
        return float((self.residuals**2).sum()) / ((len(self.runs) - 1) * (self.num_units - 1))

    @property
    def residual_variances(self) -> Float[np.ndarray, " runs"]:
        """Each run's variance; unbiased for three or more runs, even if they vary unequally."""
        number = len(self.runs)
        squares = (self.residuals**2).sum(axis=1) / (self.num_units - 1)
        if number < 3:
            return squares * number / max(number - 1, 1)
        # A residual's variance is (1 - 1/n)^2 times its own run's and 1/n^2 times each other run's.
        total = squares.sum() * number / (number - 1)
        return np.maximum((squares - total / number**2) * number / (number - 2), 0.0)

    @cached_property
    def variances(self) -> Float[np.ndarray, " runs"]:
        return self.values.var(axis=1, ddof=1)


class Moderation:
    """Computes the intervals of means and differences of a study's cells."""

    def __init__(
        self, samples: Mapping[CellKey, Sample], *, baselines: Collection[str], confidence: float
    ) -> None:
        """``baselines`` names the baselines in ``samples``. Their variances are not shrunk towards
        those of runs."""
        self.samples, self.confidence = samples, confidence
        self._baselines = frozenset(baselines)
        self._differences_by_pair: dict[tuple[CellKey, CellKey], Interval] = {}
        self._to_baselines: dict[tuple[Place, CellKey], _Table | None] = {}

    # Intervals

    def mean(self, key: CellKey) -> Interval:
        """Returns the interval of the mean score of a cell."""
        prior = self._prior_of_mean(key)
        return mean(self.samples[key], confidence=self.confidence, prior=prior)

    def difference(self, a: CellKey, b: CellKey) -> Interval:
        """Returns the interval of the mean of ``a`` minus that of ``b``."""
        if (a, b) not in self._differences_by_pair:
            self._differences_by_pair[a, b] = difference(
                self.samples[a],
                self.samples[b],
                confidence=self.confidence,
                prior=self._prior(a, b),
                prior_a=self._prior_of_mean(a),
                prior_b=self._prior_of_mean(b),
            )
        return self._differences_by_pair[a, b]

    # Priors

    @cached_property
    def _runs(self) -> dict[Place, list[str]]:
        """The runs with at least two units, by task, method and label budget."""
        runs_by_place: dict[Place, list[str]] = defaultdict(list)
        for key, sample in self.samples.items():
            if key.run not in self._baselines and sample.num_units > 1:
                runs_by_place[key[1:]].append(key.run)
        return runs_by_place

    @cached_property
    def _tables(self) -> dict[Place, _Table]:
        return {
            place: table
            for place, runs in self._runs.items()
            if (table := self._table({run: self.samples[CellKey(run, *place)] for run in runs}))
        }

    def _table(self, samples: Mapping[str, Sample]) -> _Table | None:
        """Returns the table of the largest group of runs with the same units, or None if the group
        has fewer than two runs."""
        members: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for run, sample in samples.items():
            members[tuple(sorted(sample.unit_keys))].append(run)
        runs = max(members.values(), key=len, default=[])
        if len(runs) < 2:
            return None
        values = [_in_order(samples[run]) for run in runs]
        return _Table(tuple(runs), np.array(values))

    @cached_property
    def _factors(self) -> dict[str, float]:
        """Each run's variance relative to the mean of the runs in its tables, shrunk towards 1."""
        return _relative_spreads(
            [(table, table.residual_variances) for table in self._tables.values()]
        )

    def _differences(self, one: Place, other: Place) -> _Table | None:
        """Returns the table of each run's differences between two places: the same task with two
        methods or two label budgets."""
        samples = {}
        for run in self._runs.get(one, ()):
            a, b = (self.samples.get(CellKey(run, *place)) for place in (one, other))
            if a is not None and b is not None and are_paired(a, b):
                samples[run] = a.minus(b)
        return self._table(samples)

    @cached_property
    def _pairs_of_places(self) -> dict[tuple[Place, Place], _Table]:
        tables = {}
        for one, other in combinations(self._runs, 2):
            differ = [a != b for a, b in zip(one, other, strict=True)]
            if not differ[0] and sum(differ) == 1 and (table := self._differences(one, other)):
                tables[one, other] = table
        return tables

    def _table_of_differences(self, one: Place, other: Place) -> _Table | None:
        """Returns the table of each run's differences between two places, or None. Their sign may
        be reversed, which does not matter for variances."""
        tables = self._pairs_of_places
        return tables.get((one, other)) or tables.get((other, one))

    @cached_property
    def _factors_of_places(self) -> dict[str, float]:
        """The variance of each run's differences between methods or label budgets, relative to that
        of all runs and shrunk towards 1."""
        return _relative_spreads(
            [(table, table.variances) for table in self._pairs_of_places.values()]
        )

    def _prior(self, a: CellKey, b: CellKey) -> Prior | None:
        """Returns the prior of the difference of two cells, or None without comparable cells."""
        own_df = self.samples[a].num_units - 1
        if a.run == b.run:
            table = self._table_of_differences(a[1:], b[1:])
            return self._prior_of_one(table, a.run, self._factors_of_places, own_df)
        if a[1:] == b[1:]:
            table = self._tables.get(a[1:])
            if table is None or not {a.run, b.run} <= {*table.runs}:
                return None
            factors = _relative(self._factors, table.runs)
            variance = table.residual_mean_square * (factors[a.run] + factors[b.run])
            return self._weighted(variance, own_df, (len(table.runs) - 2) * (table.num_units - 1))
        return self._prior_to_baseline(a, b)

    def _prior_to_baseline(self, a: CellKey, b: CellKey) -> Prior | None:
        """Returns the prior of the difference of a run and a baseline: the mean variance of such
        differences, of which the run's half is multiplied by the run's factor."""
        run, baseline = (b, a) if a.run in self._baselines else (a, b)
        if baseline.run not in self._baselines or run.run in self._baselines:
            return None
        table = self._table_to_baseline(run[1:], baseline)
        halved = {name: (1 + factor) / 2 for name, factor in self._factors.items()}
        return self._prior_of_one(table, run.run, halved, self.samples[baseline].num_units - 1)

    def _table_to_baseline(self, place: Place, baseline: CellKey) -> _Table | None:
        """Returns the table of the differences between a place's runs and a baseline; cached."""
        if (place, baseline) not in self._to_baselines:
            of_baseline = self.samples[baseline]
            samples = {
                name: sample.minus(of_baseline)
                for name in self._runs.get(place, ())
                if are_paired(sample := self.samples[CellKey(name, *place)], of_baseline)
            }
            self._to_baselines[place, baseline] = self._table(samples)
        return self._to_baselines[place, baseline]

    def _prior_of_mean(self, key: CellKey) -> Prior | None:
        own_df = self.samples[key].num_units - 1
        return self._prior_of_one(self._tables.get(key[1:]), key.run, self._factors, own_df)

    def _prior_of_one(
        self, table: _Table | None, run: str, factors: Mapping[str, float], own_df: float
    ) -> Prior | None:
        """Returns a prior with the mean variance of a table's runs, times the factor of ``run``."""
        if table is None or run not in table.runs:
            return None
        variance = float(table.variances.mean()) * _relative(factors, table.runs)[run]
        return self._weighted(variance, own_df, (len(table.runs) - 1) * (table.num_units - 1))

    def _weighted(self, variance: float, own_df: float, others_df: float) -> Prior:
        """Returns a prior whose degrees of freedom are limited as the module docstring says."""
        df = min(PRIOR_DF, PRIOR_DF_PER_OWN * own_df, others_df)
        has_one_task = len({task for task, _, _ in self._tables}) == 1
        return Prior(float(variance), OF_ONE_TASK * df if has_one_task else df)


def _in_order(sample: Sample) -> list[float]:
    """Returns the values of a sample's units, ordered by the units' keys."""
    pairs = sorted(zip(sample.unit_keys, sample.unit_values.tolist(), strict=True))
    return [value for _, value in pairs]


def _relative_spreads(
    of_tables: Sequence[tuple[_Table, Float[np.ndarray, " runs"]]],
) -> dict[str, float]:
    """Returns each run's factor: its variance divided by the mean variance of its table.

    Factors are averaged over tables, with the tables' degrees of freedom as weights. The average
    includes a factor of 1 with the weight FACTOR_DF.
    """
    sums: dict[str, float] = defaultdict(lambda: FACTOR_DF)
    dfs: dict[str, float] = defaultdict(lambda: FACTOR_DF)
    for table, variances in of_tables:
        usual = variances.mean()
        if len(table.runs) < 3 or usual <= 0:
            continue
        for run, variance in zip(table.runs, variances.tolist(), strict=True):
            sums[run] += (table.num_units - 1) * variance / usual
            dfs[run] += table.num_units - 1
    return {run: sums[run] / dfs[run] for run in sums}


def _relative(factors: Mapping[str, float], runs: Sequence[str]) -> dict[str, float]:
    """Returns the factors of ``runs``, divided by their mean."""
    of_runs = {run: factors.get(run, 1.0) for run in runs}
    usual = sum(of_runs.values()) / len(of_runs)
    return {run: factor / usual for run, factor in of_runs.items()}
