"""A task as text: what a model reads of a row, and what it is to write (T5; Raffel et al. 2020,
section 2.4 and appendix D).

    classification    reviews text: a fine film                     -> positive
    tagging           names words: Ada met Bob                      -> B-person O B-person
    span_qa           facts question: Who wrote? context: Ada did.  -> Ada
    seq2seq           the row's text behind the task's own prefix   -> its target

A text begins with the task's name, so that one model can learn several, and each part of the input
with that of its column.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.kinds._kind import KINDS, plain_text

FORMS = ("classification", "seq2seq", "span_qa", "tagging")  # the kinds of task that have one
NO_LABEL = "<no label>"  # the prediction where no label, or more than one, is found: it is wrong
OUTSIDE = "O"  # what a word without a tag is said to be
NONE = "none"


def verbalised(pairs: Iterable[str]) -> dict[str, str]:
    """``label=words`` as {label: words}; raises ValueError for what is not of that form."""
    found: dict[str, str] = {}
    for pair in pairs:
        label, _, words = pair.partition("=")
        if not label or not words.strip():
            raise ValueError(f"verbalisers: {pair!r} is not of the form label=words")
        if label in found:
            raise ValueError(f"verbalisers: the label {label!r} has two")
        found[label] = words.strip()
    return found


def label_words(labels: Sequence[str], verbalisers: Iterable[str]) -> dict[str, str]:
    """What each label is called in a text: its verbaliser, else itself, underscores as blanks.

    Raises ValueError for a verbaliser of what is no label, and for labels that one text stands for.
    """
    given = verbalised(verbalisers)
    for label in given:
        if label not in labels:
            raise ValueError(f"verbalisers: {label!r} is no label; there are {', '.join(labels)}")
    if NO_LABEL in labels:
        raise ValueError(f"the label {NO_LABEL!r} stands for a prediction that is none; rename it")
    words = {label: given.get(label, label.replace("_", " ").strip()) for label in labels}
    for word, number in Counter(map(plain_text, words.values())).items():
        if number > 1:
            raise ValueError(f"verbalisers: {number} labels are {word!r}, which tells none")
    return words


class TextForm:
    """The rows of a task as text, from what ``prepare_task`` wrote about it (``task.json``)."""

    def __init__(self, key: str, record: Mapping[str, Any]) -> None:
        self._key, self._task = key, record["task"]
        self._kind = self._task["name"]
        assert self._kind in FORMS
        self.words: dict[str, str] = {}  # of each answer, where answers are classes
        if self._kind == "classification":
            self.words = label_words(record["labels"], self._task.get("verbalisers", ()))
        elif self._kind == "tagging":
            self.words = {tag: tag for tag in record["labels"]}

    def input(self, row: Mapping[str, Any]) -> str:
        """What is read."""
        if self._kind == "seq2seq":
            prefix = self._task.get("prefix", NONE)
            return row["text"] if prefix == NONE else prefix + row["text"]
        kind = KINDS[self._kind]
        columns = [column for column in (*kind.inputs, *kind.optional) if column in row]
        values = {c: row[c] if isinstance(row[c], str) else " ".join(row[c]) for c in columns}
        return " ".join([self._key, *(f"{column}: {values[column]}" for column in columns)])

    def answer(self, row: Mapping[str, Any]) -> str | None:
        """What is to be written; None where that is not known. Of several right answers to a
        question it is the first, and nothing where there is none."""
        match self._kind:
            case "classification" if "label" in row:
                return self.words[row["label"]]
            case "tagging" if "tags" in row:
                return " ".join(row["tags"])
            case "span_qa" if "answers" in row:
                return row["answers"][0]["text"] if row["answers"] else ""
            case _:
                return row.get("target")

    def prediction(self, row: Mapping[str, Any], text: str) -> str:
        """What a text that was written stands for, as ``text.labelled.answer`` has it.

        It is a label if it is exactly that label's words; a tag is that of the word whose place in
        the row is its own.
        """
        if self._kind == "classification":
            label_of = {plain_text(words): label for label, words in self.words.items()}
            return label_of.get(plain_text(text), NO_LABEL)
        if self._kind == "tagging":
            found = [tag if tag in self.words else OUTSIDE for tag in text.split()]
            length = len(row["words"])
            return " ".join((found + [OUTSIDE] * length)[:length])
        return text
