"""Masked language models: some tokens are chosen, corrupted and predicted (BERT; Devlin et al.
2019, section 3.1, task 1)."""

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from stages.models._heads import ModelWithHead
from stages.objectives._objective import Objective, Terms, token_loss, tokens_of
from stages.text.batch import IGNORE_INDEX, Batch, pad
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

MASK_PROB = 0.15  # the paper's
MASKED, RANDOM = 0.8, 0.1  # shares of the chosen tokens


class MaskedObjective(Objective):
    """Chooses tokens and corrupts them; the model predicts the original tokens. 80 % become [MASK],
    10 % random tokens, and the rest stays unchanged.

    Exactly round(mask_prob * maskable tokens) are chosen in a row, at least one; special tokens are
    never chosen. Logits are computed only at chosen positions, for which a batch has
    ceil(mask_prob * max_tokens) places per row. Validation always uses the paper's ``mask_prob``.
    """

    architectures = ("encoder",)
    term = "mlm"

    def __init__(
        self, vocabulary: Vocabulary, max_tokens: int, *, mask_prob: float = MASK_PROB
    ) -> None:
        super().__init__(vocabulary, max_tokens)
        if not 0 < mask_prob < 1:
            raise ValueError(f"mask_prob must lie between 0 and 1, not {mask_prob}")
        if vocabulary.mask_id is None:
            raise ValueError("the tokenizer has no mask token ([MASK])")
        self.mask_prob, self.mask_id = mask_prob, vocabulary.mask_id
        self.capacity = math.ceil(mask_prob * max_tokens)

    def choose(self, row: Row, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions to predict, in order, and the fate of each, a number uniform in
        [0, 1). Positions with equal numbers are treated alike."""
        maskable = np.flatnonzero(self.vocabulary.is_regular[row.tokens])
        number = min(max(1, round(self.mask_prob * len(maskable))), len(maskable))
        chosen = np.sort(rng.choice(maskable, number, replace=False))
        return chosen, rng.random(len(chosen))

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        regular_ids = self.vocabulary.regular_ids
        rows, positions, labels = [], [], []
        for row, rng in zip(examples, rngs, strict=True):
            chosen, fate = self.choose(row, rng=rng)
            drawn = regular_ids[rng.integers(len(regular_ids), size=len(chosen))]
            tokens, original = row.tokens.copy(), row.tokens[chosen]
            tokens[chosen] = np.select(
                [fate < MASKED, fate < MASKED + RANDOM], [self.mask_id, drawn], original
            )
            rows.append(replace(row, tokens=tokens))
            positions.append(chosen)
            labels.append(original)
        return Batch(
            **tokens_of(rows),
            target_positions=pad(positions, 0, length=self.capacity),
            **self.targets(pad(labels, IGNORE_INDEX, length=self.capacity)),
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        states = model.backbone(batch)
        terms: Terms = {self.term: (1.0, token_loss(model.backbone, states, batch))}
        return terms | self.further_terms(model, batch, states)

    def further_terms(
        self, model: ModelWithHead, batch: Batch, states: Float[Tensor, "B T D"]
    ) -> Terms:
        """Returns the terms of the loss other than that of masked tokens; here none."""
        return {}

    def for_validation(self) -> "MaskedObjective":
        return MaskedObjective(self.vocabulary, self.max_tokens)
