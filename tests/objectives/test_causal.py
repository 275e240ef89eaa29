"""Causal language modelling: the next token, within the document."""

import numpy as np

from stages.objectives.causal import Causal
from stages.text.batch import IGNORE_INDEX
from stages.text.packing import Packing, Row
from stages.text.tokenizer import Vocabulary
from tests.small import VOCAB_SIZE, headless, small_corpus, small_model

OBJECTIVE = Causal(Vocabulary(VOCAB_SIZE), 8)


def test_labels_are_the_next_tokens_of_the_same_document() -> None:
    row = Row(np.array([2, 10, 11, 3, 2, 12]), np.array([1, 1, 1, 1, 2, 2]))
    batch = OBJECTIVE.collate([row], rngs=[np.random.default_rng(0)])
    ignored = IGNORE_INDEX
    assert batch.labels is not None
    assert batch.labels.tolist() == [[10, 11, 3, ignored, 12, ignored]]
    assert batch.num_targets == {"causal": 4}


def test_an_untrained_model_is_as_good_as_chance() -> None:
    packing = Packing(small_corpus(), 32, seed=1)
    rows = [packing.row(i) for i in range(8)]
    batch = OBJECTIVE.collate(rows, rngs=[np.random.default_rng(0)] * 8)
    _, loss_sum = OBJECTIVE.loss(headless(small_model("decoder")), batch)["causal"]
    loss = loss_sum.item() / batch.num_targets["causal"]
    assert abs(loss - np.log(VOCAB_SIZE)) < 0.2
