"""Formats of numbers, scores and intervals in files, tables, sentences and figures.

Intervals are cut off at the ends of the metric's scale, except in files of numbers, which keep the
uncut t intervals (only scores.csv has cut ones). If an interval still covers more than the share
``MOST`` of the scale, the text adds that it "says next to nothing".
"""

from stages.evaluation.metrics import Ends, cut, limits, scale_of
from stages.evaluation.statistics import Interval

UNKNOWN = "unknown"
DASH = "\N{EN DASH}"  # in a table, for a value that is unknown or does not exist
MINUS = "\N{MINUS SIGN}"
MOST = 0.5  # share of a scale; LITTLE is said of a wider interval
LITTLE = "which says next to nothing"


def formatted(value: float | None, form: str) -> str:
    """Returns ``value`` in a Python format such as ``+.3f``, with MINUS instead of a hyphen; DASH
    for None."""
    return DASH if value is None else format(value, form).replace("-", MINUS)


def six_decimals(value: float | None) -> float | str:
    """Returns a number rounded to six decimals, or "" (an empty field) for None."""
    return "" if value is None else round(value, 6)


def three_digits(value: float | None) -> float | str:
    """Returns a number rounded to three significant digits, or "" (an empty field) for None."""
    return "" if value is None else float(f"{value:.3g}")


def compact(value: float | None) -> str:
    """Returns a number with three significant digits and an SI prefix: ``2.55M``."""
    if value is None:
        return UNKNOWN
    power = 0
    while value >= 999.5 and power < 6:
        value, power = value / 1000, power + 1
    return f"{value:.3g}{' kMGTPE'[power].strip()}"


def thousands(label_budget: str) -> str:
    """Returns a label budget as sentences write it: ``1,000`` or ``all``."""
    return f"{int(label_budget):,}" if label_budget.isdecimal() else label_budget


def are(number: int) -> str:
    return "is" if number == 1 else "are"


def percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def seconds(value: float | None) -> str:
    """Returns a time in seconds as ``0.8 s``, ``61 s``, ``12 min`` or ``3.4 h``."""
    if value is None:
        return UNKNOWN
    if value < 99.5:
        return f"{value:.2g} s"
    return f"{value / 60:.3g} min" if value < 5940 else f"{value / 3600:.3g} h"


def about(value: float) -> str:
    """Returns an estimated time, given in seconds, with two digits: ``6.8 min``."""
    if value < 99.5:
        return seconds(value)
    number, unit = (value / 60, "min") if value < 5940 else (value / 3600, "h")
    return f"{number:.2g} {unit}" if number < 99.5 else f"{number:,.0f} {unit}"


def milliseconds(value: float) -> str:
    """Returns a time in seconds as ``4.2 ms`` or, from 0.1 s on, as ``seconds`` does."""
    return f"{1000 * value:.2g} ms" if value < 0.0995 else seconds(value)


def memory(value: float | None) -> str:
    """Returns a number of bytes as ``400 MiB`` or ``3.0 GiB``."""
    if value is None:
        return UNKNOWN
    return f"{value / 2**20:.0f} MiB" if value < 2**30 else f"{value / 2**30:.1f} GiB"


def energy(joules: float | None) -> str:
    """Returns an energy in joules as ``0.12 mWh``, ``0.034 Wh`` or ``12 kWh``."""
    return UNKNOWN if joules is None else _measure(joules / 3600, "Wh")


def grams(value: float | None) -> str:
    """Returns a mass in grams as ``0.12 mg``, ``0.05 g`` or ``1.2 kg``."""
    return UNKNOWN if value is None else _measure(value, "g")


def _measure(value: float, unit: str) -> str:
    """Returns a value with its unit. Thousandths (``mg``) are used only below 0.00095, so
    that a column has one unit as far as possible."""
    if value and value < 0.00095:
        return f"{1000 * value:.2g} m{unit}"
    return f"{value:.2g} {unit}" if value < 99.5 else f"{value / 1000:.2g} k{unit}"


SPELLING = {
    "f1": "F1",
    "squad": "SQuAD",
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge": "ROUGE",
    "l": "L",
}


def metric_name(metric: str) -> str:
    """Returns the name of a metric as papers write it: ROUGE L for ``rouge_l``."""
    return " ".join(SPELLING.get(word, word) for word in metric.split("_"))


def shown(value: float, metric: str) -> str:
    """Returns a score in the unit of its metric; a rounded 0 has no sign."""
    text = scale_of(metric).shown(value)
    return text.replace("-", MINUS) if float(text) else text.removeprefix("-")


def ends(found: Interval, metric: str, *, difference: bool = False) -> Ends | None:
    """Returns the ends of an interval, cut off at the ends of the metric's scale; None if it has no
    ends. ``difference`` says that the interval is of a difference of two scores, not of a mean."""
    if found.low is None or found.high is None:
        return None
    return cut(found.low, found.high, metric, difference=difference)


def interval(found: Interval, metric: str) -> str:
    """Returns the interval of a mean score: ``52.2 to 59.7``; "" if there is none."""
    if (sides := ends(found, metric)) is None:
        return ""
    low, high = (shown(end, metric) for end in sides)
    return f"{low} to {high}{_little(*sides, metric, difference=False)}"


def interval_of_difference(found: Interval, metric: str) -> str:
    """Returns the interval of a difference: ``+0.7 to +6.1``; "" if there is none."""
    if (sides := ends(found, metric, difference=True)) is None:
        return ""
    low, high = sides
    signed = scale_of(metric).signed
    return f"{signed(low)} to {signed(high)}{_little(low, high, metric, difference=True)}"


def with_unit(value: float, metric: str) -> str:
    """Returns a difference as ``+3.4 points``, or the number alone if the metric has no unit."""
    scale = scale_of(metric)
    return f"{scale.signed(value)} {scale.unit}".strip()


def difference_with_interval(effect: Interval, metric: str) -> str:
    """Returns a difference as ``+3.4 (+0.7 to +6.1)``, or without an interval as ``+3.4``."""
    return scale_of(metric).signed(effect.value) + in_parentheses(
        interval_of_difference(effect, metric)
    )


def in_parentheses(text: str) -> str:
    """Returns a space, then ``text`` in parentheses; "" if ``text`` is empty."""
    return f" ({text})" if text else ""


def _little(low: float, high: float, metric: str, *, difference: bool) -> str:
    least, largest = limits(metric, difference=difference)
    return f", {LITTLE}" if high - low > MOST * (largest - least) else ""
