"""Masked language models: some tokens are chosen, corrupted and predicted (BERT; Devlin et al.
2019, section 3.1, task 1)."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from stages.models._heads import ModelWithHead, gather
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms, tokens_of
from stages.text.batch import IGNORE_INDEX, Batch, pad
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Masking:
    """The share of tokens that is chosen and, of these, the shares that become [MASK] and random
    tokens; the rest stays unchanged. The defaults are BERT's."""

    mask_prob: float = 0.15
    replace_prob: float = 0.8
    random_prob: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob must lie between 0 and 1, not {self.mask_prob}")
        shares = self.replace_prob, self.random_prob
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError(
                f"replace_prob {shares[0]} and random_prob {shares[1]} must not be negative and "
                "must add up to at most 1"
            )


BERT = Masking()


class MaskedObjective(Objective):
    """Chooses tokens and corrupts them by ``Masking``; the model predicts the original tokens.

    Exactly round(mask_prob * maskable tokens) are chosen in a row, at least one; special tokens are
    never chosen. Logits are computed only at chosen positions, for which a batch has
    ceil(mask_prob * max_tokens) places per row.

    Validation uses BERT's rates, even if a run trains with others.
    """

    architectures = ("encoder",)
    schema = Masking
    term: ClassVar[str] = "mlm"

    def __init__(self, vocabulary: Vocabulary, max_tokens: int, masking: Masking = BERT) -> None:
        super().__init__(vocabulary, max_tokens)
        if vocabulary.mask_id is None:
            raise ValueError("the tokenizer has no mask token ([MASK])")
        self.masking = masking
        self.capacity = math.ceil(masking.mask_prob * max_tokens)

    def choose(self, row: Row, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions to predict, in order, and the fate of each, a number uniform in
        [0, 1). Positions with equal numbers are treated alike."""
        maskable = np.flatnonzero(self.vocabulary.is_regular[row.tokens])
        number = min(max(1, round(self.masking.mask_prob * len(maskable))), len(maskable))
        chosen = np.sort(rng.choice(maskable, number, replace=False))
        return chosen, rng.random(len(chosen))

    def corrupted(
        self, tokens: np.ndarray, chosen: np.ndarray, fate: np.ndarray, *, rng: np.random.Generator
    ) -> np.ndarray:
        """Returns the tokens with each token at a ``chosen`` position masked, replaced or kept."""
        masking, vocabulary = self.masking, self.vocabulary
        assert vocabulary.mask_id is not None
        regular_ids = vocabulary.regular_ids
        corrupted = tokens.copy()
        corrupted[chosen] = np.select(
            [fate < masking.replace_prob, fate < masking.replace_prob + masking.random_prob],
            [vocabulary.mask_id, regular_ids[rng.integers(len(regular_ids), size=len(chosen))]],
            tokens[chosen],
        )
        return corrupted

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        rows, positions, labels = [], [], []
        for row, rng in zip(examples, rngs, strict=True):
            chosen, fate = self.choose(row, rng=rng)
            rows.append(replace(row, tokens=self.corrupted(row.tokens, chosen, fate, rng=rng)))
            positions.append(chosen)
            labels.append(row.tokens[chosen])
        return Batch(
            **tokens_of(rows),
            target_positions=pad(positions, 0, length=self.capacity),
            labels=pad(labels, IGNORE_INDEX, length=self.capacity),
            num_targets={self.term: sum(map(len, labels))},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.target_positions is not None and batch.labels is not None
        states = model.backbone(batch)
        logits = model.backbone.unembed(gather(states, batch.target_positions))
        terms: Terms = {self.term: (1.0, cross_entropy(logits, batch.labels))}
        return terms | self.further_terms(model, batch, states)

    def further_terms(
        self, model: ModelWithHead, batch: Batch, states: Float[Tensor, "B T D"]
    ) -> Terms:
        """Returns what else is predicted from the states."""
        return {}

    def for_validation(self) -> "MaskedObjective":
        return MaskedObjective(self.vocabulary, self.max_tokens)
