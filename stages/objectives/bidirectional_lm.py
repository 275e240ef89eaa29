"""Bidirectional language modelling (ELMo; Peters et al. 2018, section 3.1)."""

from dataclasses import replace

import numpy as np
import torch

from stages.models._heads import ModelWithHead, labelled
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms, next_tokens, tokens_of
from stages.text.batch import IGNORE_INDEX, Batch, label_places
from stages.text.packing import Row


class BidirectionalLM(Objective):
    """Predicts each token from the tokens before it and, with separate layers, from the tokens
    after it.

    A document's first token is no forward target and its last token no backward target, since they
    have no context. The paper adds the two log-likelihoods; here, as in the authors' code, the loss
    is their mean, which is in nats per token like a causal model's.
    """

    architectures = ("bilstm",)

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        """Makes a batch whose labels are [B, 2, T]: the next tokens, then the previous tokens."""
        backwards = [
            replace(row, tokens=row.tokens[::-1], document_ids=row.document_ids[::-1])
            for row in examples
        ]
        both = [next_tokens(examples), next_tokens(backwards)[:, ::-1]]
        labels = torch.from_numpy(np.stack(both, axis=1))
        number = int((labels[:, 0] != IGNORE_INDEX).sum())
        return Batch(
            **tokens_of(examples),
            labels=labels,
            label_places=torch.stack([label_places(each) for each in labels.unbind(dim=1)]),
            num_targets={"forward": number, "backward": number},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.labels is not None and batch.label_places is not None
        terms: Terms = {}
        for name, states, labels, places in zip(
            ("forward", "backward"),
            model.backbone.directions(batch),
            batch.labels.unbind(dim=1),
            batch.label_places,
            strict=True,
        ):
            states, labels = labelled(states, labels, places)
            terms[name] = (0.5, cross_entropy(model.backbone.unembed(states), labels))
        return terms
