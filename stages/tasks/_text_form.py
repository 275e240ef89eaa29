"""A task as text to text: what a model reads of a row, and what it writes (T5; Raffel et al. 2020,
section 2.4 and appendix D).

    classification    reviews text: a fine film                     -> positive
    tagging           names words: Ada met Bob                      -> B-person O B-person
    span_qa           facts question: Who wrote? context: Ada did.  -> Ada
    seq2seq           the task's prefix and the row's text          -> its target

The input begins with the task's name, so that one model can learn several tasks; before the text of
each column is the column's name.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from stages.core.components import Settings
from stages.tasks._cells import Row
from stages.tasks._plain_text import plain_text

NO_LABEL = "<no label>"  # prediction for a text that is not exactly one label; always wrong


def verbalised(pairs: Iterable[str]) -> dict[str, str]:
    """Parses ``label=words`` pairs into {label: words}; raises ValueError for any other form."""
    words_by_label: dict[str, str] = {}
    for pair in pairs:
        label, _, words = pair.partition("=")
        if not label or not words.strip():
            raise ValueError(f"verbalisers: {pair!r} is not of the form label=words")
        if label in words_by_label:
            raise ValueError(f"verbalisers: the label {label!r} has two")
        words_by_label[label] = words.strip()
    return words_by_label


def label_words(labels: Sequence[str], verbalisers: Iterable[str]) -> dict[str, str]:
    """Returns the text of each label: its verbaliser, or the label with blanks for underscores.

    Raises ValueError for the verbaliser of an unknown label, and for labels with the same text.
    """
    given = verbalised(verbalisers)
    for label in given:
        if label not in labels:
            raise ValueError(f"verbalisers: {label!r} is not a label; labels: {', '.join(labels)}")
    if NO_LABEL in labels:
        raise ValueError(f"the label {NO_LABEL!r} is reserved for wrong predictions; rename it")
    words = {label: given.get(label, label.replace("_", " ").strip()) for label in labels}
    for word, number in Counter(map(plain_text, words.values())).items():
        if number > 1:
            same = " and ".join(label for label in words if plain_text(words[label]) == word)
            raise ValueError(f"verbalisers: labels {same} share the verbaliser {word!r}")
    return words


class TextForm(ABC):
    """The rows of a task as text."""

    def __init__(self, columns: Sequence[str], key: str, record: Settings) -> None:
        """Takes the input columns in order, the task's key in params.yaml, and its task.json."""
        self.columns, self.key, self.settings = columns, key, record["task"]
        self.words = self.words_of(record["labels"])

    def words_of(self, labels: Sequence[str]) -> dict[str, str]:
        """Returns the text of each class; none if answers are free text."""
        return {}

    def input(self, row: Row) -> str:
        """Returns the text that a model reads."""
        return " ".join(chain.from_iterable(self.parts(row)))

    def parts(self, row: Row) -> list[tuple[str, str]]:
        """Returns the (name, text) pairs of the input: ``("context:", "Ada did.")``."""
        columns = [column for column in self.columns if column in row]
        texts = [row[c] if isinstance(row[c], str) else " ".join(row[c]) for c in columns]
        names = [f"{column}:" for column in columns]
        return list(zip([f"{self.key} {names[0]}", *names[1:]], texts, strict=True))

    @abstractmethod
    def answer(self, row: Row) -> str | None:
        """Returns the text to write, or None if the answer is unknown."""

    def prediction(self, row: Row, text: str) -> str:
        """Returns the prediction that a written text means, in the form that metrics compare."""
        return text
