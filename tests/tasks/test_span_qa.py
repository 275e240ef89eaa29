"""Span question answering: windows of a context, the span that is taught and the predicted one."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stages.tasks._task import Example
from stages.tasks.span_qa import NO_ANSWER, SpanQA
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.tokenizer import EOS_ID
from stages.training.device import Device
from stages.trials.prediction import predict
from tests.small import small_tokenizer, with_stub

CONTEXT = (
    "A class is made by a statement. The ﬁrst café has a name, “tea”, of e\u0301tudes in Ⅷ acts."
)
CPU = Device("cpu", "float32", compile=False, threads=1)
SMALL: dict[str, Any] = {"stride": 4, "max_question_tokens": 8, "max_answer_tokens": 12}


def task(max_tokens: int = 24, **given: Any) -> SpanQA:
    return SpanQA([], small_tokenizer(), max_tokens, **SMALL | given)


def row(
    text: str | None, *, context: str = CONTEXT, question: str = "what?", id: str = "1"
) -> dict:
    """A question with one answer, or with none."""
    answers = [] if text is None else [{"text": text, "answer_start": context.index(text)}]
    return {"id": id, "question": question, "context": context, "answers": answers}


class Oracle(nn.Module):
    """A head whose logits are right for the labels."""

    def forward(self, states, document_ids, candidates) -> tuple[torch.Tensor, ...]:
        logits = []
        for classes in states[:, 0, :2].long().unbind(dim=1):
            right = torch.zeros(len(states), 1 + candidates.shape[1])
            right[:, 1:][~candidates] = -torch.inf
            right[torch.arange(len(states)), classes.clamp(min=0)] = 9.0
            logits.append(right)
        return tuple(logits)


class Labels(nn.Module):
    """A backbone that puts the labels into the first state, for the oracle to read."""

    def forward(self, batch: Batch) -> torch.Tensor:
        assert batch.labels is not None
        states = torch.zeros(*batch.input_ids.shape, 32)
        states[:, 0, :2] = batch.labels.float()
        return states


def context_ids(example: Example) -> list[int]:
    assert example.pair_start is not None
    return example.tokens[example.pair_start : -1].tolist()


@given(
    words=st.lists(st.sampled_from(["class", "a", "ﬁne", "Ⅷ", "x.y()", "漢字"]), max_size=60),
    max_tokens=st.integers(17, 40),
    stride=st.integers(0, 5),
    question=st.sampled_from(["", "what?", "which statement makes a class of its own?"]),
)
@settings(max_examples=60, deadline=None)
def test_encode_windows_cover_every_token_and_share_the_stride(words, max_tokens, stride, question):
    context = " ".join(words)
    of = task(max_tokens, stride=stride)
    examples = of.encode([row(None, context=context, question=question)])
    ids, offsets = small_tokenizer().encode_with_offsets([context])[0]
    question_ids = small_tokenizer().encode([question])[0][:8]
    read = context_ids(examples[0])
    for before, example in zip(examples, examples[1:], strict=False):
        assert stride == 0 or context_ids(before)[-stride:] == context_ids(example)[:stride]
        assert len(before.tokens) == max_tokens, "every window but the last is full"
        read += context_ids(example)[stride:]
        assert len(context_ids(example)) > stride, "the last window has something new"
    assert read == ids
    assert [example.window for example in examples] == [*range(len(examples))]
    for example in examples:
        assert len(example.tokens) <= max_tokens
        assert example.tokens[1 : 1 + len(question_ids)].tolist() == question_ids
        assert example.tokens[1 + len(question_ids)] == example.tokens[-1] == EOS_ID
        assert example.pair_start == len(question_ids) + 2
        assert example.offsets is not None and not example.offsets[: example.pair_start].any()
        assert all(tuple(offset) in {*offsets, (0, 0)} for offset in example.offsets.tolist())


@pytest.mark.parametrize("text", ["A class", "ﬁrst café", "“tea”", "e\u0301tudes", "Ⅷ", "Ⅷ acts"])
def test_encode_teaches_the_answer_in_the_text_as_it_was_given(text) -> None:
    """An answer of at most as many tokens as windows share is complete in at least one window."""
    windows = task(stride=7).encode([row(text)])
    holding = [window for window in windows if window.labels[0] != NO_ANSWER]
    assert holding and len(windows) > 1
    for window in holding:
        assert window.offsets is not None
        first, last = window.labels - 1
        assert CONTEXT[window.offsets[first, 0] : window.offsets[last, 1]] == text


def test_encode_teaches_the_first_answer_that_is_not_too_long_or_none() -> None:
    of = task(64, max_answer_tokens=5)
    unknown = {key: value for key, value in row("class").items() if key != "answers"}
    long = CONTEXT[:40]
    both = row("class") | {
        "answers": [{"text": long, "answer_start": 0}, {"text": "class", "answer_start": 2}]
    }
    rows = [row(None), unknown, row(long), both]
    examples = of.encode([{**one, "id": str(i)} for i, one in enumerate(rows)])
    labels = [example.labels.tolist() for example in examples]
    assert len(labels) == len(rows)
    assert labels[0] == [NO_ANSWER, NO_ANSWER]
    assert labels[1] == labels[2] == [IGNORE_INDEX, IGNORE_INDEX]
    assert labels[3] == of.encode([row("class")])[0].labels.tolist(), "the first that is not long"
    assert of.collate(examples, rngs=[]).num_targets == {"start": 2, "end": 2}


def test_predict_finds_the_answers_with_a_model_that_knows_them() -> None:
    """The answer may be in any window, or in none."""
    texts = ["A class", "statement", "ﬁrst café", "“tea”", "Ⅷ acts", None]
    rows = [row(text, id=str(i)) for i, text in enumerate(texts)]
    of = task(no_answer=True, stride=7)  # every answer is complete in some window
    oracle = with_stub(Labels(), Oracle())
    predicted = predict(of, oracle, rows, of.encode(rows), CPU)
    assert [each.at(0.0) for each in predicted] == [text or "" for text in texts]
    batch = of.collate(of.encode(rows), rngs=[])
    for weight, loss in of.loss(oracle, batch).values():
        assert weight == 0.5 and loss / len(batch.input_ids) < 0.2
