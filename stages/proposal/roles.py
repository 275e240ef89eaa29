"""Finds the columns of the data that hold the inputs and the target of a task, if this is clear."""

import re
from collections.abc import Iterable, Mapping

from stages.proposal.column import LABELS, TEXTS, Column, words_of_name
from stages.tasks._kind import Kind

NUM_HOT = 3  # fewest columns of 0 and 1 that are labels, not one label and features
TARGETS = {"target", "tgt", "summary", "translation", "highlights", "output", "answer"}
WORDS, TAGS = {"words", "tokens", "form"}, {"tags", "ner", "upos", "labels"}
ANSWERS, NO_ANSWER = {"answer", "answers", "text"}, {"start", "end", "id", "ids"}
PAIRS = (
    *("premise hypo", "question sentence", "question passage", "question answer"),
    *("query document", "query passage", "claim evidence", "first second"),
)
LISTS_OF_CHOICES = {"choices", "options", "endings", "candidates", "alternatives"}
CHOICES = r"(choice|option|ending|answer|solution|sol|opt|candidate|alternative)s?[_ ]?([a-z]|\d)"

Columns = Mapping[str, Column]
Names = dict[str, str | list[str]]  # of the data's columns, by their role in a row


def clear_columns(kind: Kind, free: Columns) -> Names:
    """Returns the ``free`` columns whose role in a row of the kind is clear."""
    others = dict(span_qa=questions, multiple_choice=_choices, tagging=tags, seq2seq=_texts)
    return others[kind.name](free) if kind.name in others else _labelled(free, kind)


def targets_of(free: Columns) -> list[Column]:
    """Returns the columns that may be predicted: columns with the name of a label, else columns
    with classes or lists of labels, else columns with numbers."""
    others = [column for column in free.values() if not column.is_id]
    labels = [column for column in others if column.is_label]
    numbers = [column for column in others if column.are_numbers and column.distinct > 1]
    named = [column for column in others if column.is_named_label and column in labels + numbers]
    if not named and len(labels) > 1 and all(column.is_hot for column in labels):
        # including columns of a label that all rows or no rows have
        return [column for column in others if column.is_hot]
    return named or labels or numbers


def _labelled(free: Columns, kind: Kind) -> Names:
    """Returns the columns of a text, or of a pair of texts, and of the target."""
    names: Names = {}
    targets = targets_of(free)
    if kind.name == "regression":
        targets = [column for column in targets if column.are_numbers]
    if len(targets) == 1:
        names[kind.target] = targets[0].name
    elif len(targets) >= NUM_HOT and kind.name == "multi_label":
        names[kind.target] = [column.name for column in targets if column.is_hot]
    others = [column for column in free.values() if column.name not in names_read(names)]
    texts = [column for column in others if column.is_text]
    if not texts:  # short strings, such as words and names, may be texts, too
        filled = [column for column in others if column.filled > column.num / 2]
        strings = [c for c in filled if c.are_strings and not (c.is_id or c.are_marks)]
        texts = [c for c in strings if c.name.lower() in TEXTS or not c.recurs]
    if len(texts) == 2 and _are_a_pair(texts[0].name, texts[1].name):
        return names | {"text": texts[0].name, "text_pair": texts[1].name}
    named = [column for column in texts if column.name.lower() in TEXTS]
    return names | _sole("text", texts if len(texts) == 1 else named)


def _texts(free: Columns) -> Names:
    """Returns the columns of a text and of the text that is written from it."""
    texts = [column for column in free.values() if column.is_text]
    target = _sole("target", with_words(texts, TARGETS))
    return _sole("text", [c for c in texts if c.name not in target.values()]) | target


def questions(free: Columns) -> Names:
    """Returns the columns of a question, its context and the answers. The answers may be two
    columns, an answer's text and start, as in a csv file of SQuAD."""
    texts = [column for column in free.values() if column.is_text]
    names = (
        _sole("question", with_words(texts, {"question", "query"}))
        | _sole("context", with_words(texts, {"context", "passage", "paragraph", "article"}))
        | _sole("answers", [column for column in free.values() if column.are_answers])
    )
    others = [column for column in free.values() if column.name not in names.values()]
    starts = with_words(others, {"start"})
    of_answers = [c for c in with_words(others, ANSWERS) if not words_of_name(c.name) & NO_ANSWER]
    if "answers" not in names and len(starts) == len(of_answers) == 1:
        names["answers"] = [of_answers[0].name, starts[0].name]
    return names


def _choices(free: Columns) -> Names:
    choices = choices_of(free)
    names: Names = {"choices": choices} if choices else {}
    others = [column for column in free.values() if column.name not in choices]
    numbers = [c for c in others if c.values.str.fullmatch("[0-9A-Ja-j]").all()]
    named = [c for c in numbers if words_of_name(c.name) & (LABELS | {"answer", "right"})]
    names |= _sole("label", numbers if len(numbers) == 1 else named)
    texts = [column for column in others if column.is_text]
    premises = with_words(texts, {"premise", "ctx", "context"})
    text = _sole("text", texts if len(texts) == 1 else premises)
    strings = [c for c in with_words(others, {"question"}) if c.are_strings]
    return names | text | _sole("question", [c for c in strings if c.name not in text.values()])


def choices_of(free: Columns) -> list[str] | str:
    """Returns columns such as choice1 and choice2, or else the only column with lists of choices;
    an empty list if there are none."""
    several = [c.name for c in free.values() if re.fullmatch(CHOICES, c.name.lower())]
    lists = [c for c in with_words(free.values(), LISTS_OF_CHOICES) if c.are_lists]
    lists = [c.name for c in lists if c.distinct > 1]
    return several if len(several) > 1 else lists[0] if len(lists) == 1 else []


def tags(free: Columns) -> Names:
    """Returns the column with lists of words and the column with one tag for each word."""
    lists = [column for column in free.values() if column.are_lists]
    words = with_words(lists, WORDS)
    if len(words) != 1:
        return {}
    tags = [c for c in lists if c is not words[0] and c.is_as_long_as(words[0])]
    named = with_words(tags, TAGS)
    return {"words": words[0].name} | _sole("tags", tags if len(tags) == 1 else named)


def _are_a_pair(first: str, second: str) -> bool:
    """Whether two columns have names such as premise and hypothesis, or sentence1 and sentence2."""
    one, other = first.lower(), second.lower()
    by_words = any(a in one and b in other for a, b in map(str.split, PAIRS))
    return by_words or are_numbered(first, second)


def are_numbered(first: str, second: str) -> bool:
    """Whether two columns have names such as label1 and label2, or sentence_A and sentence_B."""
    one, other = first.lower(), second.lower()
    unlike = [a + b for a, b in zip(one, other, strict=False) if a != b]
    return len(one) == len(other) > 1 and unlike in (["12"], ["ab"], ["01"])


def with_words(columns: Iterable[Column], words: set[str]) -> list[Column]:
    """Returns the columns whose names contain one of the words."""
    return [column for column in columns if words_of_name(column.name) & words]


def _sole(role: str, columns: list[Column]) -> Names:
    return {role: columns[0].name} if len(columns) == 1 else {}


def names_read(names: Names) -> list[str]:
    """Returns the names of all columns of the data in ``names``."""
    return [name for chosen in names.values() for name in as_list(chosen)]


def as_list(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]
