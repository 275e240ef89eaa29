"""Reads the cells of tables as texts, lists, mappings and numbers; normal forms of texts."""

import ast
import io
import json
import math
import re
import tokenize
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Row = Mapping[str, Any]  # a row of a task; its kind defines the columns
Decimal = Literal["point", "comma"]
SPACELESS = 0x0E00  # first character of Thai; most scripts from there on have no blanks

# Lists printed by Python, pandas or R: set(), frozenset({'a'}), Index(['a'], dtype=object), c("a").
_WRAPPED = re.compile(
    r"(?:set|frozenset|list|tuple|deque|array|Index|OrderedDict|c)"
    r"\((.*?)(?:,\s*dtype=[^()]*)?\)",
    re.DOTALL,
)
# Missing values as pandas, R, SQL and spreadsheets write them, but not NA, which is often a class.
MISSING = {"nan", "<na>", "nat", r"\n", "null", "#n/a", "#na"}
MISSING |= {"#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"}  # Excel's errors
MAYBE_MISSING = {"-", ".", "--", "?", "n/a", "N/A", "None", "<NONE>", "[null]", "(null)", "<null>"}
MAYBE_MISSING |= {"undefined", "unlabeled", "unlabelled"}
# Signs for a missing number; some of them may be labels in columns of labels.
NO_NUMBERS = {"na", "n.a.", "n/a", "-nan", "-nan(ind)", "1.#qnan", "1.#ind", "missing", "*"}


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


def text_of(value: Any, place: str) -> str:
    """Returns a text, a number or a truth value as text.

    Raises EmptyCellError for an empty cell and ValueError for any other type; the message begins
    with ``place``.
    """
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        raise EmptyCellError(f"{place} is empty")
    if not isinstance(value, str | int | float):
        raise ValueError(f"{place} must be a text, not {short(value)}")
    return str(value)


def list_of(value: Any, place: str) -> list[str]:
    """Returns a list of texts, none of them empty; raises the errors of ``text_of``."""
    value = unprinted(value)
    if not isinstance(value, list):
        raise ValueError(f"{place} must be a list of texts, not {short(value)}")
    if not value:
        raise EmptyCellError(f"{place} is empty")
    if all(isinstance(item, str) and item.strip() for item in value):
        return value
    return [text_of(item, f"{place}[{i}]") for i, item in enumerate(value)]


def structure_of(text: str) -> list[Any] | dict[str, Any] | None:
    """Returns the list or the mapping that a text spells in JSON or as printed by Python or numpy,
    or None for any other text. Lists in csv files have this form."""
    text = text.strip()
    if re.fullmatch(r"""(["'])[\[{(].*\1""", text, re.DOTALL):
        text = text[1:-1]  # a list that was written as text twice
    if wrapped := _WRAPPED.fullmatch(text):
        inner = wrapped[1].strip()
        text = inner if inner.startswith(("[", "{", "(")) else f"[{inner}]"
    if text[:1] + text[-1:] not in ("[]", "{}", "()"):
        return None
    for read in (json.loads, _printed):
        try:
            value = read(text)
        except (ValueError, SyntaxError, tokenize.TokenError, MemoryError, RecursionError):
            continue
        if isinstance(value, list | dict):
            return value
        if isinstance(value, tuple | set):
            return list(value) if isinstance(value, tuple) else sorted(value, key=str)
    return None


def _printed(text: str) -> Any:
    """Parses a value printed by Python or by numpy (``['a' 'b']``, ``array([1])``)."""
    text = re.sub(r",\s*dtype=[^)]*(?=\))", "", text)
    pieces, before = list[str](), tokenize.OP
    items = (tokenize.STRING, tokenize.NUMBER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string in ("array", "\n"):
            continue
        if token.type in items and before in items:  # Python would join two adjacent texts
            pieces.append(",")
        pieces.append("None" if token.string == "nan" else token.string)
        before = token.type
    return ast.literal_eval(" ".join(pieces).strip())


def unprinted(cell: Any) -> Any:
    """Returns the list or the mapping that a text spells; any other cell as it is."""
    structure = structure_of(cell) if isinstance(cell, str) else None
    return cell if structure is None else structure


def structured(cell: Any) -> Any:
    """Returns the list or the mapping that a text spells, including a list without quotation marks;
    any other cell as it is."""
    read = unprinted(cell)
    if isinstance(read, str) and (text := read.strip())[:1] + text[-1:] == "[]":
        return [item.strip() for item in text[1:-1].split(",")]  # [joy, fear]
    return read


def number_of(text: str, decimal: Decimal = "point") -> float:
    """Returns the number that a text spells, NaN if it spells none. With a decimal comma, points
    between groups of three digits are ignored."""
    text = _without_groups(text)
    if decimal == "comma":
        groups = re.fullmatch(r"([+-]?\d{1,3}(?:\.\d{3})+)(,\d+)?", text)
        text = (text.replace(".", "") if groups else text).replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return math.nan


def _without_groups(text: str) -> str:
    """Returns a number's text without separators of thousands, where they can be nothing else, as
    in 1 234,5, 1'234.5 and 1,234.5."""
    text = text.strip().replace("\u2212", "-")
    text = re.sub(r"(?<=\d)[ \u00a0\u202f'\u2019](?=\d{3}(?!\d))", "", text)
    return text.replace(",", "") if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+\.\d+", text) else text


def decimal_of(texts: Sequence[str]) -> tuple[Decimal, bool]:
    """Returns the decimal sign of numbers, and whether it is certain: the sign in 1,234 or 1.234
    may separate thousands, and a few cells such as 1,5 among whole numbers may be lists."""
    texts = [_without_groups(text) for text in texts]
    commas = [text for text in texts if re.fullmatch(r"[+-]?[\d.]*,\d+(e[+-]?\d+)?", text.lower())]
    if not commas:
        groups = r"[+-]?[1-9]\d{0,2}\.\d{3}"
        return "point", not texts or not all(re.fullmatch(groups, text) for text in texts)
    lengths = {len(text.partition(",")[2]) for text in commas}
    return "comma", lengths != {3} and (len(commas) == len(texts) or lengths != {1})


def read_number(text: str, place: str, decimal: Decimal) -> float:
    """Returns a finite number.

    Raises EmptyCellError for a sign of a missing number, and ValueError for any other text.
    """
    number, word = number_of(text, decimal), text.strip().lower()
    if math.isfinite(number):
        return number
    problem = f"{place} must be a finite number, not {short(text)}"
    is_infinite = re.fullmatch(r"[+-]?inf(inity)?", word)
    if is_missing(text.strip()) or word in NO_NUMBERS or is_infinite:
        raise EmptyCellError(problem)
    way = "is it a decimal comma? `decimal: comma`" if "," in text else "leave the cell empty"
    raise ValueError(f"{problem} ({way})")


def written_number(value: float) -> str:
    """Returns a predicted number as text, with the seven digits of float32."""
    return f"{value:.7g}"
