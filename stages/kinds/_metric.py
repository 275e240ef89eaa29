"""A metric and the scale on which its values are compared and shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Scale:
    """How the values of a metric are compared and shown."""

    unit: str
    factor: int  # what is shown is this times the value
    decimals: int
    lower_is_better: bool = False

    def shown(self, value: float) -> str:
        return f"{self.factor * value:.{self.decimals}f}"

    def signed(self, value: float) -> str:
        """Of a difference; 0 has no sign."""
        text = f"{self.factor * value:+.{self.decimals}f}"
        return text.replace("-", "\N{MINUS SIGN}") if float(text) else text[1:]


F1_OF = "f1_of_"  # and a label: the metric that is its F1
POINTS = Scale("points", factor=100, decimals=1)  # of a share, in 0..1


@dataclass(frozen=True)
class Sums:
    """A metric as a function of sums over rows.

    ``counts`` takes the right answers and the predictions and gives K numbers for each row.
    ``value`` takes their sums over any set of rows, for many sets at once. Its value of all rows is
    that of the metric; of no rows it is anything, NaN included.
    """

    counts: Callable[[Sequence[str], Sequence[str]], Float[np.ndarray, "n K"]]
    value: Callable[[Float[np.ndarray, "sets K"]], Float[np.ndarray, " sets"]]


@dataclass(frozen=True)
class Metric:
    """A metric that one kind of rows brings along; ``evaluation/metrics.py`` has the shared ones.

    ``value`` takes the right answers and the predictions of the whole test set, each as
    ``Kind.answer`` writes them. ``sums`` is the same as a function of sums over rows, from which
    ``evaluation/row_scores.py`` gets what each row contributes. Without it the metric is computed
    again without some of the rows, 50 times.
    """

    name: str
    value: Callable[[Sequence[str], Sequence[str]], float]
    scale: Scale = POINTS
    sums: Sums | None = None
