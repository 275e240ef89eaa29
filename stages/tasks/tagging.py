"""Tagging: a label for each word of a sentence."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import Row, unprinted
from stages.tasks._tags import OUTSIDE, Scheme, to_bio
from stages.tasks._task import (
    Backbone,
    Batch,
    CellSetting,
    Example,
    ModelWithHead,
    Task,
    example_of,
    nn,
)
from stages.tasks._text_form import TextForm
from stages.text.ignored import IGNORE_INDEX

WORDS_CHECKED = 1000


def listed(cell: Any, column: str) -> Any:
    """Returns a cell of words or of tags as a list; commas may separate the tags of a text."""
    cell = unprinted(cell)
    if not isinstance(cell, str):
        return cell
    return (cell.replace(",", " ") if column == "tags" and " " not in cell else cell).split()


def _joined(tags: list[str], length: int) -> str:
    """Returns the tags of ``length`` words as text; missing ones are ``OUTSIDE``."""
    return " ".join([*tags, *[OUTSIDE] * length][:length])


class Tagging(Task):
    """Rows of ``words`` and as many ``tags``, of single words or of spans in BIO.

    Both are lists, or texts with blanks between words and blanks or commas between tags.

    ``tag_scheme`` is the scheme of the data's tags, which are converted to BIO. If the data has
    numbers for tags, ``tag_names`` are the tags from 0.

    Reads ``<bos> words <eos>``, or the tokenizer's own special tokens. A word's label is predicted
    at its first subword (BERT; Devlin et al. 2019, section 5.3), but at the last one in a causal
    model, where the first state has not read the rest of the word. A word whose subword is cut off
    at ``max_tokens`` has no label and is predicted as ``O``.

    ``class_weights: balanced`` weights the training loss by tag (``Task.weighted``). A tag that a
    small label budget misses is not learnt, as without weights.
    """

    inputs = ("words",)
    target = "tags"
    lists = ("words", "tags")
    metrics = ("entity_f1", "word_accuracy")
    has_classes = labels_tokens = has_text_form = True
    cell_settings = {
        "tag_scheme": CellSetting(Scheme, "bio"),
        "tag_names": CellSetting(list[str] | Literal["none"], "none"),
    }
    subword: str = "first"  # where a word's label is read; the model may decide

    def __init__(
        self,
        *from_code: Any,
        dropout: float = 0.1,
        metric: Literal["entity_f1", "word_accuracy"] = "entity_f1",
        class_weights: Literal["none", "balanced"] = "none",
    ) -> None:
        super().__init__(*from_code)
        self.dropout, self.class_weights = dropout, class_weights

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        return super().read(column, listed(value, column), row, place)

    def checked(self, row: Json, place: str) -> Json:
        tags, names, num = row["tags"], self.cells.tag_names, len(row["words"])
        if len(tags) != num:
            raise ValueError(f"{place}: {num} words need as many tags, not {len(tags)}")
        if names != "none":
            named = {str(i): name for i, name in enumerate(names)}
            tags = [tag.removesuffix(".0") for tag in tags]
            if odd := [tag for tag in tags if tag not in named]:
                raise ValueError(f"{place}: tag {odd[0]!r} is none of the {len(names)} tag_names")
            tags = [named[tag] for tag in tags]
        try:
            return row | {"tags": to_bio(tags, self.cells.tag_scheme)}
        except ValueError as error:
            raise ValueError(f"{place}: {error} (tag_scheme)") from None

    def check_rows(self, rows: Iterable[tuple[str, Row]], settings: Settings) -> None:
        """Raises ValueError if every word has a language before it, as in WikiANN's files."""
        words = [*islice(((id, word) for id, row in rows for word in row["words"]), WORDS_CHECKED)]
        if all(re.fullmatch(r"[a-z]{2,}(-[a-z]+)*:\S.*", word) for _, word in words):
            raise ValueError(
                f"words: each begins with a language, such as {words[0][1]!r} of {words[0][0]}; "
                "remove it: sed -E 's/^[a-z-]+://' FILE > NEW"
            )

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        """Raises ValueError for a tag that belongs to no span, such as a part of speech, if the
        metric compares spans."""
        odd = [tag for tag in labels if tag != OUTSIDE and not re.fullmatch(r"[BI]-.+", tag)]
        if odd and self.compared_by(settings)[0] == "entity_f1":
            raise ValueError(
                f"metric: entity_f1 compares spans in O, B-TYPE and I-TYPE, but train has the tag "
                f"{odd[0]!r}; use word_accuracy for single tags, or tag_scheme or tag_names in the "
                "source for spans that are written in another way"
            )

    def answer(self, row: Row) -> str:
        return " ".join(row["tags"])

    def words_of(self, labels: Sequence[str], settings: Settings) -> dict[str, str]:
        return {tag: tag for tag in labels}

    def meaning(self, row: Row, text: str, form: TextForm) -> str:
        """Reads the n-th written tag as that of the n-th word; unknown ones are ``OUTSIDE``."""
        tags = [tag if tag in form.words else OUTSIDE for tag in text.split()]
        return _joined(tags, len(row["words"]))

    def repeated(self, part: str, row: Row) -> str:
        return " ".join([part] * len(row["words"]))

    def shown(self, row: Row, prediction: str) -> str:
        """Returns the tagged words, each followed by its tag; ``OUTSIDE`` is left out."""
        pairs = zip(row["words"], prediction.split(" "), strict=True)
        return " ".join(f"{word}/{tag}" for word, tag in pairs if tag != OUTSIDE)

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        return {"words": row["words"], "tags": prediction.split(" ")}

    def longest_as_text(self, longest_class: int, row: Row | None = None) -> int:
        num_words = self.max_tokens if row is None else min(len(row["words"]), self.max_tokens)
        return num_words * longest_class

    def read_by(self, backbone: Backbone, *, has_prefix: bool) -> None:
        """Also sets the subword from which a word's label is predicted. In a bidirectional LSTM no
        state has read the whole word in both directions: the first in the backward one alone."""
        super().read_by(backbone, has_prefix=has_prefix)
        self.subword = "last" if self.is_causal else "first"
        self.read_at = f"{self.subword} subword of a word"

    def head(self, backbone: Backbone) -> nn.Module:
        from stages.models._heads import LinearHead

        return LinearHead(backbone.d_model, len(self.labels), dropout=self.dropout)

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        examples = list[Example]()
        encoded = self.tokenizer.encode_words([row["words"] for row in rows])
        for row, subwords in zip(rows, encoded, strict=True):
            words = [ids or [self.tokenizer.unk_id] for ids in subwords]
            text = self.wrap([i for ids in words for i in ids])
            lengths = np.array([len(ids) for ids in words])
            ends = len(self.tokenizer.before) + np.cumsum(lengths)
            positions = ends - 1 if self.subword == "last" else ends - lengths
            positions = positions[positions < len(text.ids) - len(self.tokenizer.after)]
            labels = np.full(len(text.ids), IGNORE_INDEX)
            if "tags" in row:
                tags = np.array([self.index[tag] for tag in row["tags"]])
                labels[positions] = tags[: len(positions)]
            others = {"word_positions": positions, "num_words": len(words)}
            examples.append(example_of(row, text, labels, **others))
        return examples

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        best = self.outputs(model, batch).argmax(dim=-1).cpu().numpy()
        return [
            _joined([self.labels[i] for i in row[example.word_positions]], example.num_words)
            for row, example in zip(best, examples, strict=True)
        ]
