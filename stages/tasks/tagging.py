"""Tagging: a label for each word of a sentence."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from stages.core.artifacts import Json
from stages.kinds._cells import Row
from stages.kinds._tags import OUTSIDE
from stages.kinds.tagging import TaggedWords
from stages.models._backbone import Backbone
from stages.models._heads import LinearHead, ModelWithHead
from stages.tasks._task import Example, Task
from stages.text.batch import IGNORE_INDEX, Batch, pad
from stages.text.tokenizer import TaskTokenizer


class Tagging(Task):
    """``<bos> words <eos>``, or as the tokenizer wraps them; a word's label is predicted at its
    first subword.

    ``label_subwords: all`` trains on all subwords of a word, ``first`` on the first alone (BERT).
    """

    kind = TaggedWords()

    def __init__(
        self,
        labels: list[str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        *,
        label_subwords: Literal["first", "all"] = "first",
        dropout: float = 0.1,
        metric: Literal["entity_f1", "word_accuracy"] = "entity_f1",
    ) -> None:
        super().__init__(labels, tokenizer, max_tokens)
        self.label_subwords = label_subwords
        self.dropout = dropout

    def head(self, backbone: Backbone) -> LinearHead:
        return LinearHead(backbone.d_model, len(self.labels), dropout=self.dropout)

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        words = self.tokenizer.encode_words([row["words"] for row in rows])
        return [self._example(row, ids) for row, ids in zip(rows, words, strict=True)]

    def _example(self, row: Row, words: list[list[int]]) -> Example:
        before, after = self.tokenizer.before, self.tokenizer.after
        words = [ids or [self.tokenizer.unk_id] for ids in words]
        lengths = np.array([len(ids) for ids in words])
        starts = len(before) + np.cumsum(lengths) - lengths
        room = self.max_tokens - len(after)
        tokens = np.array([*before, *(i for ids in words for i in ids)][:room] + [*after])
        starts = starts[starts < room]
        labels = np.full(len(tokens), IGNORE_INDEX)
        if "tags" in row:
            tags = np.array([self.index[tag] for tag in row["tags"]])
            if self.label_subwords == "all":
                inside = np.repeat(tags, lengths)[: room - len(before)]
                labels[len(before) : len(before) + len(inside)] = inside
            else:
                labels[starts] = tags[: len(starts)]
        return Example(row["id"], tokens, labels, word_starts=starts, num_words=len(words))

    def targets(self, examples: list[Example]) -> Json:
        counted = sum(int((example.labels != IGNORE_INDEX).sum()) for example in examples)
        return {
            "labels": pad([example.labels for example in examples], IGNORE_INDEX),
            "num_targets": {"tagging": counted},
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        assert batch.labels is not None
        logits = model.head(model.backbone(batch)).float()
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
        )
        return {"tagging": (1.0, loss)}

    def flops(self, model: ModelWithHead, batch: Batch) -> int:
        return model.backbone.flops(batch) + model.head.flops(batch.input_ids.numel())

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        best = model.head(model.backbone(batch)).argmax(dim=-1).cpu().numpy()
        predictions = []
        for row, example in zip(best, examples, strict=True):
            tags = [self.labels[i] for i in row[example.word_starts]]
            predictions.append(" ".join(tags + [OUTSIDE] * (example.num_words - len(tags))))
        return predictions

    def longest_as_text(self, longest_class: int) -> int:
        return self.max_tokens * longest_class

    def columns(self, row: Row, prediction: str) -> Json:
        return {"words": row["words"], "tags": prediction.split(" ")}
