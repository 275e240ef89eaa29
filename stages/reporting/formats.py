"""Formats of numbers: scores, differences, intervals, times and sizes."""

import re
from collections.abc import Mapping

from stages.evaluation.metrics import cut, scale_of
from stages.findings.facts import Estimate
from stages.reporting.table import DASH

MINUS = "\N{MINUS SIGN}"
SPELLING = {
    **{"f1": "F1", "squad": "SQuAD", "bleu": "BLEU", "chrf": "chrF", "rouge": "ROUGE", "l": "L"},
    **{
        "mlm": "MLM",
        "tfidf": "TF-IDF",
        "logme": "LogME",
        "lora": "LoRA",
        "crf": "CRF",
        "svc": "SVC",
    },
    **{"bert": "BERT", "modernbert": "ModernBERT", "bart": "BART", "t5": "T5", "gpt2": "GPT-2"},
    **{"llama": "Llama", "phi": "Phi", "bilstm": "biLSTM", "minilm": "MiniLM"},
}


class Labels(dict[str, str]):
    """The display names of models, baselines, methods and tasks.

    A name without a label is shown with blanks for its underscores.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)

    def __missing__(self, name: str) -> str:
        words = re.split(r"(\W+)", name.replace("_", " "))
        return "".join(SPELLING.get(word, word) for word in words)


def metric_name(metric: str) -> str:
    """Returns the name of a metric as papers write it: ROUGE L for ``rouge_l``."""
    return " ".join(SPELLING.get(word, word) for word in metric.split("_"))


def unit(metric: str) -> str:
    """Returns "points" or another unit of scores."""
    return scale_of(metric).unit


def shown(value: float | None, metric: str) -> str:
    """Returns a score in the unit of its metric; a rounded 0 has no sign."""
    if value is None:
        return DASH
    text = scale_of(metric).shown(value)
    return text.replace("-", MINUS) if float(text) else text.removeprefix("-")


def signed(value: float | None, metric: str) -> str:
    """Returns a difference in the unit of its metric, with its sign."""
    return DASH if value is None else scale_of(metric).signed(value)


def interval(estimate: Estimate, metric: str) -> str:
    """Returns the interval of a score, cut at the ends of its scale: ``52.2 to 59.7``, or ""."""
    if estimate.low is None or estimate.high is None:
        return ""
    low, high = cut(estimate.low, estimate.high, metric)
    return f"{shown(low, metric)} to {shown(high, metric)}"


def difference_interval(estimate: Estimate, metric: str) -> str:
    """Returns the interval of a difference: ``+0.7 to +6.1``, or "" if there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    low, high = cut(estimate.low, estimate.high, metric, difference=True)
    return f"{signed(low, metric)} to {signed(high, metric)}"


def p_value(value: float | None) -> str:
    if value is None:
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def percent(share: float | None) -> str:
    """Returns a share as ``52%``, a small one as ``0.4%``."""
    if share is None:
        return DASH
    return f"{100 * share:.1f}%" if 0 < share < 0.00995 else f"{100 * share:.0f}%"


def thousands(number: float | str) -> str:
    """Returns a count or a label budget as ``1,000`` or ``all``."""
    if isinstance(number, str):
        return f"{int(number):,}" if number.isdecimal() else number
    return f"{number:,.0f}"


def compact(value: float | None) -> str:
    """Returns a number with three significant digits and an SI prefix: ``2.55M``."""
    if value is None:
        return DASH
    power = 0
    while value >= 999.5 and power < 6:
        value, power = value / 1000, power + 1
    return f"{value:.3g}{' kMGTPE'[power].strip()}"


def seconds(value: float | None) -> str:
    """Returns a time as ``13 ms``, ``0.8 s``, ``61 s``, ``12 min`` or ``3.4 h``."""
    if value is None:
        return DASH
    if value < 0.0995:
        return f"{1000 * value:.2g} ms"
    if value < 99.5:
        return f"{value:.2g} s"
    return f"{value / 60:.3g} min" if value < 5940 else f"{value / 3600:.3g} h"


def memory(value: float | None) -> str:
    """Returns a number of bytes as ``400 MiB`` or ``3.0 GiB``."""
    if value is None:
        return DASH
    return f"{value / 2**20:.0f} MiB" if value < 2**30 else f"{value / 2**30:.1f} GiB"
