"""Bidirectional language modelling (ELMo; Peters et al. 2018, section 3.1)."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from stages.models._heads import ModelWithHead
from stages.objectives._objective import Objective, Terms, neighbours, token_loss, tokens_of
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
        tokens = tokens_of(examples)
        labels = torch.stack(neighbours(**tokens), dim=1)
        number = int((labels[:, 0] != IGNORE_INDEX).sum())
        return Batch(
            **tokens,
            labels=labels,
            label_places=torch.stack([label_places(each) for each in labels.unbind(dim=1)]),
            num_targets={"forward": number, "backward": number},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.labels is not None and batch.label_places is not None
        terms: Terms = {}
        elmo: Any = model.backbone  # only its states have directions
        states = elmo.directions(batch)
        for i, name in enumerate(("forward", "backward")):
            part = replace(batch, labels=batch.labels[:, i], label_places=batch.label_places[i])
            terms[name] = (0.5, token_loss(elmo, states[i], part))
        return terms
