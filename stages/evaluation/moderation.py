"""Moderated variances: the variances of a study's cells, estimated together.

With three seeds a cell has two degrees of freedom, too few to find anything but large effects. So
the variance of every contrast is shrunk towards the variance of comparable contrasts (Smyth 2004;
limma). Plain moderation exceeds its nominal error rate if some cells vary more than others; this
procedure does not. It was chosen by simulation (benchmarks/coverage.md):

- For one task, method and label budget, a seed draws the same labels for all models. So seeds are
  paired, and the prior of a contrast is the mean variance of paired differences. For two models
  this is twice the residual mean square of models and seeds; for two methods or label budgets it is
  the mean over models.
- The prior is multiplied by a factor of the model (for two models, by the mean of their factors):
  how much more or less the model varies than others over all tasks, methods and label budgets. The
  factor is itself shrunk towards 1. So a model whose seeds vary widely does not borrow the others'
  small variance.
- The prior counts for at most 3 degrees of freedom, at most 1.5 times those of the contrast itself,
  and at most the number that the other models have. With a single task it counts for half as many,
  because a model's factor then comes from the same trials whose variance it corrects: without the
  halving, up to 10 % of studies made false claims where one model varied widely.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from jaxtyping import Float

from stages.core.keys import CellKey
from stages.evaluation.statistics import Interval, are_paired, difference, mean
from stages.evaluation.variance import Prior, Sample

PRIOR_DF = 3.0  # most degrees of freedom of a prior
PRIOR_DF_PER_OWN = 1.5  # most degrees of freedom of a prior, per degree of the contrast's own
OF_ONE_TASK = 0.5  # multiplies the degrees of freedom of a prior if the study has one task
FACTOR_DF = 3.0  # weight of the value 1, towards which a model's factor is shrunk


Place = tuple[str, str, str]  # task, method and label budget of a CellKey


@dataclass(frozen=True, eq=False)
class _Table:
    """Scores [model, unit], or differences of scores, of models with the same units of seeds."""

    models: tuple[str, ...]
    values: Float[np.ndarray, "models units"]

    @property
    def num_units(self) -> int:
        return self.values.shape[1]

    @cached_property
    def residuals(self) -> Float[np.ndarray, "models units"]:
        """The values minus the means of models and of units."""
        centred = self.values - self.values.mean(axis=1, keepdims=True)
        return centred - centred.mean(axis=0)

    @property
    def residual_mean_square(self) -> float:
        """The mean variance of a model between units, without the part that all models share."""
        df = (len(self.models) - 1) * (self.num_units - 1)
        return float((self.residuals**2).sum()) / df

    @property
    def residual_variances(self) -> Float[np.ndarray, " models"]:
        """Each model's variance; unbiased for three or more models, even if they vary unequally."""
        number = len(self.models)
        squares = (self.residuals**2).sum(axis=1) / (self.num_units - 1)
        if number < 3:
            return squares * number / max(number - 1, 1)
        # A residual's variance is (1 - 1/n)^2 times its own model's and 1/n^2 times each other's.
        total = squares.sum() * number / (number - 1)
        return np.maximum((squares - total / number**2) * number / (number - 2), 0.0)

    @cached_property
    def variances(self) -> Float[np.ndarray, " models"]:
        return self.values.var(axis=1, ddof=1)


