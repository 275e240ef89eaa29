"""Tagging: a label for each word of a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import Row, structured
from stages.tasks._kind import CellSettings
from stages.tasks._tags import OUTSIDE, Form, Scheme, to_bio
from stages.tasks._task import Example, Task, balanced
from stages.tasks._text_form import TextForm
from stages.text.ignored import IGNORE_INDEX

if TYPE_CHECKING:
    from torch import Tensor

    from stages.models._backbone import Backbone
    from stages.models._heads import LinearHead, ModelWithHead
    from stages.text.batch import Batch

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


@dataclass(frozen=True, kw_only=True)
class _CellSettings(CellSettings):
    tag_scheme: Scheme = "bio"
    tag_form: Form = "as_is"
    tag_names: list[str] | Literal["none"] = "none"


class Tagging(Task):
    """Rows of ``words`` and as many ``tags``, of single words or of spans in BIO.

    Both are lists, or texts with blanks between words and blanks or commas between tags.

    ``tag_scheme`` is the scheme of the data's tags, which are converted to BIO; ``tag_form`` says
    how they are written. If the data has numbers for tags, ``tag_names`` are the tags from 0.

    Reads ``<bos> words <eos>``, or the tokenizer's own special tokens, and predicts a word's
    label at one of its subwords.

    ``label_subwords: auto`` is the first subword (BERT; Devlin et al. 2019, section 5.3), but the
    last one in a causal model, where the first state has not read the rest of the word. ``first``
    and ``last`` override it; ``all`` trains on all subwords and predicts where ``auto`` does. A
    word whose subword is cut off at ``max_tokens`` has no label and is predicted as ``O``.

    ``class_weights: balanced`` weights the training loss of a tag by n / (K m), if the trial has n
    training tags, K of them different, and this tag occurs m times. A tag that a small label budget
    misses is not learnt, as without weights. The validation loss is not weighted.
    """

    inputs = ("words",)
    target = "tags"
    lists = ("words", "tags")
    metrics = ("entity_f1", "word_accuracy")
    has_classes = True
    form = _AsText
    cells = _CellSettings()

    def __init__(
        self,
        *from_code: Any,
        label_subwords: Literal["auto", "first", "last", "all"] = "auto",
        dropout: float = 0.1,
        metric: Literal["entity_f1", "word_accuracy"] = "entity_f1",
        class_weights: Literal["none", "balanced"] = "none",
    ) -> None:
        super().__init__(*from_code)
        self.label_subwords = label_subwords
        self.dropout, self.class_weights = dropout, class_weights

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        return super().read(column, listed(value, column), row, place)

    def checked(self, row: Json, place: str) -> Json:
        words, tags = row["words"], row["tags"]
        if len(tags) != len(words):
            raise ValueError(f"{place}: {len(words)} words need as many tags, not {len(tags)}")
        try:
            if self.cells.tag_names != "none":
                tags = [self._name_of(tag) for tag in tags]
            return row | {"tags": to_bio(tags, self.cells.tag_scheme, self.cells.tag_form)}
        except ValueError as error:
            raise ValueError(f"{place}: {error} (tag_scheme)") from None

    def _name_of(self, number: str) -> str:
        index = number.removesuffix(".0")
        if index.isdecimal() and int(index) < len(self.cells.tag_names):
            return self.cells.tag_names[int(index)]
        raise ValueError(f"tag {number!r} is none of the {len(self.cells.tag_names)} tag_names")

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

    @property
    def _subword(self) -> Literal["first", "last"]:
        """The subword from whose state the label of its word is predicted.

        In a bidirectional LSTM it is the first. At the first subword the backward half has read the
        word and what follows, and the forward half what precedes it. At the last subword it is the
        other way round. In neither state have both halves read the whole word.
        """
        if self.label_subwords in ("first", "last"):
            return self.label_subwords
        return "last" if self.is_causal else "first"

    def states_read(self, backbone: Backbone) -> str:
        trained = ", trained on all" if self.label_subwords == "all" else ""
        misses_the_rest = self.is_causal and self._subword == "first"
        unread = ", the rest of which is not read" if misses_the_rest else ""
        return f"{self._subword} subword of a word{unread}{trained}"

    def head(self, backbone: Backbone) -> LinearHead:
        from stages.models._heads import LinearHead

        return LinearHead(backbone.d_model, len(self.labels), dropout=self.dropout)

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        words = self.tokenizer.encode_words([row["words"] for row in rows])
        return [self._example(row, ids) for row, ids in zip(rows, words, strict=True)]

    def _example(self, row: Row, words: list[list[int]]) -> Example:
        words = [ids or [self.tokenizer.unk_id] for ids in words]
        text = self.wrap([i for ids in words for i in ids])
        lengths = np.array([len(ids) for ids in words])
        begin, end = len(self.tokenizer.before), len(text.ids) - len(self.tokenizer.after)
        ends = begin + np.cumsum(lengths)
        positions = ends - 1 if self._subword == "last" else ends - lengths
        positions = positions[positions < end]
        labels = np.full(len(text.ids), IGNORE_INDEX)
        if "tags" in row:
            tags = np.array([self.index[tag] for tag in row["tags"]])
            if self.label_subwords == "all":
                labels[begin:end] = np.repeat(tags, lengths)[: end - begin]
            else:
                labels[positions] = tags[: len(positions)]
        return Example(
            row["id"],
            np.array(text.ids),
            labels,
            word_positions=positions,
            num_words=len(words),
            num_cut=text.num_cut,
        )

    def targets(self, examples: list[Example]) -> Json:
        from stages.tasks._batches import label_weights
        from stages.text.batch import pad

        counted = sum(int((example.labels != IGNORE_INDEX).sum()) for example in examples)
        labels = pad([example.labels for example in examples], IGNORE_INDEX)
        return {
            "labels": labels,
            "label_weights": label_weights(examples, width=labels.shape[1]),
            "num_targets": {"tagging": counted},
        }

    def weighted(self, examples: list[Example]) -> list[Example]:
        return balanced(examples) if self.class_weights == "balanced" else examples

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        from stages.models._heads import at_least_float32
        from stages.tasks._batches import cross_entropy

        logits = at_least_float32(model.head(model.backbone(batch)))
        return {"tagging": (1.0, cross_entropy(logits, batch))}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        best = model.head(model.backbone(batch)).argmax(dim=-1).cpu().numpy()
        predictions = []
        for row, example in zip(best, examples, strict=True):
            tags = [self.labels[i] for i in row[example.word_positions]]
            predictions.append(" ".join(tags + [OUTSIDE] * (example.num_words - len(tags))))
        return predictions

    def longest_as_text(self, longest_class: int) -> int:
        return self.max_tokens * longest_class
