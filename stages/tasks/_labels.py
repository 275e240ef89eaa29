"""Reads labels from files: one spelling for each, and the signs that a row has no label."""

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

from stages.tasks._cells import MISSING, is_missing, text_of
from stages.tasks._task import CellSetting

ASK, NONE = "ask", "none"
NO_LABEL_SIGNS = "no_label"
LABEL_CASE = "label_case"
LabelCase = Literal["ask", "keep", "fold"]
# The soft hyphen, what has no width, and marks of direction.
_INVISIBLE = dict.fromkeys([0xAD, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, 0xFEFF])


# Labels in ``no_label`` are left out. ``label_case`` says whether labels that differ in case alone
# are one. ``label_names`` are the names of labels that are numbers, from 0; -1 is no label.
LABEL_SETTINGS = {
    NO_LABEL_SIGNS: CellSetting(list[str | int] | Literal["ask", "none"], ASK),
    LABEL_CASE: CellSetting(LabelCase, ASK),
    "label_names": CellSetting(list[str] | Literal["none"], NONE),
}


def label_in(cell: Any, place: str, settings: SimpleNamespace) -> str | None:
    """Returns the label in a cell by ``LABEL_SETTINGS``, or None if the cell says that the row has
    none. Raises ValueError for a label that is neither a name nor the number of a name."""
    label, names = label_of(cell, place), settings.label_names
    if names != NONE and label not in names:
        if label == "-1":
            return None
        if not label.isdecimal() or int(label) >= len(names):
            raise ValueError(f"{place}: label_names has no {label!r}")
        label = names[int(label)]
        if label == "-1":
            return None
    if settings.no_label not in (ASK, NONE) and label in map(str, settings.no_label):
        return None
    return folded_label(label) if settings.label_case == "fold" else label


def label_of(value: Any, place: str) -> str:
    """Returns a label as text. 1, 1.0 and "1" are one label, and so are texts that differ only in
    invisible characters, blanks or Unicode's form of accents. Raises the errors of ``text_of``."""
    text = text_of(value, place).translate(_INVISIBLE)
    text = " ".join(unicodedata.normalize("NFC", text_of(text, place)).split())
    whole = re.fullmatch(r"([+-]?\d+)\.0+", text)
    return str(int(whole[1])) if whole else text


def signs_of_none(counts: Mapping[str, int]) -> dict[str, bool]:
    """Returns the labels that may mean that a row has no label, each with True if it can mean
    nothing else. The only negative number (-1 for hidden labels in SNLI and GLUE) can mean nothing
    else next to 0, 1, 2 and so on; next to 0 and 1 alone, it may be a class."""
    signs = {label: label.lower() in MISSING for label in counts if is_missing(label)}
    others = [label for label in counts if label not in signs]
    negative = [label for label in others if re.fullmatch(r"-\d+", label)]
    rest = [label for label in others if label not in negative]
    if len(negative) == 1 and len(rest) > 1:
        numbers = {int(label) for label in rest if label.isdecimal()}
        signs[negative[0]] = len(numbers) == len(rest) > 2 and numbers == {*range(max(numbers) + 1)}
    return signs


def folded_label(label: str) -> str:
    """Returns a key that is equal for labels that differ only in case, Latin accents, signs between
    words, or a mark at the end."""
    plain = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", label.casefold()))
    text = re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", unicodedata.normalize("NFC", plain))
    return re.sub(r"(?<=\w)[.:;!,]+$", "", text)


def alike(labels: Iterable[str]) -> list[list[str]]:
    """Returns the groups of two or more labels with the same ``folded_label``."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[folded_label(label)].append(label)
    return [group for group in groups.values() if len(group) > 1]


def check_unclear(counts: Mapping[str, int], settings: Mapping[str, Any]) -> None:
    """Raises ValueError for labels that can be read in two ways, unless the ``settings`` of the
    source choose one."""

    shown = {label: f"{label!r} ({number:,} rows)" for label, number in counts.items()}
    signs = signs_of_none(counts)
    if signs and settings.get(NO_LABEL_SIGNS, ASK) == ASK:
        listed = ", ".join(shown[sign] for sign in signs)
        raise ValueError(
            f"no_label: is {listed} a class, or the sign that a row has no label? "
            f"`no_label: [{', '.join(map(repr, signs))}]` leaves these rows out, `no_label: none` "
            "keeps them (make new --set no_label=SIGN,... or '')"
        )
    if settings.get(LABEL_CASE, ASK) == ASK and (groups := alike(counts)):
        listed = "; ".join(" and ".join(shown[label] for label in group) for group in groups)
        raise ValueError(
            f"label_case: labels look alike: {listed}; "
            "`label_case: fold` makes them one class, `label_case: keep` keeps them apart (make "
            "new --set label_case=fold)"
        )


def written_labels(labels: Sequence[str]) -> str:
    """Returns a set of labels as text, always in the same order."""
    return json.dumps(sorted({*labels}), ensure_ascii=False)