class Moderation:
    """Computes the intervals of means and differences of a study's cells."""

    def __init__(
        self, samples: Mapping[CellKey, Sample], *, baselines: Collection[str], confidence: float
    ) -> None:
        """``baselines`` names the baselines in ``samples``. Their variances are not shrunk towards
        those of models."""
        self.samples, self.confidence = samples, confidence
        self._baselines = frozenset(baselines)
        self._models: dict[Place, list[str]] = defaultdict(list)  # with at least two units
        for key, sample in samples.items():
            if key.model not in self._baselines and sample.num_units > 1:
                self._models[key[1:]].append(key.model)
        self._tables = {place: t for place in self._models if (t := self._table(place))}
        # Each model's variance relative to the mean of the models in its tables.
        self._factors = _factors((t, t.residual_variances) for t in self._tables.values())
        self._differences: dict[tuple[CellKey, CellKey], Interval] = {}
        self._to_baselines: dict[tuple[Place, CellKey], _Table | None] = {}

    def mean(self, key: CellKey) -> Interval:
        """Returns the interval of the mean score of a cell."""
        prior = self._prior_of_mean(key)
        return mean(self.samples[key], confidence=self.confidence, prior=prior)

    def difference(self, a: CellKey, b: CellKey) -> Interval:
        """Returns the interval of the mean of ``a`` minus that of ``b``; computed once."""
        if (a, b) not in self._differences:
            self._differences[a, b] = difference(
                self.samples[a],
                self.samples[b],
                confidence=self.confidence,
                prior=self._prior(a, b),
                prior_a=self._prior_of_mean(a),
                prior_b=self._prior_of_mean(b),
            )
        return self._differences[a, b]

    def _table(self, place: Place, other: Callable[[str], CellKey] | None = None) -> _Table | None:
        """Returns the scores at a place of the largest group of models with the same units of
        seeds, less the scores of each model's cell ``other(model)`` if given; None for fewer than
        two models."""
        members: dict[tuple[object, ...], list[tuple[str, Sample]]] = defaultdict(list)
        for model in self._models.get(place, ()):
            sample = self.samples[CellKey(model, *place)]
            if other is not None:
                subtracted = self.samples.get(other(model))
                if subtracted is None or not are_paired(sample, subtracted):
                    continue
                sample = sample.minus(subtracted)
            members[tuple(sorted(sample.units))].append((model, sample))
        group = max(members.values(), key=len, default=[])
        if len(group) < 2:
            return None
        in_order = [sorted(zip(s.units, s.unit_values.tolist(), strict=True)) for _, s in group]
        values = np.array([[value for _, value in of_model] for of_model in in_order])
        return _Table(tuple(model for model, _ in group), values)

    @cached_property
    def _between_places(self) -> dict[frozenset[Place], _Table]:
        """The differences of each model between two methods or two label budgets, on one task."""
        tables: dict[frozenset[Place], _Table | None] = {}
        for one, other in combinations(self._models, 2):
            unlike = [a != b for a, b in zip(one, other, strict=True)]
            if unlike in ([False, True, False], [False, False, True]):
                tables[frozenset((one, other))] = self._table(
                    one, lambda model, place=other: CellKey(model, *place)
                )
        return {places: table for places, table in tables.items() if table}

    @cached_property
    def _factors_between_places(self) -> dict[str, float]:
        return _factors((table, table.variances) for table in self._between_places.values())

    def _prior(self, a: CellKey, b: CellKey) -> Prior | None:
        """Returns the prior of the difference of two cells, or None without comparable cells."""
        own_df = self.samples[a].num_units - 1
        if a.model == b.model:
            table = self._between_places.get(frozenset((a[1:], b[1:])))
            return self._prior_of_one(table, a.model, self._factors_between_places, own_df)
        if a[1:] == b[1:]:
            table = self._tables.get(a[1:])
            if table is None or not {a.model, b.model} <= {*table.models}:
                return None
            factors = _relative(self._factors, table.models)
            variance = table.residual_mean_square * (factors[a.model] + factors[b.model])
            return self._weighted(variance, own_df, (len(table.models) - 2) * (table.num_units - 1))
        model, baseline = (b, a) if a.model in self._baselines else (a, b)
        if baseline.model not in self._baselines or model.model in self._baselines:
            return None
        # Half of the variance of such a difference is the model's, so half of it gets its factor.
        place = model[1:]
        if (place, baseline) not in self._to_baselines:
            self._to_baselines[place, baseline] = self._table(place, lambda _: baseline)
        halved = {name: (1 + factor) / 2 for name, factor in self._factors.items()}
        own_df = self.samples[baseline].num_units - 1
        table = self._to_baselines[place, baseline]
        return self._prior_of_one(table, model.model, halved, own_df)

    def _prior_of_mean(self, key: CellKey) -> Prior | None:
        own_df = self.samples[key].num_units - 1
        return self._prior_of_one(self._tables.get(key[1:]), key.model, self._factors, own_df)

    def _prior_of_one(
        self, table: _Table | None, model: str, factors: Mapping[str, float], own_df: float
    ) -> Prior | None:
        """Returns a prior with the mean variance of a table's models, times a model's factor."""
        if table is None or model not in table.models:
            return None
        variance = float(table.variances.mean()) * _relative(factors, table.models)[model]
        return self._weighted(variance, own_df, (len(table.models) - 1) * (table.num_units - 1))

    def _weighted(self, variance: float, own_df: float, others_df: float) -> Prior:
        """Returns a prior whose degrees of freedom are limited as the module docstring says."""
        df = min(PRIOR_DF, PRIOR_DF_PER_OWN * own_df, others_df)
        has_one_task = len({task for task, _, _ in self._tables}) == 1
        return Prior(float(variance), OF_ONE_TASK * df if has_one_task else df)


def _factors(
    of_tables: Iterable[tuple[_Table, Float[np.ndarray, " models"]]],
) -> dict[str, float]:
    """Returns each model's factor: its variance divided by the mean variance of its table.

    Factors are averaged over tables, with the tables' degrees of freedom as weights. The average
    includes a factor of 1 with the weight FACTOR_DF.
    """
    sums: dict[str, float] = defaultdict(lambda: FACTOR_DF)
    dfs: dict[str, float] = defaultdict(lambda: FACTOR_DF)
    for table, variances in of_tables:
        usual = variances.mean()
        if len(table.models) < 3 or usual <= 0:
            continue
        for model, variance in zip(table.models, variances.tolist(), strict=True):
            sums[model] += (table.num_units - 1) * variance / usual
            dfs[model] += table.num_units - 1
    return {model: sums[model] / dfs[model] for model in sums}


def _relative(factors: Mapping[str, float], models: Sequence[str]) -> dict[str, float]:
    """Returns the factors of ``models``, divided by their mean."""
    of_models = {model: factors.get(model, 1.0) for model in models}
    usual = sum(of_models.values()) / len(of_models)
    return {model: factor / usual for model, factor in of_models.items()}
