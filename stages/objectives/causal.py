"""Causal language modelling: each token is predicted from the tokens before it (GPT; Radford et al.
2018)."""

import numpy as np
import torch

from stages.models._heads import ModelWithHead
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms, first_words, next_tokens, tokens_of
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row


class Causal(Objective):
    """Predicts all tokens of a document but the first, which has no context. The end-of-text token
    at its end is predicted like any other token."""

    architectures = ("decoder",)
    draws_text = True

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        labels = next_tokens(examples)
        return Batch(
            **tokens_of(examples),
            labels=torch.from_numpy(labels),
            num_targets={"causal": int((labels != IGNORE_INDEX).sum())},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.labels is not None
        logits = model.backbone.unembed(model.backbone(batch))
        return {"causal": (1.0, cross_entropy(logits, batch.labels))}

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray:
        return first_words(passage, self.vocabulary)
