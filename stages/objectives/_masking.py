"""Masked language models: some tokens are chosen, corrupted and predicted (BERT; Devlin et al.
2019, section 3.1, task 1)."""

import math

import numpy as np
import torch

from stages.models._heads import ModelWithHead, gather
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms
from stages.text.batch import IGNORE_INDEX, Batch, pad
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

MASK_PROB, REPLACE_PROB, RANDOM_PROB = 0.15, 0.8, 0.1  # BERT's


class MaskedObjective(Objective):
    """Chooses tokens and replaces a share ``replace_prob`` of them by [MASK] and ``random_prob`` by
    random tokens; the rest stays unchanged. The model predicts the original tokens.

    Exactly round(mask_prob * maskable tokens) are chosen in a row, at least one; special tokens are
    never chosen. Logits are computed only at chosen positions, for which a batch has
    ceil(mask_prob * max_tokens) places per row.

    Validation uses BERT's rates, even if a run trains with others.
    """

    architectures = ("encoder",)

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_tokens: int,
        *,
        mask_prob: float = MASK_PROB,
        replace_prob: float = REPLACE_PROB,
        random_prob: float = RANDOM_PROB,
    ) -> None:
        super().__init__(vocabulary, max_tokens)
        if not 0 < mask_prob < 1:
            raise ValueError(f"mask_prob must lie between 0 and 1, not {mask_prob}")
        check_probs(replace_prob, random_prob)
        if vocabulary.mask_id is None:
            raise ValueError("the tokenizer has no mask token ([MASK])")
        self.mask_prob, self.replace_prob, self.random_prob = mask_prob, replace_prob, random_prob
        self.capacity = math.ceil(mask_prob * max_tokens)

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        inputs, positions, labels = [], [], []
        for row, rng in zip(examples, rngs, strict=True):
            chosen = choose(row.tokens, self.mask_prob, vocabulary=self.vocabulary, rng=rng)
            corrupted = corrupt(
                row.tokens,
                chosen,
                rng.random(len(chosen)),
                replace_prob=self.replace_prob,
                random_prob=self.random_prob,
                vocabulary=self.vocabulary,
                rng=rng,
            )
            inputs.append(corrupted)
            positions.append(chosen)
            labels.append(row.tokens[chosen])
        return Batch(
            input_ids=torch.from_numpy(np.stack(inputs)),
            document_ids=torch.from_numpy(np.stack([row.document_ids for row in examples])),
            target_positions=pad(positions, 0, length=self.capacity),
            labels=pad(labels, IGNORE_INDEX, length=self.capacity),
            num_targets={"mlm": sum(map(len, labels))},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.target_positions is not None and batch.labels is not None
        states = gather(model.backbone(batch), batch.target_positions)
        return {"mlm": (1.0, cross_entropy(model.backbone.unembed(states), batch.labels))}

    def for_validation(self) -> "MaskedObjective":
        return MaskedObjective(self.vocabulary, self.max_tokens)


def check_probs(replace_prob: float, random_prob: float) -> None:
    """Raises ValueError unless both probabilities are at least 0 and their sum is at most 1."""
    if min(replace_prob, random_prob) < 0 or replace_prob + random_prob > 1:
        raise ValueError(
            f"replace_prob {replace_prob} and random_prob {random_prob} must not be negative and "
            "must add up to at most 1"
        )


def choose(
    tokens: np.ndarray, mask_prob: float, *, vocabulary: Vocabulary, rng: np.random.Generator
) -> np.ndarray:
    """Returns randomly chosen positions to predict, in order."""
    maskable = np.flatnonzero(vocabulary.is_regular[tokens])
    number = min(max(1, round(mask_prob * len(maskable))), len(maskable))
    return np.sort(rng.choice(maskable, number, replace=False))


def corrupt(
    tokens: np.ndarray,
    chosen: np.ndarray,
    fate: np.ndarray,
    *,
    replace_prob: float,
    random_prob: float,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> np.ndarray:
    """Returns the tokens with each token at a ``chosen`` position masked, replaced or kept.

    ``fate`` holds a number uniform in [0, 1) for each chosen position: below ``replace_prob`` the
    token becomes [MASK], below ``replace_prob + random_prob`` a random token. Positions with equal
    numbers are treated alike.
    """
    corrupted, regular_ids = tokens.copy(), vocabulary.regular_ids
    assert vocabulary.mask_id is not None
    corrupted[chosen] = np.select(
        [fate < replace_prob, fate < replace_prob + random_prob],
        [vocabulary.mask_id, regular_ids[rng.integers(len(regular_ids), size=len(chosen))]],
        tokens[chosen],
    )
    return corrupted
