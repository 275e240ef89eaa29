"""Multiple choice: the choices of a row are compared with each other and with nothing else."""

from typing import Any

import pytest
import torch

from stages.tasks.multiple_choice import MultipleChoice
from tests.small import small_model, small_tokenizer, with_head

ROWS: list[dict[str, Any]] = [
    {"id": "1", "text": "a class", "choices": ["the class", "a call"], "label": "0"},
    {"id": "2", "text": "a call", "choices": ["the class", "a method", "the call"], "label": "2"},
    {"id": "3", "text": "a method", "choices": ["a function of it", "methods"], "label": "1"},
]


def task(max_tokens: int = 16) -> MultipleChoice:
    return MultipleChoice([], small_tokenizer(), max_tokens, dropout=0.0)


def test_collate_puts_the_choices_of_a_row_into_one_batch() -> None:
    of = task()
    examples = of.encode(ROWS)
    assert [example.id for example in examples] == ["1", "2", "3"]
    batch = of.collate(examples, rngs=[])
    assert len(batch.input_ids) == 7
    assert batch.labels is not None and batch.extra is not None
    assert batch.labels.tolist() == [0, 2, 1]
    assert batch.extra.tolist() == [[0, 1, -1], [2, 3, 4], [5, 6, -1]]
    assert batch.num_targets == {"multiple_choice": 3}
    read = small_tokenizer().decode(batch.input_ids[4].tolist())
    assert "a call" in read and "the call" in read


def test_loss_and_predict_compare_the_choices_of_a_row_alone() -> None:
    of = task()
    model, examples = with_head(of, small_model("encoder")), of.encode(ROWS)
    batch = of.collate(examples, rngs=[])
    logits, loss = of.numbers(model, batch), of.loss(model, batch)["multiple_choice"][1]
    parts = zip((logits[:2], logits[2:5], logits[5:]), (0, 2, 1), strict=True)
    torch.testing.assert_close(loss, -sum(part.log_softmax(0)[right] for part, right in parts))
    loss.backward()
    assert all(w.grad is None or w.grad.isfinite().all() for w in model.parameters())
    with torch.no_grad():
        model.head.linear.weight.mul_(-100)
        predicted = of.predict(model, batch, examples)
    for row, prediction in zip(ROWS, predicted, strict=True):
        assert prediction.scores is not None and int(prediction.prediction) < len(row["choices"])
        assert [*prediction.scores] == [str(i) for i in range(len(row["choices"]))]
        assert sum(prediction.scores.values()) == pytest.approx(1)
        assert prediction.scores[prediction.prediction] == max(prediction.scores.values())
