"""Long texts read in windows: a text has one label, and the mean of its windows' logits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from stages.core.seeding import stream
from stages.kinds._cells import Row
from stages.methods.linear_probe import LinearProbe
from stages.models._heads import ModelWithHead, pool
from stages.tasks._pooled import MOST_WINDOWS, PooledTask, WindowBatch
from stages.tasks._task import TASKS, Example
from stages.tasks.classification import Classification
from stages.text.batch import Batch
from stages.text.tokenizer import EOS_ID
from stages.training.device import Device
from stages.training.finetuning import FinetuningData, in_order_of_length
from stages.training.flops import Counter, StepFlops
from stages.training.loop import add_gradients, train
from stages.training.solver import solve
from stages.trials.prediction import PREDICTED_AT_ONCE, predict
from tests.small import small_model, small_schedule, small_tokenizer, with_head

CPU = Device("cpu", "float32", compile=False, threads=1)
LABELS = ["bad", "fine", "good"]
WORDS = ("a", "class", "function", "the", "and", "of", "in")  # of one token each
MARKS = len(small_tokenizer().wrap([]))


def built(name: str, labels: list[str], max_tokens: int = 16, **settings: Any) -> Any:
    entry = {"name": name, "dropout": 0.0, "long_texts": "windows", **settings}
    return TASKS.build(entry, labels, small_tokenizer(), max_tokens, where="task")


def task(max_tokens: int = 16, **settings: Any) -> Classification:
    return built("classification", LABELS, max_tokens, **settings)


def text(number: int, *, seed: int = 1) -> str:
    return " ".join(WORDS[i] for i in stream(seed, "words").integers(len(WORDS), size=number))


def rows_of(*numbers: int) -> list[Row]:
    return [
        {"id": str(i), "text": text(number, seed=i), "label": LABELS[i % 3]}
        for i, number in enumerate(numbers)
    ]


def inner(example: Example) -> list[int]:
    return example.tokens[1:-1].tolist()


def test_encode_reads_all_of_a_text_in_windows_that_share_half_of_their_tokens() -> None:
    (row,) = rows_of(60)
    (ids,) = small_tokenizer().encode([row["text"]])
    (example,) = task(17).encode([row])
    room = 17 - MARKS
    step = room // 2
    assert room % 2 == 1 and example.num_windows > 4 and example.num_cut == 0
    for number, window in enumerate(example.windows):
        assert inner(window) == ids[number * step : number * step + room]
        assert window.key == f"0 {number}"
    assert inner(example.windows[-1])[-1] == ids[-1]
    assert all(len(window.tokens) == 17 for window in example.windows[:-1])
    assert len(example.windows[-1].tokens) > MARKS + room - step - 1  # new tokens and shared ones


def test_encode_reads_the_longer_text_of_a_pair_in_windows_and_all_of_the_shorter_in_each() -> None:
    short, long = "a class", text(60)
    shorter, longer = small_tokenizer().encode([short, long])
    for row in ({"text": long, "text_pair": short}, {"text": short, "text_pair": long}):
        (example,) = task(20).encode([{"id": "1", "label": "bad", **row}])
        assert example.num_windows > 3 and example.num_cut == 0
        read = list[list[int]]()
        for window in example.windows:
            assert window.pair_start is not None
            assert window.tokens.tolist().count(EOS_ID) == 2 and len(window.tokens) <= 20
            first, second = np.split(window.tokens, [window.pair_start])
            halves = [first[1:-1].tolist(), second[:-1].tolist()]
            assert halves.pop(0 if row["text"] == short else 1) == shorter
            read += halves
        assert read[0] == longer[: len(read[0])] and read[-1] == longer[-len(read[-1]) :]
        assert {tuple(part) for part in read} == {
            tuple(longer[at : at + len(read[0])])
            for at in range(0, len(longer) - len(read[0]) // 2, len(read[0]) // 2)
        }


def test_encode_counts_what_is_in_no_window_of_a_text_of_very_many() -> None:
    (row,) = rows_of(700)
    (ids,) = small_tokenizer().encode([row["text"]])
    (example,) = task(16).encode([row])
    room = 16 - MARKS
    assert example.num_windows == MOST_WINDOWS
    assert inner(example.windows[0]) == ids[:room] and inner(example.windows[-1])[-1] == ids[-1]
    # The windows are far from each other, so none shares a token with another.
    num_read = sum(len(window.tokens) - MARKS for window in example.windows)
    assert example.num_cut == len(ids) - num_read > 0


@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_texts_that_fit_are_learnt_and_predicted_exactly_as_with_cut(architecture, pooling) -> None:
    rows = rows_of(3, 14, 5, 1)
    of_each = []
    for long_texts in ("cut", "windows"):
        of = task(long_texts=long_texts, pooling=pooling, dropout=0.3)
        model, examples = with_head(of, small_model(architecture)), of.encode(rows)
        predictions = predict(of, model, rows, examples, CPU)
        data = FinetuningData(examples, of, batch_examples=4, seed=1)
        model.train()
        (loss,) = add_gradients(model, of, data.micro_batches(0), CPU, dropout_seeds=[1])
        gradients = [w.grad for w in model.parameters() if w.grad is not None]
        of_each.append((predictions, loss, gradients))
    (cut, loss, gradients), (windows, other_loss, other_gradients) = of_each
    assert cut == windows and torch.equal(loss, other_loss)
    for one, other in zip(gradients, other_gradients, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("architecture", ["encoder", "decoder", "bilstm"])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_logits_are_the_mean_of_those_of_each_window_alone(architecture, pooling) -> None:
    of = task(pooling=pooling)
    rows = rows_of(60, 4, 25, 90)
    model, examples = with_head(of, small_model(architecture)), of.encode(rows)
    batch = of.collate(examples, rngs=[])
    assert isinstance(batch, WindowBatch) and batch.num_targets == {"classification": 4}
    cut = task(pooling=pooling, long_texts="cut")
    for logits, example in zip(of.logits(model, batch), examples, strict=True):
        alone = [
            cut.logits(model, cut.collate([window], rngs=[]))[0]
            for window in example.windows or (example,)
        ]
        torch.testing.assert_close(logits, torch.stack(alone).mean(dim=0), rtol=1e-5, atol=1e-5)


def of_kind(name: str) -> tuple[PooledTask, list[Row]]:
    rows: list[Row] = rows_of(60, 4, 25, 90, 12)
    if name == "regression":
        rows = [{**row, "target": i / 2} for i, row in enumerate(rows)]
        return built("regression", []), rows
    if name == "multi_label":
        rows = [{**row, "labels": LABELS[: i % 4]} for i, row in enumerate(rows)]
        return built("multi_label", LABELS), rows
    return task(class_weights="balanced"), rows


@pytest.mark.parametrize("name", ["classification", "multi_label", "regression"])
def test_loss_counts_a_text_once_however_many_windows_it_has(name: str) -> None:
    """The loss of a batch is the sum of the losses of its texts, each alone."""
    of, rows = of_kind(name)
    model = with_head(of, small_model("encoder"))
    examples = of.weighted(of.encode(rows))
    together = of.loss(model, of.collate(examples, rngs=[]))[name][1]
    batches = [of.collate([example], rngs=[]) for example in examples]
    alone = [of.loss(model, batch)[name][1] for batch in batches]
    torch.testing.assert_close(together, torch.stack(alone).sum())
    per_text = {"multi_label": len(LABELS)}.get(name, 1)
    assert [batch.num_targets[name] for batch in batches] == [per_text] * len(rows)


@pytest.mark.parametrize("name", ["classification", "multi_label", "regression"])
def test_predictions_do_not_depend_on_the_other_texts_of_a_batch(name: str) -> None:
    of, rows = of_kind(name)
    model, examples = with_head(of, small_model("encoder")), of.encode(rows)
    together = predict(of, model, rows, examples, CPU)
    for row, example, expected in zip(rows, examples, together, strict=True):
        (alone,) = predict(of, model, [row], [example], CPU)
        if name == "regression":
            assert float(alone.prediction) == pytest.approx(float(expected.prediction), abs=1e-5)
            continue
        assert alone.prediction == expected.prediction
        assert alone.scores == pytest.approx(expected.scores, abs=1e-6)


def test_batches_have_no_more_windows_than_a_batch_has_texts_that_are_cut() -> None:
    """A long text needs little more memory, but a step has as many texts as without windows."""
    of, rows = task(), rows_of(*range(4, 100, 4))
    examples = of.encode(rows)
    for part in in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE):
        assert len(of.collate(part, rngs=[]).input_ids) <= PREDICTED_AT_ONCE
    data = FinetuningData(examples, of, batch_examples=8, seed=1)
    ids = list[str]()
    for step in range(data.steps_per_epoch):
        batches = data.micro_batches(step)
        assert sum(batch.num_targets["classification"] for batch in batches) == 8
        for batch in batches:
            num_texts = batch.num_targets["classification"]
            assert len(batch.input_ids) <= 8 or num_texts == 1
            ids += batch.example_ids
    assert len(ids) == len({*ids}) == sum(example.num_windows for example in examples)


def middling(number: int, max_tokens: int) -> list[Row]:
    """Texts of three windows, whose labels are those of one word in the middle."""
    rows, filler = list[Row](), ["a", "of", "the", "in"]
    rng = stream(1, "middling")
    for i in range(number):
        words = [filler[j] for j in rng.integers(len(filler), size=2 * max_tokens)]
        place = max_tokens + int(rng.integers(-2, 3))
        words[place] = ("class", "function", "and")[i % 3]
        rows.append({"id": str(i), "text": " ".join(words), "label": LABELS[i % 3]})
    return rows


def learnt(long_texts: str, rows: list[Row], *, num_steps: int = 60) -> float:
    """Returns the accuracy on the rows that are not learnt from."""
    of = task(long_texts=long_texts)
    model: ModelWithHead = with_head(of, small_model("encoder"))
    examples = of.encode(rows)
    data = FinetuningData(examples[:48], of, batch_examples=16, seed=1)
    schedule = small_schedule(rows=16, max_tokens=16, num_steps=num_steps, lr=5e-3).at(5e-3)
    for _ in train(model, of, data, schedule, num_steps=num_steps, seed=1, device=CPU):
        pass
    predicted = predict(of, model, rows[48:], examples[48:], CPU)
    pairs = zip(predicted, rows[48:], strict=True)
    return float(np.mean([one.prediction == row["label"] for one, row in pairs]))


def test_a_word_in_the_middle_is_learnt_with_windows_alone() -> None:
    rows = middling(108, 16)
    for row in rows:  # every word is a token, so the middle is beyond both ends
        (ids,) = small_tokenizer().encode([row["text"]])
        assert len(ids) == 32
    assert learnt("windows", rows) > 0.9
    assert learnt("cut", rows) < 0.6
    assert learnt("head_tail", rows) < 0.6


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_probe_is_that_of_the_mean_states_of_windows_and_predicts_as_the_full_model(
    pooling,
) -> None:
    """scikit-learn finds the same probe, from states that are computed window by window."""
    of, rows = task(pooling=pooling), rows_of(*range(8, 80))
    model = with_head(of, small_model("encoder"))
    backbone, method = model.backbone, LinearProbe()
    examples = of.encode(rows)
    states = []
    for example in examples:
        windows = [of.collate([window], rngs=[]) for window in example.windows or (example,)]
        pooled = [pool(backbone(batch), batch.document_ids, pooling) for batch in windows]
        states.append(torch.cat(pooled).mean(dim=0).detach().double().numpy())
    scaler = StandardScaler().fit(states)
    labels = [row["label"] for row in rows]
    theirs = LogisticRegression(C=0.1, tol=1e-8, max_iter=1000)
    expected = theirs.fit(scaler.transform(states), labels).predict_proba(scaler.transform(states))

    method.apply(model, generator=torch.Generator().manual_seed(1))
    parts = in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE)
    batches = [of.collate(part, rngs=[]) for part in parts]
    method.remember(model, batches)
    solve(model, of, batches, batches, inverse_strengths=[0.1], merit=lambda: 0.0, device=CPU)
    remembered = predict(of, model, rows, examples, CPU)
    whole = predict(of, ModelWithHead(backbone, model.head), rows, examples, CPU)
    for one, other, probabilities in zip(remembered, whole, expected, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-6)
        assert one.scores == pytest.approx(dict(zip(LABELS, probabilities, strict=True)), abs=1e-3)


def test_a_copy_of_a_text_with_another_id_has_windows_with_this_id() -> None:
    """The speed of prediction is measured on copies, whose states no probe remembers."""
    of = task()
    (example,) = of.encode(rows_of(40))
    batch = of.collate([replace(example, id="new")], rngs=[])
    assert [*batch.example_ids] == [f"new {i}" for i in range(example.num_windows)]


@pytest.mark.parametrize("name", ["multi_label", "regression"])
def test_operations_of_windows_are_interpolated_exactly(name: str) -> None:
    of, _ = of_kind(name)
    rows = [row | {"labels": ["bad"], "target": 1.0} for row in map(dict, rows_of(*range(4, 60)))]
    data = FinetuningData(of.encode(rows), of, batch_examples=4, seed=1)
    model, step_flops = with_head(of, small_model("encoder")), StepFlops()
    weights = [*model.parameters()]
    for step in range(2 * data.steps_per_epoch):
        batches, counter = data.micro_batches(step), Counter()

        def gradients(batches: list[Batch] = batches, counter: Counter = counter) -> None:
            with counter:
                add_gradients(model, of, batches, CPU)

        _, flops = step_flops.of(gradients, weights, batches)
        assert flops == counter.total > 0
