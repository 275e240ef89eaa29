"""Masked language modelling (BERT; Devlin et al. 2019, section 3.1, task 1)."""

import math

import numpy as np
import torch

from stages.models._heads import Headed, gather
from stages.objectives._masking import check_probs, corrupt
from stages.objectives._objective import Objective, Terms, cross_entropy
from stages.text.batch import IGNORE_INDEX, Batch, pad
from stages.text.packing import Row
from stages.text.tokenizer import NUM_SPECIAL, Vocabulary

PAPER_MASK_PROB = 0.15  # runs that train at other rates are validated at this one


class MLM(Objective):
    """A part of the tokens is chosen; of these 80 % become [MASK], 10 % a random token, and 10 %
    stay as they are; the model gives back what they were.

    Exactly round(mask_prob * maskable tokens) are chosen in a row, at least one, in a fixed
    capacity of ceil(mask_prob * max_tokens) places, and logits are computed at these alone.
    Special tokens are never chosen.
    """

    architectures = ("encoder",)

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_tokens: int,
        *,
        mask_prob: float = PAPER_MASK_PROB,
        replace_prob: float = 0.8,
        random_prob: float = 0.1,
    ) -> None:
        super().__init__(vocabulary, max_tokens)
        if not 0 < mask_prob < 1:
            raise ValueError(f"mask_prob must lie between 0 and 1, not {mask_prob}")
        check_probs(replace_prob, random_prob)
        self.mask_prob, self.replace_prob, self.random_prob = mask_prob, replace_prob, random_prob
        self.capacity = math.ceil(mask_prob * max_tokens)

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        inputs, positions, labels = [], [], []
        for row, rng in zip(examples, rngs, strict=True):
            chosen = self.choose(row.tokens, rng=rng)
            inputs.append(self.corrupt(row.tokens, chosen, rng=rng))
            positions.append(chosen)
            labels.append(row.tokens[chosen])
        return Batch(
            input_ids=torch.from_numpy(np.stack(inputs)),
            document_ids=torch.from_numpy(np.stack([row.document_ids for row in examples])),
            target_positions=pad(positions, 0, length=self.capacity),
            labels=pad(labels, IGNORE_INDEX, length=self.capacity),
            num_targets={"mlm": sum(map(len, labels))},
        )

    def choose(self, tokens: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """The places to predict, in order."""
        maskable = np.flatnonzero(tokens >= NUM_SPECIAL)
        number = min(max(1, round(self.mask_prob * len(maskable))), len(maskable))
        return np.sort(rng.choice(maskable, number, replace=False))

    def corrupt(
        self, tokens: np.ndarray, chosen: np.ndarray, *, rng: np.random.Generator
    ) -> np.ndarray:
        """The row with its chosen places masked, replaced or kept."""
        return corrupt(
            tokens,
            chosen,
            rng.random(len(chosen)),
            replace_prob=self.replace_prob,
            random_prob=self.random_prob,
            regular_ids=self.vocabulary.regular_ids,
            rng=rng,
        )

    def loss(self, model: Headed, batch: Batch) -> Terms:
        assert batch.target_positions is not None and batch.labels is not None
        states = gather(model.backbone(batch), batch.target_positions)
        return {"mlm": (1.0, cross_entropy(model.backbone.unembed(states), batch.labels))}

    def flops(self, model: Headed, batch: Batch) -> int:
        assert batch.labels is not None
        return model.backbone.flops(batch) + model.backbone.unembed_flops(batch.labels.numel())

    def for_validation(self) -> "MLM":
        return MLM(self.vocabulary, self.max_tokens)
