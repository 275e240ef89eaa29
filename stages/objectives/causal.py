"""Causal language modelling: each token is predicted from the tokens before it (GPT; Radford et al.
2018)."""

import numpy as np
import torch

from stages.models._heads import ModelWithHead
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms, first_words
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row


class Causal(Objective):
    """Predicts all tokens of a document but the first, which has no context. The end-of-text token
    at its end is predicted like any other token."""

    architectures = ("decoder",)
    draws_text = True

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        input_ids = torch.from_numpy(np.stack([row.tokens for row in examples]))
        document_ids = torch.from_numpy(np.stack([row.document_ids for row in examples]))
        labels = torch.full_like(input_ids, IGNORE_INDEX)
        same = document_ids[:, 1:] == document_ids[:, :-1]
        labels[:, :-1] = torch.where(same, input_ids[:, 1:], IGNORE_INDEX)
        return Batch(
            input_ids=input_ids,
            document_ids=document_ids,
            labels=labels,
            num_targets={"causal": int(same.sum())},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.labels is not None
        return {
            "causal": (
                1.0,
                cross_entropy(model.backbone.unembed(model.backbone(batch)), batch.labels),
            )
        }

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray:
        return first_words(passage, self.vocabulary)
