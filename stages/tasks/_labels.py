"""Reads labels from files: one spelling for each, and the signs that a row has no label."""

import html
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stages.tasks._cells import MISSING, is_missing, text_of
from stages.tasks._task import CellSettings

ASK, NONE = "ask", "none"
NO_LABEL_SIGNS = "no_label"
LABEL_CASE = "label_case"
NoLabel = list[str | int] | Literal["ask", "none"]
LabelCase = Literal["ask", "keep", "fold"]
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201a\u2032"), "'")
_QUOTES |= dict.fromkeys(map(ord, "\u201c\u201d\u201e\u00ab\u00bb\u2033"), '"')


@dataclass(frozen=True, kw_only=True)
class LabelCells(CellSettings):
    """Labels in ``no_label`` are left out. ``label_case`` says whether labels that differ in case
    alone are one."""

    no_label: NoLabel = ASK
    label_case: LabelCase = ASK

    def read(self, value: Any, place: str) -> str | None:
        """Returns the label in a cell, or None if it is in ``no_label``."""
        label = label_of(value, place)
        if self.no_label not in (ASK, NONE) and label in map(str, self.no_label):
            return None
        return folded_label(label) if self.label_case == "fold" else label


def label_of(value: Any, place: str) -> str:
    """Returns a label as text. 1, 1.0 and "1" are one label, and so are texts that differ only in
    invisible characters, blanks or Unicode's form of accents.

    Raises the errors of ``text_of``.
    """
    text = text_of(value, place).translate(_INVISIBLE)
    ends = [i for i, c in enumerate(text) if not c.isspace() and unicodedata.category(c) != "Cf"]
    text = text_of(text[ends[0] : ends[-1] + 1] if ends else "", place)
    text = " ".join(unicodedata.normalize("NFC", text).split())
    whole = re.fullmatch(r"([+-]?\d+)\.0+", text)
    return str(int(whole[1])) if whole else text


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


def folded_label(label: str) -> str:
    """Returns a key that is equal for labels that differ only in case, Latin accents, the form of
    characters, marks around words, signs between words, or the spelling of a number. Truth values
    become 0 and 1."""
    shown = "".join(c for c in html.unescape(label) if unicodedata.category(c) != "Cf")
    plain = unicodedata.normalize("NFKD", shown.translate(_QUOTES).casefold())
    text = unicodedata.normalize("NFC", re.sub("[\u0300-\u036f\ufe0e\ufe0f]", "", plain))
    text = re.sub(r"(?<=\w)[\s_\u2010-\u2015-]+(?=\w)", " ", text.strip("\"'` "))
    text = " ".join(re.sub(r"(?<=\w)[.:;!,]+$", "", text).split()) or label
    if number := re.fullmatch(r"([+-]?\d+)(?:[.,]0*)?", text):
        return str(int(number[1]))
    return {"true": "1", "false": "0"}.get(text, text)


def alike(labels: Iterable[str]) -> list[list[str]]:
    """Returns the groups of two or more labels with the same ``folded_label``."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[folded_label(label)].append(label)
    return [group for group in groups.values() if len(group) > 1]


def check_unclear(counts: Mapping[str, int], settings: Mapping[str, Any]) -> None:
    """Raises ValueError for labels that can be read in two ways, unless the ``settings`` of the
    source choose one."""

    def shown(labels: Iterable[str], separator: str) -> str:
        return separator.join(f"{label!r} ({counts[label]:,} rows)" for label in labels)

    signs = signs_of_none(counts)
    if signs and settings.get(NO_LABEL_SIGNS, ASK) == ASK:
        raise ValueError(
            f"{NO_LABEL_SIGNS}: is {shown(signs, ', ')} a class, or the sign that a row has no "
            f"label? `{NO_LABEL_SIGNS}: [{', '.join(map(repr, signs))}]` leaves these rows out, "
            f"`{NO_LABEL_SIGNS}: {NONE}` keeps them (of make new --set no_label=SIGN,... or '')"
        )
    if settings.get(LABEL_CASE, ASK) == ASK and (groups := alike(counts)):
        raise ValueError(
            f"{LABEL_CASE}: labels that look alike: "
            f"{'; '.join(shown(group, ' and ') for group in groups)}; `{LABEL_CASE}: fold` makes "
            f"them one class, `{LABEL_CASE}: keep` keeps them apart (--set label_case=fold of make "
            "new)"
        )


def written_labels(labels: Sequence[str]) -> str:
    """Returns a set of labels as text, always in the same order."""
    return json.dumps(sorted({*labels}), ensure_ascii=False)
