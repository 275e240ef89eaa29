"""A metric and the scale on which its values are compared and shown."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Scale:
    """The scale on which the values of a metric are compared and shown."""

    unit: str
    factor: int  # shown values are multiplied by this
    decimals: int
    lower_is_better: bool = False
    # The smallest and largest value, before multiplication by ``factor``; intervals end there.
    limits: tuple[float, float] = field(default=(-math.inf, math.inf), compare=False)

    def shown(self, value: float) -> str:
        return f"{self._scaled(value):.{self.decimals}f}"

    def signed(self, value: float) -> str:
        """Returns a difference as text with its sign; 0 has none."""
        text = f"{self._scaled(value):+.{self.decimals}f}"
        return text.replace("-", "\N{MINUS SIGN}") if float(text) else text[1:]

    def _scaled(self, value: float) -> float:
        """Returns the value in the scale's unit. It is first rounded to six decimals as in
        reports/*.csv, so that the terminal, which reads these files, shows the same number."""
        return round(self.factor * round(value, 6), 6)


F1_OF = "f1_of_"  # prefix of a label: the metric is the F1 of that label
POINTS = Scale("points", factor=100, decimals=1, limits=(0.0, 1.0))
CORRELATION = Scale("points", factor=100, decimals=1, limits=(-1.0, 1.0))  # or chance is 0


@dataclass(frozen=True)
class Sums:
    """A metric as a function of sums over rows.

    ``counts`` maps the right answers and the predictions to K numbers for each row. ``value`` maps
    sums of these numbers over a set of rows to the metric of the set, for many sets at once.
    """

    counts: Callable[[Sequence[str], Sequence[str]], Float[np.ndarray, "n K"]]
    value: Callable[[Float[np.ndarray, "sets K"]], Float[np.ndarray, " sets"]]


@dataclass(frozen=True)
class Metric:
    """A metric of one kind of rows; ``evaluation/metrics.py`` has the shared ones.

    ``value`` maps the right answers of the whole test set (``Task.answer``) and the predictions to
    the metric. ``sums`` is the same metric as a function of sums over rows, for the contribution of
    each row; without it, the metric is computed 50 times, each time without some of the rows.
    """

    name: str
    value: Callable[[Sequence[str], Sequence[str]], float]
    scale: Scale = POINTS
    sums: Sums | None = None


def metric_of_sums(name: str, sums: Sums, scale: Scale = POINTS) -> Metric:
    """Returns the metric whose value for a whole set is that of its sums."""

    def value(gold: Sequence[str], predicted: Sequence[str]) -> float:
        total = sums.counts(gold, predicted).sum(axis=0, keepdims=True)
        return float(sums.value(total)[0])

    return Metric(name, value, scale, sums)
