"""Bidirectional language modelling: the next and the previous token, within the document."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stages.objectives.bidirectional_lm import BidirectionalLM
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Packing, Row
from stages.text.tokenizer import Vocabulary
from stages.training.device import Device
from stages.training.loop import train
from tests.small import VOCAB_SIZE, headless, small_corpus, small_model
from tests.training.test_loop import SCHEDULE

CPU = Device("cpu", "float32", compile=False, threads=1)
OBJECTIVE = BidirectionalLM(Vocabulary(VOCAB_SIZE), 32)
DIRECTIONS = ("forward", "backward")


def collated(rows: list[Row]) -> Batch:
    return OBJECTIVE.collate(rows, rngs=[np.random.default_rng(0)] * len(rows))


def real_rows(number: int) -> list[Row]:
    packing = Packing(small_corpus(), 32, seed=1)
    return [packing.row(i) for i in range(number)]


def test_labels_are_the_next_and_the_previous_tokens_of_the_same_document() -> None:
    row = Row(np.array([2, 10, 11, 3, 2, 12, 13]), np.array([1, 1, 1, 1, 2, 2, 3]))
    batch = collated([row])
    none = IGNORE_INDEX
    assert batch.labels is not None
    assert batch.labels.tolist() == [
        [[10, 11, 3, none, 12, none, none], [none, 2, 10, 11, none, 2, none]]
    ]
    assert batch.num_targets == {"forward": 4, "backward": 4}
    assert batch.input_ids[0].tolist() == row.tokens.tolist()


def test_no_prediction_sees_its_label() -> None:
    """A changed token changes neither the logits that predict it nor those that its direction
    computes earlier."""
    model = small_model("bilstm").eval()
    (row,) = real_rows(1)
    batch = collated([row])
    before = [model.unembed(states) for states in model.directions(batch)]
    for position in range(0, len(row.tokens), 5):
        tokens = row.tokens.copy()
        tokens[position] = (tokens[position] + 1) % VOCAB_SIZE
        forward, backward = (
            model.unembed(h) for h in model.directions(collated([Row(tokens, row.document_ids)]))
        )
        assert torch.equal(forward[:, :position], before[0][:, :position])
        assert torch.equal(backward[:, position + 1 :], before[1][:, position + 1 :])
        assert not torch.equal(forward[:, position], before[0][:, position])
        assert not torch.equal(backward[:, position], before[1][:, position])


def test_an_untrained_model_is_as_good_as_chance() -> None:
    batch = collated(real_rows(8))
    terms = OBJECTIVE.loss(headless(small_model("bilstm")), batch)
    assert {name: weight for name, (weight, _) in terms.items()} == {
        "forward": 0.5,
        "backward": 0.5,
    }
    for name, (_, loss_sum) in terms.items():
        assert abs(loss_sum.item() / batch.num_targets[name] - np.log(VOCAB_SIZE)) < 0.2


def test_leaving_out_what_has_no_label_changes_no_loss() -> None:
    """The loss equals cross-entropy on the logits of all positions."""
    batch = collated(real_rows(4))
    assert batch.labels is not None and (batch.labels == IGNORE_INDEX).any()
    model = small_model("bilstm").eval()
    terms = OBJECTIVE.loss(headless(model), batch)
    for number, (name, states) in enumerate(zip(DIRECTIONS, model.directions(batch), strict=True)):
        logits, labels = model.unembed(states).flatten(0, 1), batch.labels[:, number].flatten()
        expected = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum")
        torch.testing.assert_close(terms[name][1], expected)


def test_it_trains_every_weight_but_the_mix_of_a_task() -> None:
    model = small_model("bilstm", tied=False)
    loss = sum(loss for _, loss in OBJECTIVE.loss(headless(model), collated(real_rows(2))).values())
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    without = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert without == {"mix.s", "mix.gamma"}


class Fixed:
    """One batch, given in every step."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def micro_batches(self, step: int) -> list[Batch]:
        return [self._batch]


@pytest.mark.slow
def test_one_batch_is_learnt_in_both_directions() -> None:
    """The loss falls well below the entropy of the tokens' frequencies."""
    batch = collated(real_rows(4))
    model = headless(small_model("bilstm", d_model=64, d_cell=64))
    schedule = SCHEDULE.model_copy(update={"lr": 2e-2})
    list(train(model, OBJECTIVE, Fixed(batch), schedule, num_steps=60, seed=1, device=CPU))
    shares = torch.bincount(batch.input_ids.flatten()) / batch.input_ids.numel()
    entropy = torch.special.entr(shares).sum().item()
    for name, (_, loss_sum) in OBJECTIVE.loss(model, batch).items():
        assert loss_sum.item() / batch.num_targets[name] < 0.3 * entropy
