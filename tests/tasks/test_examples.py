"""How rows become examples: of a text, a pair or the choices of a row; of words, at one of their
subwords; of spans that answer a question, in windows of a context."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from stages.models._heads import ModelWithHead
from stages.tasks._task import TASKS, Example
from stages.tasks.classification import Classification
from stages.tasks.multiple_choice import MultipleChoice
from stages.tasks.span_qa import NO_ANSWER, SpanQA
from stages.tasks.tagging import Tagging
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.tokenizer import BOS_ID, EOS_ID, Tokenizer
from stages.training.device import Device
from stages.trials.prediction import predict
from tests.small import headless, small_model, small_tokenizer, with_head
from tests.small_hub import FAMILIES, checkpoint

LABELS = ["bad", "fine", "good"]


def task(max_tokens: int = 16, **settings) -> Classification:
    entry = {"name": "classification", **settings}
    built = TASKS.build(entry, LABELS, small_tokenizer(), max_tokens, where="task")
    assert isinstance(built, Classification)
    return built


def test_encode_reads_the_head_and_the_tail_of_a_long_text() -> None:
    words = ["a", "class", "function", "returns", "Objects", "of"]
    long = " ".join([*(words[i * i % 6] for i in range(60)), "is undefined"])
    (ids,) = small_tokenizer().encode([long])
    rows = [{"id": "1", "text": long}, {"id": "2", "text": "a class", "text_pair": long}]
    example, pair = task(17, long_texts="head_tail").encode(rows)
    assert example.tokens.tolist() == [BOS_ID, *ids[:8], *ids[-7:], EOS_ID]
    assert example.num_cut == len(ids) - 15
    room = 17 - (pair.pair_start or 0) - 1
    expected = [*ids[: room - room // 2], *ids[len(ids) - room // 2 :]]
    assert pair.tokens[pair.pair_start : -1].tolist() == expected


@cache
def tokenizers_of(family: str) -> tuple[Tokenizer, Any]:
    return Tokenizer(checkpoint(family)), AutoTokenizer.from_pretrained(checkpoint(family))


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"gpt2"}))  # which has no marks
def test_encode_cuts_texts_as_transformers_does(family: str) -> None:
    tokenizer, theirs = tokenizers_of(family)
    for lengths in [(3,), (40,), (3, 40), (40, 3), (30, 31), (2, 2)]:
        texts = [" ".join(["class"] * number) for number in lengths]
        row = dict(zip(("text", "text_pair"), texts, strict=False))
        (example,) = Classification(LABELS, tokenizer, 24).encode([{"id": "1", **row}])
        expected = theirs(*texts, truncation="longest_first", max_length=24)["input_ids"]
        assert example.tokens.tolist() == expected, lengths
        assert example.num_cut == len(theirs(*texts)["input_ids"]) - len(expected)


def test_weighted_loss_is_that_of_rare_rows_repeated() -> None:
    """With 6 rows of one class and 2 of another, balanced weights give the mean loss of rows that
    have the second class three times. A class without rows counts for nothing."""
    texts = ["a class", "a function", "of its own", "objects", "returns a class", "of", "a", "if"]
    rows = [
        {"id": str(i), "text": text, "label": "bad" if i < 6 else "good"}
        for i, text in enumerate(texts)
    ]
    balanced, plain = task(class_weights="balanced"), task()
    model = with_head(plain, small_model("encoder")).eval()

    def mean_loss(of: Classification, examples: list[Example]) -> float:
        batch = of.collate(examples, rngs=[])
        return of.loss(model, batch)["classification"][1].item() / len(examples)

    expected = mean_loss(plain, plain.encode([*rows, *2 * rows[6:]]))
    weighted = balanced.weighted(balanced.encode(rows))
    assert mean_loss(balanced, weighted) == pytest.approx(expected, rel=1e-5)
    unweighted = mean_loss(plain, plain.weighted(plain.encode(rows)))
    assert unweighted != pytest.approx(expected, rel=1e-3)
    assert mean_loss(balanced, balanced.encode(rows)) == unweighted, "of validation rows"


CHOICES: list[dict[str, Any]] = [
    {"id": "1", "text": "a class", "choices": ["the class", "a call"], "label": "0"},
    {"id": "2", "text": "a call", "choices": ["the class", "a method", "the call"], "label": "2"},
    {"id": "3", "text": "a method", "choices": ["a function of it", "methods"], "label": "1"},
]


def test_multiple_choice_compares_the_choices_of_a_row_alone() -> None:
    of = MultipleChoice([], small_tokenizer(), 16, dropout=0.0)
    model, examples = with_head(of, small_model("encoder")), of.encode(CHOICES)
    batch = of.collate(examples, rngs=[])
    assert batch.extra is not None
    assert batch.extra.tolist() == [[0, 1, -1], [2, 3, 4], [5, 6, -1]]
    read = small_tokenizer().decode(batch.input_ids[4].tolist())
    assert "a call" in read and "the call" in read
    logits, loss = of.numbers(model, batch), of.loss(model, batch)["multiple_choice"][1]
    parts = zip((logits[:2], logits[2:5], logits[5:]), (0, 2, 1), strict=True)
    torch.testing.assert_close(loss, -sum(part.log_softmax(0)[right] for part, right in parts))
    loss.backward()
    assert all(w.grad is None or w.grad.isfinite().all() for w in model.parameters())
    with torch.no_grad():
        model.head.linear.weight.mul_(-100)
        predicted = of.predict(model, batch, examples)
    for row, prediction in zip(CHOICES, predicted, strict=True):
        assert prediction.scores is not None
        assert [*prediction.scores] == [str(i) for i in range(len(row["choices"]))]
        assert sum(prediction.scores.values()) == pytest.approx(1)
        assert prediction.scores[prediction.prediction] == max(prediction.scores.values())


# Words --------------------------------------------------------------------------------------------

TAG_LABELS = ["B-CODE", "I-CODE", "O"]
WORDS = ["The", "antidisestablishmentarian", "class", "x.y_z()", "漢字"]
TAGS = ["O", "O", "B-CODE", "I-CODE", "O"]


def tagging(max_tokens: int = 64, *, by: str = "encoder") -> Tagging:
    of = Tagging(TAG_LABELS, small_tokenizer(), max_tokens)
    of.read_by(small_model(by), has_prefix=False)
    return of


@pytest.mark.parametrize("by", ["encoder", "decoder"])
def test_tagging_has_labels_at_one_subword_of_each_word(by: str) -> None:
    """A causal model needs the last subword: at the first, it has not read the others."""
    (words,) = small_tokenizer().encode_words([WORDS])
    ends = np.cumsum([len(ids) for ids in words])  # <bos> comes before them
    begins = np.array([1, *(1 + ends[:-1])])
    (example,) = tagging(by=by).encode([{"id": "1", "words": WORDS, "tags": TAGS}])
    assert example.word_positions is not None
    counted = (example.labels != IGNORE_INDEX).nonzero()[0].tolist()
    expected = (begins if by == "encoder" else ends).tolist()
    assert counted == example.word_positions.tolist() == expected
    assert [TAG_LABELS[i] for i in example.labels[example.word_positions]] == TAGS


@pytest.mark.parametrize(("by", "labelled"), [("encoder", 2), ("decoder", 1)])
def test_tagging_predicts_outside_for_a_word_that_is_cut(
    by: str, labelled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (words,) = small_tokenizer().encode_words([WORDS])
    assert len(words[0]) < 3 < len(words[1])
    max_tokens = 1 + len(words[0]) + 2 + 1  # two subwords of the second word
    of = tagging(max_tokens, by=by)
    (example,) = examples = of.encode([{"id": "1", "words": WORDS, "tags": ["B-CODE"] * 5}])
    assert (example.labels != IGNORE_INDEX).sum() == labelled
    assert example.num_cut == sum(map(len, words)) + 2 - max_tokens
    begins = torch.tensor([1.0, 0.0, 0.0])  # B-CODE everywhere
    monkeypatch.setattr(of, "outputs", lambda model, batch: begins.expand(*batch.labels.shape, 3))
    model = headless(small_model(by))
    (predicted,) = of.predict(model, of.collate(examples, rngs=[]), examples)
    assert predicted.split() == ["B-CODE"] * labelled + ["O"] * (5 - labelled)


# Span question answering --------------------------------------------------------------------------


CONTEXT = (
    "A class is made by a statement. The ﬁrst café has a name, “tea”, of e\u0301tudes in Ⅷ acts."
)
SMALL: dict[str, Any] = {"stride": 4, "max_question_tokens": 8, "max_answer_tokens": 12}


def asking(max_tokens: int = 24, **given: Any) -> SpanQA:
    return SpanQA([], small_tokenizer(), max_tokens, **SMALL | given)


def row(
    text: str | None, *, context: str = CONTEXT, question: str = "what?", id: str = "1"
) -> dict:
    """A question with one answer, or with none."""
    answers = [] if text is None else [{"text": text, "answer_start": context.index(text)}]
    return {"id": id, "question": question, "context": context, "answers": answers}


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
    examples = asking(max_tokens, stride=stride).encode(
        [row(None, context=context, question=question)]
    )
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
    windows = asking(stride=7).encode([row(text)])
    holding = [window for window in windows if window.labels[0] != NO_ANSWER]
    assert holding and len(windows) > 1
    for window in holding:
        assert window.offsets is not None
        first, last = window.labels - 1
        assert CONTEXT[window.offsets[first, 0] : window.offsets[last, 1]] == text


def test_encode_teaches_the_first_answer_that_is_not_too_long_or_none() -> None:
    of = asking(64, max_answer_tokens=5)
    unknown = {key: value for key, value in row("class").items() if key != "answers"}
    long = CONTEXT[:40]
    both = row("class") | {
        "answers": [{"text": long, "answer_start": 0}, {"text": "class", "answer_start": 2}]
    }
    rows = [row(None), unknown, row(long), both]
    examples = of.encode([{**one, "id": str(i)} for i, one in enumerate(rows)])
    labels = [example.labels.tolist() for example in examples]
    assert labels[0] == [NO_ANSWER, NO_ANSWER]
    assert labels[1] == labels[2] == [IGNORE_INDEX, IGNORE_INDEX]
    assert labels[3:] == [of.encode([row("class")])[0].labels.tolist()], "the first, not long"
    assert of.collate(examples, rngs=[]).num_targets == {"start": 2, "end": 2}


def right_logits(model: ModelWithHead, batch: Batch) -> tuple[torch.Tensor, ...]:
    """Returns logits of both ends that are highest at the labels."""
    assert batch.labels is not None and batch.extra is not None
    logits = torch.zeros(2, len(batch.extra), 1 + batch.extra.shape[1])
    logits[:, :, 1:].masked_fill_(~batch.extra, -torch.inf)
    return tuple(logits.scatter(2, batch.labels.T.clamp(min=0)[..., None], 9.0))


def test_predict_finds_the_answers_with_a_model_that_knows_them(monkeypatch) -> None:
    """The answer may be in any window, or in none."""
    monkeypatch.setattr(SpanQA, "_logits", staticmethod(right_logits))
    texts = ["A class", "statement", "ﬁrst café", "“tea”", "Ⅷ acts", None]
    rows = [row(text, id=str(i)) for i, text in enumerate(texts)]
    of = asking(no_answer=True, stride=7)  # every answer is complete in some window
    model = headless(small_model("encoder"))
    cpu = Device("cpu", "float32", compile=False, threads=1)
    predicted = predict(of, model, rows, of.encode(rows), cpu)
    assert [each.at(0.0) for each in predicted] == [text or "" for text in texts]
    margin = predicted[0].margin
    assert margin is not None and predicted[0].at(margin) == texts[0]
    assert predicted[0].at(margin + 0.1) == ""
