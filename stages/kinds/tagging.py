"""Sentences as lists of words, with one tag for each word."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.kinds._cells import structured
from stages.kinds._kind import Kind, Row
from stages.kinds._tags import OUTSIDE, Form, Scheme, to_bio
from stages.kinds._text_form import TextForm

WORDS_CHECKED = 1000
LANGUAGE_AND_WORD = r"[a-z]{2,}(-[a-z]+)*:\S.*"  # en:Rome


class _AsText(TextForm):
    """Writes the tags, joined by blanks. The n-th written tag is the tag of the n-th word; unknown
    and missing tags are read as ``OUTSIDE``."""

    def words_of(self, labels: Sequence[str]) -> dict[str, str]:
        return {tag: tag for tag in labels}

    def answer(self, row: Row) -> str | None:
        return " ".join(row["tags"]) if "tags" in row else None

    def prediction(self, row: Row, text: str) -> str:
        tags = [tag if tag in self.words else OUTSIDE for tag in text.split()]
        length = len(row["words"])
        return " ".join((tags + [OUTSIDE] * length)[:length])


def listed(cell: Any, column: str) -> Any:
    """Returns a cell of words or of tags as a list; commas may separate the tags of a text."""
    cell = structured(cell)
    if not isinstance(cell, str):
        return cell
    return (cell.replace(",", " ") if column == "tags" and " " not in cell else cell).split()


class TaggedWords(Kind):
    """Rows of ``words`` and as many ``tags``, of single words or of spans in BIO.

    Both are lists, or texts with blanks between words and blanks or commas between tags.

    ``tag_scheme`` is the scheme of the data's tags, which are converted to BIO; ``tag_form`` says
    how they are written. If the data has numbers for tags, ``tag_names`` are the tags from 0.
    """

    inputs = ("words",)
    target = "tags"
    lists = ("words", "tags")
    metrics = ("entity_f1", "word_accuracy")
    has_classes = True
    form = _AsText

    def __init__(
        self,
        *,
        tag_scheme: Scheme = "bio",
        tag_form: Form = "as_is",
        tag_names: list[str] | Literal["none"] = "none",
    ) -> None:
        self.tag_scheme: Scheme = tag_scheme
        self.tag_form: Form = tag_form
        self.tag_names = [] if tag_names == "none" else tag_names

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        return super().read(column, listed(value, column), row, place)

    def checked(self, row: Json, place: str) -> Json:
        words, tags = row["words"], row["tags"]
        if len(tags) != len(words):
            raise ValueError(f"{place}: {len(words)} words need as many tags, not {len(tags)}")
        try:
            if self.tag_names:
                tags = [self._name_of(tag) for tag in tags]
            return row | {"tags": to_bio(tags, self.tag_scheme, self.tag_form)}
        except ValueError as error:
            raise ValueError(f"{place}: {error} (tag_scheme)") from None

    def _name_of(self, number: str) -> str:
        index = number.removesuffix(".0")
        if index.isdecimal() and int(index) < len(self.tag_names):
            return self.tag_names[int(index)]
        raise ValueError(f"tag {number!r} is none of the {len(self.tag_names)} tag_names")

    def check_rows(self, rows: Iterable[tuple[str, Row]], settings: Settings) -> None:
        """Raises ValueError if every word has a language before it, as in WikiANN's files."""
        words = [*islice(((id, word) for id, row in rows for word in row["words"]), WORDS_CHECKED)]
        if all(re.fullmatch(LANGUAGE_AND_WORD, word) for _, word in words):
            raise ValueError(
                f"words: each begins with a language, such as {words[0][1]!r} of {words[0][0]}; "
                "remove it: sed -E 's/^[a-z-]+://' FILE > NEW"
            )

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        """Raises ValueError if the metric compares spans and a tag, such as a part of speech, is
        not part of a span."""
        if self.compared_by(settings)[0] != "entity_f1":
            return
        for tag in labels:
            if tag != OUTSIDE and not re.fullmatch(r"[BI]-.+", tag):
                raise ValueError(
                    f"metric: entity_f1 compares spans in O, B-TYPE and I-TYPE, but train has the "
                    f"tag {tag!r}; use word_accuracy for single tags, or in the source tag_scheme "
                    "for another scheme of spans, tag_form for another form (b-type, TYPE-B), "
                    "tag_names for the names of numbers"
                )

    def labels_of(self, row: Row) -> list[str]:
        return row["tags"]

    def answer(self, row: Row) -> str:
        return " ".join(row["tags"])

    def answer_parts(self, row: Row) -> list[str]:
        return row["tags"]

    def repeated(self, part: str, row: Row) -> str:
        return " ".join([part] * len(row["words"]))

    def shown(self, row: Row, prediction: str) -> str:
        """Returns the tagged words, each followed by its tag; ``OUTSIDE`` is left out."""
        pairs = zip(row["words"], prediction.split(" "), strict=True)
        return " ".join(f"{word}/{tag}" for word, tag in pairs if tag != OUTSIDE)

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"words": row["words"], "tags": prediction.split(" ")}
