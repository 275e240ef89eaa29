"""Prefix language modelling (T5; Raffel et al. 2020, section 3.2, and the code's ``prefix_lm``)."""

import numpy as np
import torch

from stages.models._heads import ModelWithHead
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms, first_words, tokens_of
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row


class PrefixLM(Objective):
    """Each document is split at a random token into a prefix, to which attention is bidirectional,
    and targets, each of which is predicted from the prefix and the targets before.

        document   Thank you for inviting me
        visible    Thank you
        targets              for inviting me

    A prefix has 1 to n - 1 of a document's n tokens, uniformly distributed, and its last token
    predicts the first target. On average half of a document's tokens are predicted; ``causal``
    predicts all but the first.
    """

    architectures = ("decoder",)
    draws_text = True
    has_prefix = True

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        splits = [_split(row, rng=rng) for row, rng in zip(examples, rngs, strict=True)]
        visible, labels = map(np.stack, zip(*splits, strict=True))
        return Batch(
            **tokens_of(examples),
            visible=torch.from_numpy(visible),
            labels=torch.from_numpy(labels),
            num_targets={"prefix_lm": int((labels != IGNORE_INDEX).sum())},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.labels is not None
        logits = model.backbone.unembed(model.backbone(batch))
        return {"prefix_lm": (1.0, cross_entropy(logits, batch.labels))}

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray:
        return first_words(passage, self.vocabulary)


def _split(row: Row, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns (bool [T]: whether each token is in a prefix, int64 [T]: the labels) of a row."""
    visible = np.zeros(len(row.tokens), dtype=bool)
    labels = np.full(len(row.tokens), IGNORE_INDEX)
    for document in range(1, int(row.document_ids[-1]) + 1):
        begin, end = np.searchsorted(row.document_ids, [document, document + 1])
        if end - begin < 2:
            continue  # no prefix
        split = int(rng.integers(begin + 1, end))
        visible[begin:split] = True
        labels[split - 1 : end - 1] = row.tokens[split:end]
    return visible, labels
