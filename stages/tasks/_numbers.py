"""Numbers as texts: reading them with a decimal point or comma, and writing predictions."""

import math
import re
from collections.abc import Sequence
from typing import Literal

from stages.tasks._cells import EmptyCellError, short
from stages.tasks._labels import is_missing

Decimal = Literal["point", "comma"]
# Signs for a missing number; some of them may be labels in columns of labels.
NO_NUMBERS = {"na", "n.a.", "n/a", "-nan", "-nan(ind)", "1.#qnan", "1.#ind", "missing", "*"}


def written_number(value: float) -> str:
    """Returns a predicted number as text, with the seven digits of float32."""
    return f"{value:.7g}"


def number_of(text: str, decimal: Decimal = "point") -> float:
    """Returns the number that a text spells, NaN if it spells none. With a decimal comma, points
    between groups of three digits are ignored."""
    text = _plain(text)
    if decimal == "comma":
        groups = re.fullmatch(r"([+-]?\d{1,3}(?:\.\d{3})+)(,\d+)?", text)
        text = (text.replace(".", "") if groups else text).replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return math.nan


def _plain(text: str) -> str:
    """Returns a number's text without separators of thousands, where they can be nothing else, as
    in 1 234,5, 1'234.5 and 1,234.5."""
    text = re.sub(
        r"(?<=\d)[ \u00a0\u202f'\u2019](?=\d{3}(?!\d))", "", text.strip().replace("\u2212", "-")
    )
    return text.replace(",", "") if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+\.\d+", text) else text


def decimal_of(texts: Sequence[str]) -> tuple[Decimal, bool]:
    """Returns the decimal sign of numbers, and whether it is certain: the sign in 1,234 or 1.234
    may separate thousands, and a few cells such as 1,5 among whole numbers may be lists."""
    texts = [_plain(text) for text in texts]
    commas = [text for text in texts if re.fullmatch(r"[+-]?[\d.]*,\d+(e[+-]?\d+)?", text.lower())]
    if not commas:
        groups = r"[+-]?[1-9]\d{0,2}\.\d{3}"
        return "point", not texts or not all(re.fullmatch(groups, text) for text in texts)
    lengths = {len(text.partition(",")[2]) for text in commas}
    return "comma", lengths != {3} and (len(commas) == len(texts) or lengths != {1})


def read_number(text: str, place: str, decimal: Decimal) -> float:
    number = number_of(text, decimal)
    if math.isfinite(number):
        return number
    if (
        is_missing(text.strip())
        or text.strip().lower() in NO_NUMBERS
        or re.fullmatch(r"[+-]?inf(inity)?", text.strip().lower())
    ):
        raise EmptyCellError(f"{place} must be a finite number, not {short(text)}")
    way = "is it a decimal comma? `decimal: comma`" if "," in text else "leave the cell empty"
    raise ValueError(f"{place} must be a finite number, not {short(text)} ({way})")
