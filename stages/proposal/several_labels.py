"""Texts with any number of labels each: in a list, or between separators in a cell."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stages.proposal.asked import Asked, Notes
from stages.proposal.labelled import texts_of
from stages.proposal.profile import LABEL_WORDS, LIST, MOST_LABELS, Column, words_of_name
from stages.proposal.roles import LABEL_WORDS as LABELS_NAMES
from stages.proposal.roles import TARGETS, Guess, told, wants

SEPARATORS = ("|", ";", ",")
USUAL = ","  # what the source takes without being told
RECUR = 4  # times that a label occurs, in the mean
LEAST_SEVERAL = 0.02  # share of rows with more than one label


@dataclass(frozen=True)
class _Parted:
    """A column whose cells hold labels between separators."""

    column: Column
    separator: str
    labels: Counter[str]
    numbers: Counter[int]  # of labels in a row

    @property
    def is_several(self) -> bool:
        """Few labels that recur, one in some rows and more in others ("Rome, Italy" has always
        two)."""
        total = self.labels.total()
        several = sum(rows for number, rows in self.numbers.items() if number > 1)
        words = sum(len(label.split()) * n for label, n in self.labels.items())
        return (
            2 <= len(self.labels) <= MOST_LABELS
            and total >= RECUR * len(self.labels)
            and words <= LABEL_WORDS * total
            and len(self.numbers) > 1
            and several >= LEAST_SEVERAL * self.column.filled
        )


def several_labels(columns: Mapping[str, Column], asked: Asked, notes: Notes) -> Guess | None:
    if not wants(asked, "multi_label") or not asked.columns.keys().isdisjoint({"label", "target"}):
        return None
    named = told(asked, "labels")
    if not (named or asked.task) and any(map(_is_named_label, columns.values())):
        notes.unclear += _also([c.name for c in columns.values() if _is_several_in_lists(c)])
        return None  # one label a row is said to be the label
    looked_at = [columns[named]] if named else [*columns.values()]
    ways = [parted for column in looked_at for parted in _ways(column)]
    found = [parted for parted in ways if parted.is_several]
    if (named or asked.task) and not found:  # whatever the labels look like
        found = sorted(ways, key=lambda parted: -parted.labels.total() / len(parted.labels))
    if not found:
        return None
    chosen = found[0]
    texts = texts_of(columns, asked, {chosen.column.name})
    if not texts:
        return None
    read: dict[str, str | list[str]] = {"text": texts[0].name, "labels": chosen.column.name}
    if len(texts) > 1:
        read["text_pair"] = texts[1].name
    is_list = chosen.separator == LIST
    _note(chosen, [text.name for text in texts], notes)
    settings = {} if is_list or chosen.separator == USUAL else {"label_separator": chosen.separator}
    return Guess("multi_label", read, settings)


def _is_named_label(column: Column) -> bool:
    """One label, number or text a row, and named so; unless its values are several labels."""
    named = words_of_name(column.name)
    if named & TARGETS and column.is_text:
        return True
    is_target = column.is_label or (column.holds == "numbers" and column.distinct > 1)
    is_several = any(each.is_several for each in _ways(column))
    return bool(named & LABELS_NAMES) and is_target and not is_several


def _is_several_in_lists(column: Column) -> bool:
    return column.holds == "lists" and any(each.is_several for each in _ways(column))


def _also(names: list[str]) -> Iterator[str]:
    if names:
        yield (
            f"Any number of labels for each text could be predicted as well ({', '.join(names)}): "
            f"--task multi_label --column labels={names[0]}."
        )


def _ways(column: Column) -> Iterator[_Parted]:
    """How the cells of a column may be parted."""
    separators = (LIST,) if column.holds == "lists" else SEPARATORS
    if column.holds not in ("lists", "strings"):
        return
    for separator in separators:
        labels, numbers = Counter[str](), Counter[int]()
        for value, rows in column.values.items():
            parts = {part.strip() for part in value.split(separator) if part.strip()}
            labels.update(dict.fromkeys(parts, rows))
            numbers[len(parts)] += rows
        numbers[0] += column.num - column.filled
        if labels:
            yield _Parted(column, separator, labels, +numbers)


def _note(chosen: _Parted, texts: list[str], notes: Notes) -> None:
    name, mean = chosen.column.name, chosen.labels.total() / max(chosen.column.num, 1)
    how = "in a list" if chosen.separator == LIST else f"between {chosen.separator!r}"
    notes.seen.append(
        f"Any number of labels for each text (multi_label): {' and '.join(texts)} "
        f"{'are' if len(texts) > 1 else 'is'} read, those in {name} are predicted "
        f"({len(chosen.labels):,} labels {how}, {mean:.1f} a row)."
    )
    if chosen.separator != LIST:
        notes.unclear.append(
            f"Each combination in {name} as one class: --task classification --column label={name}."
        )
