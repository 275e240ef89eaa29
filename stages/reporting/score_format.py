"""Scores and intervals as tables, sentences and figures show them.

A t interval knows no ends of a scale: of two seeds it may reach from -88 to 151 points. The truth
lies between the ends, so that an interval that is cut off there covers it as often. One that is
still most of the scale says next to nothing, and sentences say that. Files of numbers have the ends
as the t distribution gives them.
"""

import math

from stages.evaluation.metrics import scale_of
from stages.evaluation.statistics import Interval
from stages.kinds._metric import POINTS
from stages.reporting.number_format import MINUS

# The least and the largest value of metrics that are not shares, as they are before ``factor``.
LIMITS = {
    **dict.fromkeys(("matthews", "pearson", "spearman"), (-1.0, 1.0)),
    **dict.fromkeys(("bits_per_byte", "word_perplexity"), (0.0, math.inf)),
}
MOST = 0.5  # of a scale
LITTLE = "which says next to nothing"
Ends = tuple[float, float]


def shown(value: float, metric: str) -> str:
    """Without a sign of 0."""
    text = scale_of(metric).shown(value)
    return text.replace("-", MINUS) if float(text) else text.removeprefix("-")


def ends(found: Interval, metric: str, *, difference: bool = False) -> Ends | None:
    """Of an interval, cut off at those of the scale; None if there is none. ``difference``: of two
    scores, else of a mean."""
    if found.low is None or found.high is None:
        return None
    return cut(found.low, found.high, metric, difference=difference)


def cut(low: float, high: float, metric: str, *, difference: bool = False) -> Ends:
    """An interval, cut off at the ends of the scale."""
    least, largest = _limits(metric, difference=difference)
    if not least <= (low + high) / 2 <= largest:  # of a component's metric that is no share
        return low, high
    return max(low, least), min(high, largest)


def interval(found: Interval, metric: str) -> str:
    """Of a mean score: ``52.2 to 59.7``; "" if there is none."""
    if (sides := ends(found, metric)) is None:
        return ""
    low, high = (shown(end, metric) for end in sides)
    return f"{low} to {high}{_little(*sides, metric, difference=False)}"


def interval_of_difference(found: Interval, metric: str, *, turned: bool = False) -> str:
    """``+0.7 to +6.1``; ``turned``, as seen from the other side; "" if there is none."""
    if (sides := ends(found, metric, difference=True)) is None:
        return ""
    low, high = sorted(-end for end in sides) if turned else sides
    signed = scale_of(metric).signed
    return f"{signed(low)} to {signed(high)}{_little(low, high, metric, difference=True)}"


def with_unit(value: float, metric: str) -> str:
    """A difference as ``+3.4 points``; of a metric without a unit the number alone."""
    scale = scale_of(metric)
    return f"{scale.signed(value)} {scale.unit}".strip()


def difference_with_interval(effect: Interval, metric: str) -> str:
    """``+3.4 (+0.7 to +6.1)``; the number alone if there is no interval."""
    return scale_of(metric).signed(effect.value) + in_parentheses(
        interval_of_difference(effect, metric)
    )


def in_parentheses(text: str) -> str:
    """``text`` behind a blank; "" if it is empty."""
    return f" ({text})" if text else ""


def _little(low: float, high: float, metric: str, *, difference: bool) -> str:
    least, largest = _limits(metric, difference=difference)
    return f", {LITTLE}" if high - low > MOST * (largest - least) else ""


def _limits(metric: str, *, difference: bool) -> Ends:
    shares = (0.0, 1.0) if scale_of(metric) == POINTS else (-math.inf, math.inf)
    least, largest = LIMITS.get(metric, shares)
    return (least - largest, largest - least) if difference else (least, largest)
