"""Tagging: a label for each word of a sentence."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from stages.core.artifacts import Json
from stages.kinds._cells import Row
from stages.kinds._tags import OUTSIDE
from stages.kinds.tagging import TaggedWords
from stages.models._backbone import Backbone
from stages.models._heads import LinearHead, ModelWithHead, at_least_float32
from stages.tasks._task import Example, Task, balanced, cross_entropy, label_weights
from stages.text.batch import IGNORE_INDEX, Batch, pad


class Tagging(Task):
    """Reads ``<bos> words <eos>``, or the tokenizer's own special tokens, and predicts a word's
    label at one of its subwords.

    ``label_subwords: auto`` is the first subword (BERT; Devlin et al. 2019, section 5.3), but the
    last one in a causal model, where the first state has not read the rest of the word. ``first``
    and ``last`` override it; ``all`` trains on all subwords and predicts where ``auto`` does. A
    word whose subword is cut off at ``max_tokens`` has no label and is predicted as ``O``.

    ``class_weights: balanced`` weights the training loss of a tag by n / (K m), if the trial has n
    training tags, K of them different, and this tag occurs m times. A tag that a small label budget
    misses is not learnt, as without weights. The validation loss is not weighted.
    """

    kind = TaggedWords()
    tried: ClassVar[tuple[str, ...]] = ("label_subwords", "dropout", "class_weights")
    tried_by_head: ClassVar[tuple[str, ...]] = ("dropout", "class_weights")

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
