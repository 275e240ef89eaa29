"""Reads labels from files: one spelling for each, and the signs that a row has no label."""

import html
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from stages.tasks._cells import text_of

ASK, NONE = "ask", "none"
NO_LABEL_SIGNS = "no_label"
LABEL_CASE = "label_case"
NoLabel = list[str | int] | Literal["ask", "none"]
LabelCase = Literal["ask", "keep", "fold"]

# Missing values as pandas, R, SQL and spreadsheets write them, but not NA, which is often a class.
MISSING = {"nan", "<na>", "nat", r"\n", "null", "#n/a", "#na"}
MISSING |= {"#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"}  # Excel's errors
MAYBE_MISSING = {"-", ".", "--", "?", "n/a", "N/A", "None", "<NONE>", "[null]", "(null)", "<null>"}
MAYBE_MISSING |= {"undefined", "unlabeled", "unlabelled"}
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201a\u2032"), "'")
_QUOTES |= dict.fromkeys(map(ord, "\u201c\u201d\u201e\u00ab\u00bb\u2033"), '"')
# Letters of a script, and the Latin letters that look like them.
_LOOK_ALIKE = {
    "CYRILLIC": ("АВЕКМНОРСТУХІЈЅаеорсухіјѕ", "ABEKMHOPCTYXIJSaeopcyxijs"),
    "GREEK": ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαινορ", "ABEZHIKMNOPTYXaivop"),
}
_NUMBER = re.compile(r"([+-]?\d+)(?:[.,]0*)?")
_WHOLE = re.compile(r"([+-]?\d+)\.0+")


def label_of(value: Any, place: str) -> str:
    """Returns a label as text. 1, 1.0 and "1" are one label, and so are texts that differ only in
    invisible characters, blanks or Unicode's form of accents.

    Raises the errors of ``text_of``.
    """
    text = text_of(value, place).translate(_INVISIBLE)
    while text and (text[0].isspace() or unicodedata.category(text[0]) == "Cf"):
        text = text[1:]
    while text and (text[-1].isspace() or unicodedata.category(text[-1]) == "Cf"):
        text = text[:-1]
    text = " ".join(unicodedata.normalize("NFC", text_of(text, place)).split())
    whole = _WHOLE.fullmatch(text)
    return str(int(whole[1])) if whole else text


def is_missing(text: str) -> bool:
    """Whether a text may stand for a missing value, such as ``nan`` or ``-``."""
    return text.lower() in MISSING or text in MAYBE_MISSING


def signs_of_none(counts: Mapping[str, int]) -> dict[str, bool]:
    """Returns the labels that may mean that a row has no label, each with True if it can mean
    nothing else.

    The only negative number is such a label: -1 for hidden labels (SNLI, GLUE), or PyTorch's -100.
    It can mean nothing else next to 0, 1, 2 and so on; next to 0 and 1 alone, it may be a class.
    """
    signs = {label: label.lower() in MISSING for label in counts if is_missing(label)}
    others = [label for label in counts if label not in signs]
    negative = [label for label in others if re.fullmatch(r"-\d+", label)]
    rest = [label for label in others if label not in negative]
    if len(negative) == 1 and len(rest) > 1:
        numbers = {int(label) for label in rest if label.isdecimal()}
        signs[negative[0]] = len(numbers) == len(rest) > 2 and numbers == {*range(max(numbers) + 1)}
    return signs


def in_one_script(text: str) -> str:
    """Returns a text of equal length, without words that mix look-alike letters of two scripts. In
    a word of Latin and Cyrillic or Greek letters, letters of the rarer script are replaced by
    letters of the other script that look like them."""

    def of_word(word: re.Match[str]) -> str:
        changed = word[0]
        scripts = Counter(unicodedata.name(c, "").split(" ")[0] for c in changed)
        for script, (own, latin) in _LOOK_ALIKE.items():
            if scripts["LATIN"] and scripts[script]:
                is_latin = scripts["LATIN"] >= scripts[script]
                table = str.maketrans(own, latin) if is_latin else str.maketrans(latin, own)
                changed = changed.translate(table)
        return changed

    return text if text.isascii() else re.sub(r"[^\W\d_]+", of_word, text)


def folded_label(label: str) -> str:
    """Returns a key that is equal for labels that differ only in case, Latin accents, the form of
    characters, look-alike letters of another script, marks around words, signs between words, or
    the spelling of a number. Truth values become 0 and 1."""
    shown = "".join(c for c in html.unescape(label) if unicodedata.category(c) != "Cf")
    plain = unicodedata.normalize("NFKD", in_one_script(shown).translate(_QUOTES).casefold())
    text = unicodedata.normalize("NFC", re.sub("[\u0300-\u036f\ufe0e\ufe0f]", "", plain))
    text = re.sub(r"(?<=\w)[\s_\u2010-\u2015-]+(?=\w)", " ", text.strip("\"'` "))
    text = " ".join(re.sub(r"(?<=\w)[.:;!,]+$", "", text).split()) or label
    if number := _NUMBER.fullmatch(text):
        return str(int(number[1]))
    return {"true": "1", "false": "0"}.get(text, text)


def alike(labels: Iterable[str]) -> list[list[str]]:
    """Returns the groups of two or more labels with the same ``folded_label``."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[folded_label(label)].append(label)
    return [group for group in groups.values() if len(group) > 1]


def read_label(value: Any, place: str, no_label: NoLabel, case: LabelCase) -> str | None:
    """Returns the label in a cell, or None if it is in ``no_label``."""
    label = label_of(value, place)
    if no_label not in (ASK, NONE) and label in map(str, no_label):
        return None
    return folded_label(label) if case == "fold" else label


def check_unclear(counts: Mapping[str, int], settings: Mapping[str, Any]) -> None:
    """Raises ValueError for labels that can be read in two ways, unless the ``settings`` of the
    source choose one."""
    signs = signs_of_none(counts)
    if signs and settings.get(NO_LABEL_SIGNS, ASK) == ASK:
        shown = ", ".join(f"{sign!r} ({counts[sign]:,} rows)" for sign in signs)
        raise ValueError(
            f"{NO_LABEL_SIGNS}: is {shown} a class, or the sign that a row has no label? "
            f"`{NO_LABEL_SIGNS}: [{', '.join(map(repr, signs))}]` leaves these rows out, "
            f"`{NO_LABEL_SIGNS}: {NONE}` keeps them (of make new --set no_label=SIGN,... or '')"
        )
    if settings.get(LABEL_CASE, ASK) == ASK and (groups := alike(counts)):
        shown = "; ".join(
            " and ".join(
                f"{label!r} ({counts[label]:,} rows{_odd_letter(label)})" for label in group
            )
            for group in groups
        )
        raise ValueError(
            f"{LABEL_CASE}: labels that look alike: {shown}; `{LABEL_CASE}: fold` makes them one "
            f"class, `{LABEL_CASE}: keep` keeps them apart (--set label_case=fold of make new)"
        )


def written_labels(labels: Sequence[str]) -> str:
    """Returns a set of labels as text, always in the same order."""
    return json.dumps(sorted({*labels}), ensure_ascii=False)


def _odd_letter(label: str) -> str:
    """Returns " with NAME" for a label's first letter of the wrong script, or "" without one."""
    pairs = zip(label, in_one_script(label), strict=True)
    odd = [unicodedata.name(letter) for letter, usual in pairs if letter != usual]
    return f" with {odd[0]}" if odd else ""
