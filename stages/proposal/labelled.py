"""Texts with a label or a number each: which column is predicted, and from which texts."""

from collections.abc import Mapping

from stages.proposal.asked import Asked, Notes
from stages.proposal.profile import MOST_LABELS, Column, words_of_name
from stages.proposal.roles import (
    LABEL_WORDS,
    LABELS,
    MOST_RATINGS,
    RATINGS,
    TEXTS,
    Guess,
    are_a_pair,
    told,
    wants,
)


def labelled(columns: Mapping[str, Column], asked: Asked, notes: Notes) -> Guess | None:
    if not wants(asked, "classification", "regression"):
        return None
    named = told(asked, "label") or told(asked, "target")
    if "label" in asked.columns and asked.task != "regression":
        check_label(columns[asked.columns["label"][0]])
    found = [columns[named]] if named else targets(columns)
    if asked.task == "regression":
        found = [c for c in found if c.holds == "numbers"]
    texts = texts_of(columns, asked, {c.name for c in found[:1]})
    if not found or not texts:
        return None
    target, others = found[0], found[1:]
    kind = asked.task or _kind_of(target, asked, notes)
    if kind == "classification":
        check_label(target)
    role = "target" if kind == "regression" else "label"
    read: dict[str, str | list[str]] = {"text": texts[0].name, role: target.name}
    if len(texts) > 1:
        read["text_pair"] = texts[1].name
    _note_labelled(kind, read, target, columns, others, notes)
    return Guess(kind, read)


def targets(columns: Mapping[str, Column]) -> list[Column]:
    """What may be predicted, the likeliest first."""
    order = [*columns]

    def rank(column: Column) -> tuple[int, bool, int]:
        named = 0 if column.name.lower() in LABELS else 2
        if named and words_of_name(column.name) & LABEL_WORDS:
            named = 1
        return named, not column.is_label, -order.index(column.name)

    found = [
        c
        for c in columns.values()
        if not c.is_id and (c.is_label or (c.holds == "numbers" and c.distinct > 1))
    ]
    return sorted(found, key=rank)


def texts_of(columns: Mapping[str, Column], asked: Asked, taken: set[str]) -> list[Column]:
    """The text, and the second one of a pair."""
    given = [told(asked, "text"), told(asked, "text_pair")]
    if given[0]:
        return [columns[name] for name in given if name]
    left = [c for c in columns.values() if c.name not in taken and not c.is_id]
    texts = [c for c in left if c.is_text]
    if not texts:  # words and names are texts, too
        named = [c for c in left if c.holds == "strings" and c.name.lower() in TEXTS]
        texts = named or [c for c in left if c.holds == "strings" and not c.repeats]
    for first, second in zip(texts, texts[1:], strict=False):
        if are_a_pair(first.name, second.name):
            return [first, second]
    named = [c for name in TEXTS for c in texts if c.name.lower() == name]
    return [named[0] if named else max(texts, key=lambda c: c.letters)] if texts else []


def _kind_of(target: Column, asked: Asked, notes: Notes) -> str:
    if target.holds != "numbers" or "label" in asked.columns:
        return "classification"
    are_classes = target.distinct <= MOST_RATINGS or (target.is_label and target.counts_classes)
    if "target" in asked.columns or not target.whole or not are_classes:
        return "regression"
    if target.distinct >= RATINGS:
        notes.unclear.append(
            f"{target.name} has {target.distinct} different whole numbers: taken as classes; as "
            "a scale: --task regression."
        )
    return "classification"


def check_label(label: Column) -> None:
    """Raises ValueError for a column that is no label."""
    if label.filled >= 2 and label.distinct >= 0.9 * label.filled and label.filled >= 10:
        raise ValueError(
            f"{label.name}: {label.distinct:,} different values in {label.filled:,} rows; these "
            "are ids or free text, no labels (--column label=NAME)"
        )
    if label.distinct > MOST_LABELS:
        raise ValueError(
            f"{label.name}: {label.distinct:,} labels in {label.filled:,} rows; at most "
            f"{MOST_LABELS} are taken: merge rare ones, or name another column "
            "(--column label=NAME)"
        )
    if label.distinct < 2:
        raise ValueError(f"{label.name}: all rows have the label {next(iter(label.values), '')!r}")


def _note_labelled(
    kind: str,
    found: Mapping[str, object],
    target: Column,
    columns: Mapping[str, Column],
    others: list[Column],
    notes: Notes,
) -> None:
    what = "A number" if kind == "regression" else "A label"
    read = [str(found[role]) for role in ("text", "text_pair") if role in found]
    notes.seen.append(
        f"{what} for each {'pair of texts' if len(read) > 1 else 'text'} ({kind}): "
        f"{' and '.join(read)} {'are' if len(read) > 1 else 'is'} read, {target.name} is predicted "
        f"({target.distinct:,} different values)."
    )
    role = "target" if kind == "regression" else "label"
    for other in others:
        is_time = other.whole and other.distinct == other.filled
        if other.name not in read and not is_time:
            flag = "target" if other.holds == "numbers" and not other.is_label else "label"
            notes.unclear.append(
                f"{other.name} could be predicted as well ({other.distinct:,} different values): "
                f"--column {flag}={other.name}."
            )
    texts = [c for c in columns.values() if c.is_text and c.name not in (*read, found[role])]
    if texts and len(read) == 1:
        notes.unclear.append(
            f"{', '.join(c.name for c in texts)} not read; as a second text: "
            f"--column text={read[0]} --column text_pair={texts[0].name}."
        )
