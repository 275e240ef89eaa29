"""Bidirectional language modelling: the next and the previous token, within the document."""

import numpy as np
import torch
import torch.nn.functional as F

from stages.objectives.bidirectional_lm import BidirectionalLM
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Packing, Row
from stages.text.tokenizer import Vocabulary
from tests.small import VOCAB_SIZE, headless, small_corpus, small_model

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
