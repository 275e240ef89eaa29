"""Which columns the rows of each kind have, and by which names data call them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stages.core.artifacts import Json
from stages.kinds._kind import KINDS
from stages.proposal.asked import Asked
from stages.proposal.profile import Column, words_of_name

KINDS_OF_STUDIES = (
    "classification",
    "multi_label",
    "regression",
    "tagging",
    "span_qa",
    "multiple_choice",
    "seq2seq",
)
ROLES = tuple(
    dict.fromkeys(
        column
        for kind in KINDS_OF_STUDIES
        for column in (*KINDS[kind].inputs, *KINDS[kind].optional, KINDS[kind].target)
    )
)
LABELS = ("label", "labels", "class", "category", "target", "gold", "y", "sentiment", "intent")
LABEL_WORDS = {*LABELS, "topic", "stars", "rating", "score", "judgment", "judgement", "polarity"}
TEXTS = ("text", "sentence", "review", "content", "body", "comment", "tweet", "document", "message")
TARGETS = {
    "target",
    "tgt",
    "summary",
    "translation",
    "highlights",
    "output",
    "simplified",
    "answer",
}
INPUTS = {"text", "source", "src", "document", "article", "input", "dialogue", "question"}
NO_TAGS = ("ID", "LEMMA", "FEATS", "HEAD", "DEPS", "MISC")  # columns of CoNLL-U
PAIRS = (
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "answer"),
    ("query", "document"),
    ("query", "passage"),
    ("claim", "evidence"),
    ("first", "second"),
)
CHOICES = r"(choice|option|ending|answer|solution|sol|opt|candidate|alternative)s?[_ ]?([a-z]|\d)"
MOST_RATINGS = 20  # different whole numbers that may be classes
RATINGS = 4  # so many that they may be a scale


@dataclass
class Guess:
    """``columns`` of the data by those of a row, and further ``settings`` of the source."""

    kind: str
    columns: dict[str, str | list[str]]
    settings: Json = field(default_factory=dict)


def told(asked: Asked, role: str) -> str | None:
    """The column that a flag names."""
    return asked.columns[role][0] if role in asked.columns else None


def wants(asked: Asked, *kinds: str) -> bool:
    """Whether a flag leaves one of the kinds."""
    return asked.task is None or asked.task in kinds


def by_word(columns: list[Column], words: set[str]) -> str | None:
    """The first whose name has one of the words."""
    return first(c.name for c in columns if words_of_name(c.name) & words)


def first(names: Iterable[str]) -> str | None:
    return next(iter(names), None)


def are_a_pair(first: str, second: str) -> bool:
    """Names such as premise and hypothesis, sentence1 and sentence2."""
    one, other = first.lower(), second.lower()
    if any(a in one and b in other for a, b in PAIRS):
        return True
    stem, end = one[:-1], one[-1:]
    return (
        other[:-1] == stem
        and bool(stem)
        and (end, other[-1:]) in (("1", "2"), ("a", "b"), ("0", "1"))
    )
