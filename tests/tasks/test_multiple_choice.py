"""Multiple choice: the choices of a row are compared with each other and with nothing else."""

from typing import Any

import pytest
import torch

from stages.tasks._task import TASKS
from stages.tasks._text_form import NO_LABEL
from stages.tasks.multiple_choice import MultipleChoice
from stages.training.finetuning import FinetuningData
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
    assert len(batch.input_ids) == 7 and len({*batch.example_ids}) == 7
    assert batch.labels is not None and batch.choices is not None
    assert batch.labels.tolist() == [0, 2, 1]
    assert batch.choices.tolist() == [[0, 1, -1], [2, 3, 4], [5, 6, -1]]
    assert batch.num_targets == {"multiple_choice": 3}
    read = small_tokenizer().decode(batch.input_ids[4].tolist())
    assert "a call" in read and "the call" in read
    data = FinetuningData(examples, of, batch_examples=2, seed=1)
    for step in range(data.steps_per_epoch):
        (part,) = data.micro_batches(step)
        assert part.choices is not None
        numbers = [i for i in part.choices.flatten().tolist() if i >= 0]
        assert numbers == [*range(len(part.input_ids))]


def test_loss_is_cross_entropy_over_the_choices_of_each_row() -> None:
    of = task()
    model = with_head(of, small_model("encoder"))
    batch = of.collate(of.encode(ROWS), rngs=[])
    logits = of.outputs(model, batch)
    parts = [logits[:2], logits[2:5], logits[5:]]
    expected = -sum(part.log_softmax(0)[y] for part, y in zip(parts, (0, 2, 1), strict=True))
    torch.testing.assert_close(of.loss(model, batch)["multiple_choice"][1], expected)


def test_predict_never_chooses_an_absent_choice_and_loss_learns_nothing_of_it() -> None:
    of = task()
    model, examples = with_head(of, small_model("encoder")), of.encode(ROWS)
    batch = of.collate(examples, rngs=[])
    of.loss(model, batch)["multiple_choice"][1].backward()
    assert all(w.grad is None or w.grad.isfinite().all() for w in model.parameters())
    with torch.no_grad():
        model.head.linear.weight.mul_(-100)
        predicted = of.predict_scored(model, batch, examples)
    for row, prediction in zip(ROWS, predicted, strict=True):
        assert prediction.scores is not None and int(prediction.prediction) < len(row["choices"])
        assert [*prediction.scores] == [str(i) for i in range(len(row["choices"]))]
        assert sum(prediction.scores.values()) == pytest.approx(1)
        assert prediction.scores[prediction.prediction] == max(prediction.scores.values())


# Rows -------------------------------------------------------------------------------------------

ROW = {"text": "It rained.", "choices": ["He got wet.", "He ate."], "question": "effect"}


@pytest.mark.parametrize(
    ("first", "label", "expected"),
    [(0, "0", "0"), (0, "1", "1"), (1, "1", "0"), (1, "2", "1"), ("A", "A", "0"), ("A", "b", "1")],
)
def test_checked_counts_the_right_choice_from_0(first, label: str, expected: str) -> None:
    kind: Any = MultipleChoice.for_rows(first_choice=first)
    row = kind.checked(ROW | {"label": label}, "line 1")
    assert row["label"] == kind.answer(row) == expected


@pytest.mark.parametrize(
    ("first", "label"), [(0, "2"), (0, "-1"), (0, "A"), (1, "0"), (1, "3"), ("A", "C"), ("A", "1")]
)
def test_checked_refuses_a_label_that_is_none_of_the_choices(first, label: str) -> None:
    with pytest.raises(ValueError, match=r"^line 1.*first_choice"):
        MultipleChoice.for_rows(first_choice=first).checked(ROW | {"label": label}, "line 1")


def test_as_text_writes_the_right_choice() -> None:
    form = TASKS["multiple_choice"].as_text("copa", {"task": {}, "labels": []})
    assert form.input(ROW) == (
        "copa text: It rained. question: effect choice1: He got wet. choice2: He ate."
    )
    assert form.answer(ROW | {"label": "1"}) == "He ate." and form.answer(ROW) is None
    assert form.prediction(ROW, "he  ate.") == "1"
    assert form.prediction(ROW, "He") == form.prediction(ROW, "") == NO_LABEL
    twice = ROW | {"choices": ["No.", "Yes.", "no."]}
    assert form.prediction(twice, "No.") == "0"
