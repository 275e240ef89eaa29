"""Masked language modelling: who is chosen, and what becomes of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.objectives._masking import MaskedObjective
from stages.objectives.mlm import MLM
from stages.seeding import stream
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, NUM_SPECIAL, Vocabulary
from tests.small import VOCAB_SIZE, headless, small_model

VOCABULARY = Vocabulary(VOCAB_SIZE)


def row_of(length: int, *, seed: int) -> Row:
    text = stream(seed, "text").integers(NUM_SPECIAL, VOCAB_SIZE - 100, length)
    return Row(np.array([BOS_ID, *text, EOS_ID]), np.ones(length + 2, dtype=int))


def collated(objective: MaskedObjective, rows: list[Row], *, seed: int = 0) -> Batch:
    return objective.collate(rows, rngs=[stream(seed, "mask", i) for i in range(len(rows))])


@given(length=st.integers(1, 60), mask_prob=st.sampled_from([0.15, 0.4]), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_the_original_can_be_put_together_again(length, mask_prob, seed) -> None:
    """Labels at their positions and inputs elsewhere; the rate is exact; special ids stay."""
    row = row_of(length, seed=seed)
    batch = collated(MLM(VOCABULARY, length + 2, mask_prob=mask_prob), [row], seed=seed)
    assert batch.target_positions is not None and batch.labels is not None
    restored = batch.input_ids[0].numpy().copy()
    real = batch.labels[0].numpy() != IGNORE_INDEX
    positions = batch.target_positions[0].numpy()[real]
    restored[positions] = batch.labels[0].numpy()[real]
    assert np.array_equal(restored, row.tokens)
    assert len(np.unique(positions)) == real.sum() == max(1, round(mask_prob * length))
    assert (row.tokens[positions] >= NUM_SPECIAL).all()
    assert batch.num_targets == {"mlm": int(real.sum())}


def test_of_the_chosen_80_percent_are_masked_and_10_kept() -> None:
    """Within 4 standard deviations of a binomial of about 9,600 draws."""
    objective = MLM(VOCABULARY, 128)
    rows = [row_of(126, seed=i) for i in range(500)]
    batch = collated(objective, rows)
    assert batch.target_positions is not None and batch.labels is not None
    real = batch.labels != IGNORE_INDEX
    inputs = batch.input_ids.gather(1, batch.target_positions)[real]
    labels = batch.labels[real]
    for observed, expected in (
        ((inputs == MASK_ID).float().mean().item(), 0.8),
        ((inputs == labels).float().mean().item(), 0.1 + 0.1 / len(VOCABULARY.regular_ids)),
    ):
        assert abs(observed - expected) < 4 * (expected * (1 - expected) / len(labels)) ** 0.5


def test_loss_is_over_the_masked_positions_alone() -> None:
    """It equals cross-entropy on full logits at those places."""
    batch = collated(MLM(VOCABULARY, 32), [row_of(30, seed=1), row_of(30, seed=2)])
    model = small_model("encoder").eval()
    _, loss_sum = MLM(VOCABULARY, 32).loss(headless(model), batch)["mlm"]
    assert batch.target_positions is not None and batch.labels is not None
    full = torch.full_like(batch.input_ids, IGNORE_INDEX)
    full.scatter_(1, batch.target_positions[:, :4], batch.labels[:, :4])
    logits = model.unembed(model(batch))
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), full.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
    assert (batch.labels[:, 4:] == IGNORE_INDEX).all()
    torch.testing.assert_close(loss_sum, expected)


def test_runs_at_other_rates_are_validated_at_15_percent() -> None:
    row = row_of(100, seed=1)
    compared = [MLM(VOCABULARY, 102, mask_prob=p).for_validation() for p in (0.15, 0.4)]
    first, second = (collated(objective, [row]) for objective in compared)
    assert torch.equal(first.input_ids, second.input_ids)
    assert first.num_targets == {"mlm": 15}


@pytest.mark.parametrize(
    "settings", [{"mask_prob": 0.0}, {"mask_prob": 1.0}, {"replace_prob": 0.9, "random_prob": 0.2}]
)
def test_impossible_rates_are_refused(settings) -> None:
    with pytest.raises(ValueError, match="_prob"):
        MLM(VOCABULARY, 32, **settings)
