"""Reads the cells of tables as texts, lists, mappings and numbers; normal forms of texts."""

import ast
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

Row = Mapping[str, Any]  # a row of a task; its kind defines the columns
Decimal = Literal["point", "comma"]
SPACELESS = 0x0E00  # first character of Thai; most scripts from there on have no blanks

# Missing values as pandas, R, SQL and spreadsheets write them, but not NA, which is often a class.
MISSING = {"nan", "<na>", "nat", r"\n", "null", "#n/a", "#na"}
MISSING |= {"#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"}  # Excel's errors
MAYBE_MISSING = {"-", ".", "--", "?", "n/a", "N/A", "None", "<NONE>", "[null]", "(null)", "<null>"}
MAYBE_MISSING |= {"undefined", "unlabeled", "unlabelled", "[deleted]", "[removed]"}
# Signs for a missing number; some of them may be labels in columns of labels.
NO_NUMBERS = {"na", "n.a.", "n/a", "-nan", "-nan(ind)", "1.#qnan", "1.#ind", "missing", "*"}
# Lists that numpy, pandas, R or PostgreSQL has printed: ['a' 'b'], [0 1], c("a"), {a,b}.
_UNREAD = re.compile(
    r"""\[(\s*["'].*|[-\d.\s]+)\]|\{[^{}:"']*\}"""
    r"""|(c|array|Index|frozenset|deque|OrderedDict)\([\[{("'\d].*\)""",
    re.DOTALL,
)


class EmptyCellError(ValueError):
    """The error that a required cell is empty."""


def folded(text: str) -> str:
    """Returns the text casefolded, with each run of white space as one blank."""
    return " ".join(text.split()).casefold()


def plain_text(text: str) -> str:
    """Returns the text in NFKC with single blanks. Every tokenizer leaves this form unchanged, so
    that bits per byte are comparable between tokenizers."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def is_missing(text: str) -> bool:
    """Whether a text may stand for a missing value, such as ``nan`` or ``-``."""
    return text.lower() in MISSING or text in MAYBE_MISSING


def is_empty(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def text_of(value: Any, place: str) -> str:
    """Returns a text, a number or a truth value as text. Raises EmptyCellError for an empty cell
    and ValueError for any other type; the message begins with ``place``."""
    if is_empty(value):
        raise EmptyCellError(f"{place} is empty")
    if not isinstance(value, str | int | float):
        raise ValueError(f"{place} must be a text, not {short(value)}")
    return str(value)


def list_of(value: Any, place: str) -> list[str]:
    """Returns a list of texts, none of them empty; raises the errors of ``text_of``."""
    value = unprinted(value)
    if value == []:
        raise EmptyCellError(f"{place} is empty")
    if not isinstance(value, list):
        raise ValueError(f"{place} must be a list of texts, not {short(value)}")
    return [text_of(item, f"{place}[{i}]") for i, item in enumerate(value)]


def structure_of(text: str) -> list[Any] | dict[str, Any] | None:
    """Returns the list or the mapping that a text spells in JSON or in Python, or None for any
    other text. Raises ValueError for a list in a form that is not read, such as numpy's."""
    text = text.strip()
    if re.fullmatch(r"""(["'])[\[{(].*\1""", text, re.DOTALL):
        text = text[1:-1]  # a list that was written as text twice
    value = None
    if text == "set()" or text[:1] + text[-1:] in ("[]", "{}", "()"):
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
        # Python would read numpy's ['a' 'b'] as ['ab'].
        if value is None and not re.search(r"""(["'])\s+\1""", text):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                value = ast.literal_eval(text)
    if isinstance(value, tuple | set):
        return list(value) if isinstance(value, tuple) else sorted(value, key=str)
    if value is None and _UNREAD.fullmatch(text):
        raise ValueError(f'{short(text)} is no list in JSON; write it as in ["a", "b"]')
    return value if isinstance(value, list | dict) else None


def unprinted(cell: Any) -> Any:
    """Returns the list or the mapping that a text spells, including a list without quotation marks;
    any other cell as it is. Raises the errors of ``structure_of``."""
    if not isinstance(cell, str):
        return cell
    if (structure := structure_of(cell)) is not None:
        return structure
    text = cell.strip()
    is_list = text[:1] + text[-1:] == "[]"
    return [item.strip() for item in text[1:-1].split(",")] if is_list else cell  # [joy, fear]


def structured(cell: Any) -> Any:
    """Returns what ``unprinted`` does, but leaves a list in a form that is not read as it is."""
    try:
        return unprinted(cell)
    except ValueError:
        return cell


def number_of(text: str, decimal: Decimal = "point") -> float:
    """Returns the number that a text spells, NaN if it spells none. No sign may separate thousands;
    with a decimal comma, no number has a point."""
    text = text.strip().replace("\u2212", "-")
    if decimal == "comma":
        text = "" if "." in text else text.replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return math.nan


def decimal_of(texts: Sequence[str]) -> tuple[Decimal, bool]:
    """Returns the decimal sign of numbers, and whether it is certain: the sign in 1,234 or 1.234
    may separate thousands, and a few cells such as 1,5 among whole numbers may be lists."""
    comma = re.compile(r"[-+\u2212]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
    commas = [text for text in texts if comma.fullmatch(text)]
    if not commas:
        groups = r"[+-]?[1-9]\d{0,2}\.\d{3}"
        return "point", not texts or not all(re.fullmatch(groups, text) for text in texts)
    lengths = {len(text.partition(",")[2]) for text in commas}
    return "comma", lengths != {3} and (len(commas) == len(texts) or lengths != {1})


def read_number(text: str, place: str, decimal: Decimal) -> float:
    """Returns a finite number. Raises EmptyCellError for a sign of a missing number, and ValueError
    for any other text."""
    number, sign = number_of(text, decimal), text.strip()
    if math.isfinite(number):
        return number
    problem = f"{place} must be a finite number, not {short(text)}"
    if (
        is_missing(sign)
        or re.fullmatch(r"[+-]?inf(inity)?", sign.lower())
        or sign.lower() in NO_NUMBERS
    ):
        raise EmptyCellError(problem)
    raise ValueError(f"{problem} (`decimal: comma` reads 1,5; thousands must have no sign)")


def written_number(value: float) -> str:
    """Returns a predicted number as text, with the seven digits of float32."""
    return f"{value:.7g}"
