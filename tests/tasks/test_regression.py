"""Regression: the scale of the target, and how a model sees a row."""

import numpy as np
import pytest
import torch

from stages.kinds._kind import KINDS
from stages.tasks.regression import Regression
from tests.small import small_model, small_tokenizer, with_head

ROWS = [
    {"id": str(i), "text": text, "text_pair": pair, "target": target}
    for i, (text, pair, target) in enumerate(
        [
            ("the class", "the class", 5000.0),
            ("the function", "a method call", 1000.0),
            ("a call of the function", "a call of the function", 4800.0),
            ("classes have methods", "the statement ends", 1300.0),
        ]
    )
]


def task() -> Regression:
    of = Regression([], small_tokenizer(), 16)
    of.take_facts(KINDS["regression"].facts(ROWS))
    return of


def test_regression_learns_standardised_targets_and_predicts_targets() -> None:
    of = task()
    batch = of.collate(of.encode(ROWS), rngs=[])
    targets = np.array([row["target"] for row in ROWS])
    assert batch.values is not None
    expected = (targets - targets.mean()) / targets.std()
    np.testing.assert_allclose(batch.values.numpy(), expected, rtol=1e-6)
    model = with_head(of, small_model("encoder"))
    with torch.no_grad():
        model.head.linear.weight.zero_()
        predictions = of.predict(model, batch, of.encode(ROWS))
    assert {float(value) for value in predictions} == {targets.mean()}
    loss = of.loss(model, batch)["regression"][1]
    assert loss.item() == pytest.approx(len(ROWS))  # predicting the mean costs 1 for each row


def test_outputs_are_float32_at_any_precision() -> None:
    """Numbers of three digits would tie in bfloat16."""
    of = task()
    model, examples = with_head(of, small_model("encoder")), of.encode(ROWS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert of.outputs(model, of.collate(examples, rngs=[])).dtype == torch.float32
