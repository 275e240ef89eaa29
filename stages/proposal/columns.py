"""The kind of task that data are of, and which of its columns each column of a row is."""

import re
from collections.abc import Mapping

from stages.proposal.asked import Asked, Notes
from stages.proposal.labelled import check_label, labelled, targets
from stages.proposal.profile import Column
from stages.proposal.roles import (
    CHOICES,
    INPUTS,
    LABEL_WORDS,
    NO_TAGS,
    TARGETS,
    Guess,
    by_word,
    first,
    told,
    wants,
)
from stages.proposal.several_labels import several_labels


def guess(columns: Mapping[str, Column], asked: Asked, notes: Notes, *, place: str) -> Guess:
    """Raises ValueError, which begins with ``place``, for data that hold no task."""
    for name in (name for names in asked.columns.values() for name in names):
        if name not in columns:
            raise ValueError(f"{place}: no column {name!r}; there are: {', '.join(columns)}")
    for find in (_questions, _choices, _tags, several_labels, _written, labelled):
        found = find(columns, asked, notes)
        if found is not None:
            return found
    raise ValueError(f"{place}: {_why_none(columns, asked)}")


# Questions, choices, tags ------------------------------------------------------------------------


def _questions(columns: Mapping[str, Column], asked: Asked, notes: Notes) -> Guess | None:
    answers = told(asked, "answers") or first(
        c.name for c in columns.values() if c.holds == "answers"
    )
    texts = sorted((c for c in columns.values() if c.is_text), key=lambda c: c.letters)
    if answers is None or len(texts) < 2 or not wants(asked, "span_qa"):
        return None
    question = told(asked, "question") or by_word(texts, {"question", "query"}) or texts[0].name
    context = told(asked, "context") or by_word(texts, {"context", "passage"}) or texts[-1].name
    notes.seen.append(
        f"Questions about a context (span_qa): {answers} holds answers and their place in "
        f"{context}."
    )
    return Guess("span_qa", {"question": question, "context": context, "answers": answers})


def _choices(columns: Mapping[str, Column], asked: Asked, notes: Notes) -> Guess | None:
    names = asked.columns.get("choices") or [
        c.name for c in columns.values() if re.fullmatch(CHOICES, c.name.lower()) and not c.is_label
    ]
    if not names:
        names = [
            c.name for c in columns.values() if c.holds == "lists" and "choices" in c.name.lower()
        ]
    is_list = len(names) == 1 and columns[names[0]].holds == "lists"
    others = [c for c in columns.values() if c.name not in names]
    label = told(asked, "label") or _label_of_choices(others)
    texts = [c for c in others if c.is_text]
    text = told(asked, "text") or by_word(texts, {"premise", "ctx", "context"}) or _longest(texts)
    if not (is_list or len(names) > 1) or label is None or text is None:
        return None
    if not wants(asked, "multiple_choice"):
        return None
    question = told(asked, "question") or by_word(
        [c for c in others if c.name != text and c.holds == "strings"], {"question"}
    )
    number = asked.first_choice or _first_choice(columns[label])
    notes.seen.append(
        f"Several choices for each text (multiple_choice): {', '.join(names)}; {label} is the "
        f"right one, the first of them is called {number}. (--first-choice)"
    )
    found: dict[str, str | list[str]] = {
        "text": text,
        "choices": names[0] if is_list else names,
        "label": label,
    }
    if question is not None:
        found["question"] = question
    return Guess(
        "multiple_choice", found, {"first_choice": number if number == "A" else int(number)}
    )


def _label_of_choices(columns: list[Column]) -> str | None:
    found = [c for c in columns if re.fullmatch(r"[0-9]|[A-Ja-j]", "".join(c.values)[:1] or "-")]
    found = [c for c in found if all(len(value) == 1 for value in c.values)]
    return found[0].name if len(found) == 1 else by_word(found, LABEL_WORDS | {"answer", "right"})


def _first_choice(label: Column) -> str:
    if any(value.isalpha() for value in label.values):
        return "A"
    return "0" if "0" in label.values else "1"


def _tags(columns: Mapping[str, Column], asked: Asked, notes: Notes) -> Guess | None:
    lists = [c for c in columns.values() if c.holds == "lists"]
    if len(lists) < 2 or not wants(asked, "tagging"):
        return None
    words = told(asked, "words") or by_word(lists, {"words", "tokens", "form"}) or lists[0].name
    others = [c for c in lists if c.name != words and c.is_as_long_as(columns[words])]
    if not others and asked.task != "tagging":
        return None
    others = others or [c for c in lists if c.name != words]
    tags = (
        told(asked, "tags") or by_word(others, {"tags", "ner", "labels", "upos"}) or others[-1].name
    )
    if left := [c.name for c in others if c.name not in (tags, *NO_TAGS)]:
        notes.unclear.append(
            f"Tags are those of {tags}; also there: {', '.join(left)}. (--column tags=NAME)"
        )
    notes.seen.append(f"A tag for each word (tagging): words in {words}, tags in {tags}.")
    return Guess("tagging", {"words": words, "tags": tags})


# Texts -------------------------------------------------------------------------------------------


def _written(columns: Mapping[str, Column], asked: Asked, notes: Notes) -> Guess | None:
    """Text from text, where nothing else can be told by a text."""
    texts = [c for c in columns.values() if c.is_text]
    wanted = asked.task == "seq2seq"
    if not wanted and (asked.task is not None or targets(columns) or "label" in asked.columns):
        return None
    if len(texts) < 2:
        return None
    target = told(asked, "target") or by_word(texts[1:], TARGETS) or texts[1].name
    others = [c for c in texts if c.name != target]
    text = told(asked, "text") or by_word(others, INPUTS) or others[0].name
    notes.seen.append(f"A text from a text (seq2seq): {target} is written from {text}.")
    notes.unclear.append(
        f"Written is {target}; the other way round: --column text={target} --column target={text}."
    )
    return Guess("seq2seq", {"text": text, "target": target})


def _why_none(columns: Mapping[str, Column], asked: Asked) -> str:
    """Why no task was found."""
    shown = "; ".join(column.described() for column in columns.values())
    if len(columns) == 1:
        return f"one column ({shown}); a task needs texts and what is to be told by them"
    texts = [c for c in columns.values() if c.is_text]
    if asked.task:
        return f"no columns of {asked.task} ({shown}); --column names them"
    if not texts and not any(c.holds == "strings" and not c.repeats for c in columns.values()):
        return f"no column with texts ({shown})"
    large = [c for c in columns.values() if c.holds == "strings" and not c.is_text]
    if large and (texts or len(large) > 1):
        check_label(large[-1])
    return f"no column with labels ({shown}); --column label=NAME names it"


def _longest(columns: list[Column]) -> str | None:
    return max(columns, key=lambda c: c.letters).name if columns else None
