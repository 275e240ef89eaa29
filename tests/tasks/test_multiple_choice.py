"""Multiple choice: the choices of a row are compared with each other and with nothing else."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks.multiple_choice import MultipleChoice
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import EOS_ID
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import train
from stages.trials.prediction import predict
from tests.small import ARCHITECTURES, small_model, small_tokenizer, without_output_layers
from tests.training.test_loop import SCHEDULE

CPU = Device("cpu", "float32", compile=False, threads=1)
ROWS: list[dict[str, Any]] = [
    {"id": "1", "text": "a class", "choices": ["the class", "a call"], "label": "0"},
    {"id": "2", "text": "a call", "choices": ["the class", "a method", "the call"], "label": "2"},
    {"id": "3", "text": "a method", "choices": ["a function of it", "methods"], "label": "1"},
]


def task(max_tokens: int = 16) -> MultipleChoice:
    return MultipleChoice([], small_tokenizer(), max_tokens, dropout=0.0)


def adapted(architecture: str, of: MultipleChoice) -> ModelWithHead:
    backbone = without_output_layers(small_model(architecture))
    head = of.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1))
    return ModelWithHead(backbone, head).eval()


def test_a_row_is_one_example_and_its_choices_are_rows_of_one_batch() -> None:
    of = task()
    examples = of.encode(ROWS)
    assert [example.id for example in examples] == ["1", "2", "3"]
    batch = of.collate(examples, rngs=[])
    assert len(batch.input_ids) == 7 and len({*batch.example_ids}) == 7
    assert batch.labels is not None and batch.choices is not None
    assert batch.labels.tolist() == [0, 2, 1]
    assert batch.choices.tolist() == [[0, 1, -1], [2, 3, 4], [5, 6, -1]]
    assert batch.num_targets == {"multiple_choice": 3}
    read = [small_tokenizer().decode(ids) for ids in batch.input_ids.tolist()]
    assert [all(word in read[4] for word in ("a call", "the call"))] == [True]
    data = FinetuningData(examples, of, batch_examples=2, seed=1)
    for step in range(data.steps_per_epoch):
        (part,) = data.micro_batches(step)
        assert part.choices is not None
        numbers = [i for i in part.choices.flatten().tolist() if i >= 0]
        assert numbers == [*range(len(part.input_ids))]


def test_the_loss_is_cross_entropy_over_the_choices_of_each_row() -> None:
    for architecture in ARCHITECTURES:
        of = task()
        model, examples = adapted(architecture, of), of.encode(ROWS)
        batch = of.collate(examples, rngs=[])
        logits = of.outputs(model, batch)
        parts = [logits[:2], logits[2:5], logits[5:]]
        expected = -sum(part.log_softmax(0)[y] for part, y in zip(parts, (0, 2, 1), strict=True))
        torch.testing.assert_close(of.loss(model, batch)["multiple_choice"][1], expected)
        alone = [of.loss(model, of.collate([e], rngs=[]))["multiple_choice"][1] for e in examples]
        torch.testing.assert_close(sum(alone), expected)


def test_an_absent_choice_is_never_chosen_and_moves_no_weight() -> None:
    of = task()
    model, examples = adapted("encoder", of), of.encode(ROWS)
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


def test_a_test_row_has_no_label_and_counts_in_no_loss() -> None:
    of = task()
    unknown = {key: ROWS[1][key] for key in ("id", "text", "choices")}
    batch = of.collate(of.encode([ROWS[0], unknown]), rngs=[])
    assert batch.labels is not None and batch.labels.tolist() == [0, IGNORE_INDEX]
    assert batch.num_targets == {"multiple_choice": 1}


def test_a_copy_under_another_name_has_choices_of_that_name() -> None:
    """A probe caches states by these names; speed is measured on copies with new names."""
    of = task()
    new = [replace(example, id=f"new {example.id}") for example in of.encode(ROWS)]
    names = of.collate(new, rngs=[]).example_ids
    assert all(name.startswith("new ") for name in names) and len({*names}) == 7


def test_a_question_is_read_and_a_long_text_leaves_room_for_the_choice() -> None:
    of = task()
    long = {"id": "1", "text": "a function " * 30, "choices": ["a class", "the method"]}
    with_question = ROWS[0] | {"question": "the function"}
    encoded = of.encode([long, ROWS[0], with_question])
    first, second = (one.tokens.tolist() for one in encoded[0].choices)  # type: ignore[attr-defined]
    assert first != second and max(len(first), len(second)) <= 16
    assert encoded[1].tokens.tolist() != encoded[2].tokens.tolist()


@torch.no_grad()
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_choice_is_scored_by_a_state_that_has_read_it_and_the_text(architecture: str) -> None:
    of = task()
    model = adapted(architecture, of)
    model.head.linear.weight.mul_(20)
    batch = of.collate(of.encode(ROWS[:1]), rngs=[])
    before = of.outputs(model, batch)
    for position in (batch.input_ids[0] > EOS_ID).nonzero().flatten().tolist():
        changed = batch.input_ids.clone()
        changed[0, position] += 1
        after = of.outputs(model, replace(batch, input_ids=changed))
        assert abs(after[0] - before[0]) > 1e-6 and abs(after[1] - before[1]) < 1e-6


def test_pooling_that_has_not_read_the_text_is_refused() -> None:
    of = MultipleChoice([], small_tokenizer(), 16, pooling="first")
    of.read_by(small_model("decoder"), has_prefix=False)
    with pytest.raises(ValueError, match="^pooling"):
        of.head(small_model("decoder"))


@pytest.mark.slow
def test_it_learns_which_choice_goes_with_the_text() -> None:
    of = task()
    model = adapted("encoder", of)
    data = FinetuningData(of.encode(ROWS), of, batch_examples=3, seed=1)
    schedule = SCHEDULE.model_copy(update={"lr": 3e-3})
    list(train(model, of, data, schedule, num_steps=60, seed=1, device=CPU))
    predicted = predict(of, model, ROWS, of.encode(ROWS), CPU)
    assert [each.prediction for each in predicted] == [row["label"] for row in ROWS]
