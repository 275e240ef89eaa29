"""Numbers as files, tables and sentences show them."""

UNKNOWN = "unknown"
DASH = "\N{EN DASH}"  # in a table, in the place of a value that is not known or does not exist
MINUS = "\N{MINUS SIGN}"


def formatted(value: float | None, form: str) -> str:
    """``value`` in a format of Python such as ``+.3f``, with a minus sign; DASH if it is None."""
    return DASH if value is None else format(value, form).replace("-", MINUS)


def six_decimals(value: float | None) -> float | str:
    """Rounded to six decimals; None is an empty field."""
    return "" if value is None else round(value, 6)


def three_digits(value: float | None) -> float | str:
    """Rounded to three significant digits; None is an empty field."""
    return "" if value is None else float(f"{value:.3g}")


def compact(value: float | None) -> str:
    """``2.55M``: three significant digits and an SI prefix."""
    if value is None:
        return UNKNOWN
    power = 0
    while value >= 999.5 and power < 6:
        value, power = value / 1000, power + 1
    return f"{value:.3g}{' kMGTPE'[power].strip()}"


def are(number: int) -> str:
    return "is" if number == 1 else "are"


def percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def seconds(value: float | None) -> str:
    """``0.8 s``, ``61 s``, ``12 min``, ``3.4 h``."""
    if value is None:
        return UNKNOWN
    if value < 99.5:
        return f"{value:.2g} s"
    return f"{value / 60:.3g} min" if value < 5940 else f"{value / 3600:.3g} h"


def milliseconds(value: float) -> str:
    """A time in seconds as ``4.2 ms``, or as ``seconds`` shows it from 0.1 s."""
    return f"{1000 * value:.2g} ms" if value < 0.0995 else seconds(value)


def memory(value: float | None) -> str:
    """Bytes as ``400 MiB`` or ``3.0 GiB``."""
    if value is None:
        return UNKNOWN
    return f"{value / 2**20:.0f} MiB" if value < 2**30 else f"{value / 2**30:.1f} GiB"


def energy(joules: float | None) -> str:
    """Joules as ``1.2 mWh``, ``0.34 Wh``, ``12 kWh``."""
    return UNKNOWN if joules is None else _measure(joules / 3600, "Wh")


def grams(value: float | None) -> str:
    """``1.2 mg``, ``5 g``, ``1.2 kg``."""
    return UNKNOWN if value is None else _measure(value, "g")


def _measure(value: float, unit: str) -> str:
    if value and value < 0.095:
        return f"{1000 * value:.2g} m{unit}"
    return f"{value:.2g} {unit}" if value < 99.5 else f"{value / 1000:.2g} k{unit}"


def price(
    *, wall_time_s: float, peak_memory_bytes: float, texts_per_s: list[float], hardware: str
) -> str:
    """A time in seconds and a memory in bytes as a sentence."""
    speed = (
        f"; it predicts {sum(texts_per_s) / len(texts_per_s):,.0f} texts per second"
        if texts_per_s
        else ""
    )
    return (
        f"Fine-tuning takes {seconds(wall_time_s)} and at most {memory(peak_memory_bytes)} on "
        f"{hardware}{speed}."
    )


SPELLING = {
    "f1": "F1",
    "squad": "SQuAD",
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge": "ROUGE",
    "l": "L",
}


def metric_name(metric: str) -> str:
    """``rouge_l`` as papers write it: ROUGE L."""
    return " ".join(SPELLING.get(word, word) for word in metric.split("_"))
