"""Regression: the scale of the target, and how a model sees a row."""

from typing import Any

import numpy as np
import pytest
import torch

from stages.kinds._kind import KINDS
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS
from stages.tasks.regression import Regression
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import train
from stages.trials.prediction import predict
from tests.small import ARCHITECTURES, small_model, small_tokenizer, without_output_layers
from tests.training.test_loop import SCHEDULE

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


def task(rows: list[dict[str, Any]] = ROWS, **settings: Any) -> Regression:
    of = Regression([], small_tokenizer(), 16, **settings)
    of.take_facts(KINDS["regression"].facts(rows))
    return of


def adapted(architecture: str, of: Regression) -> ModelWithHead:
    backbone = without_output_layers(small_model(architecture))
    head = of.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1))
    return ModelWithHead(backbone, head).eval()


def test_what_is_learnt_is_standardised_and_what_is_predicted_is_not() -> None:
    of = task()
    batch = of.collate(of.encode(ROWS), rngs=[])
    targets = np.array([row["target"] for row in ROWS])
    assert batch.values is not None
    expected = (targets - targets.mean()) / targets.std()
    np.testing.assert_allclose(batch.values.numpy(), expected, rtol=1e-6)
    model = adapted("encoder", of)
    with torch.no_grad():
        model.head.linear.weight.zero_()
        predictions = of.predict(model, batch, of.encode(ROWS))
    assert {float(value) for value in predictions} == {targets.mean()}
    loss = of.loss(model, batch)["regression"][1]
    assert loss.item() == pytest.approx(len(ROWS))  # predicting the mean costs 1 for each row


def test_a_row_without_a_target_counts_in_no_loss() -> None:
    of, labelled = task(), ROWS[:2]
    unlabelled = [{key: row[key] for key in ("id", "text", "text_pair")} for row in ROWS[2:]]
    model = adapted("encoder", of)
    batch = of.collate(of.encode([*labelled, *unlabelled]), rngs=[])
    assert batch.num_targets == {"regression": 2}
    alone = of.loss(model, of.collate(of.encode(labelled), rngs=[]))["regression"][1]
    torch.testing.assert_close(of.loss(model, batch)["regression"][1], alone)


def test_prediction_does_not_depend_on_the_batch() -> None:
    for architecture in ARCHITECTURES:
        of = task()
        model, examples = adapted(architecture, of), of.encode(ROWS)
        with torch.no_grad():
            together = of.predict(model, of.collate(examples, rngs=[]), examples)
            alone = [of.predict(model, of.collate([e], rngs=[]), [e])[0] for e in examples]
        np.testing.assert_allclose([*map(float, together)], [*map(float, alone)], rtol=1e-5)


def test_both_texts_change_the_prediction() -> None:
    """A long text leaves room for the other one."""
    of = task()
    first = {"id": "1", "text": "a class " * 30, "text_pair": "a function"}
    others = [first | {"id": "2", "text_pair": "a method"}, first | {"id": "3", "text": "call"}]
    long = first | {"id": "4", "text": "a class", "text_pair": "a function " * 30}
    last = long | {"id": "5", "text": "call"}
    examples = of.encode([first, *others, long, last])
    assert max(len(example.tokens) for example in examples) <= 16
    model = adapted("encoder", of)
    with torch.no_grad():
        a, b, c, d, e = of.predict(model, of.collate(examples, rngs=[]), examples)
    assert len({a, b, c}) == 3 and d != e


def test_the_predicted_numbers_are_float32_at_any_precision() -> None:
    """Numbers of three digits would tie in bfloat16."""
    of = task()
    model, examples = adapted("encoder", of), of.encode(ROWS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert of.outputs(model, of.collate(examples, rngs=[])).dtype == torch.float32


@pytest.mark.slow
def test_it_learns_a_planted_relation_in_the_targets_units() -> None:
    of, device = task(), Device("cpu", "float32", compile=False, threads=1)
    model = adapted("encoder", of)
    data = FinetuningData(of.encode(ROWS), of, batch_examples=4, seed=1)
    schedule = SCHEDULE.model_copy(update={"lr": 3e-3})
    list(train(model, of, data, schedule, num_steps=80, seed=1, device=device))
    predicted = predict(of, model, ROWS, of.encode(ROWS), device)
    errors = [
        abs(float(p.prediction) - row["target"]) for p, row in zip(predicted, ROWS, strict=True)
    ]
    assert max(errors) < 600  # targets lie between 1000 and 5000


def test_settings_that_make_no_sense_are_refused() -> None:
    entry = {"name": "regression", "text_step": 0.0}
    with pytest.raises(ValueError, match="text_step"):
        TASKS.find("regression", where="").check(64, **TASKS.settings(entry, where="task"))
