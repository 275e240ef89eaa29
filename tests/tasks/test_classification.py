"""Classification: how a model sees a text or a pair."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks.classification import Classification
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.models.test_hub import OWN_MARKS, tokenizer_of
from tests.small import ARCHITECTURES, small_model, small_tokenizer, without_output_layers
from tests.small_hub import checkpoint

LABELS = ["bad", "fine", "good"]


def task(max_tokens: int = 16, **settings) -> Classification:
    return Classification(LABELS, small_tokenizer(), max_tokens, **settings)


def adapted(architecture: str, of: Classification) -> ModelWithHead:
    backbone = without_output_layers(small_model(architecture))
    head = of.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1))
    return ModelWithHead(backbone, head).eval()


def test_a_text_stands_between_its_marks() -> None:
    (example,) = task().encode([{"id": "1", "text": "a class", "label": "good"}])
    assert (example.tokens[0], example.tokens[-1]) == (BOS_ID, EOS_ID)
    assert small_tokenizer().decode(example.tokens) == "a class"
    assert example.labels.tolist() == [2]


def test_of_a_pair_the_longer_text_is_cut() -> None:
    short, long = "a class", "a function " * 20
    for row in ({"text": long, "text_pair": short}, {"text": short, "text_pair": long}):
        (example,) = task().encode([{"id": "1", "label": "bad", **row}])
        assert len(example.tokens) == 16 and example.pair_start is not None
        assert example.tokens.tolist().count(EOS_ID) == 2 and example.tokens[-1] == EOS_ID
        first, second = np.split(example.tokens, [example.pair_start])
        for ids, text in ((first, row["text"]), (second, row["text_pair"])):
            shown = small_tokenizer().decode(ids)
            assert shown == text if text == short else text.startswith(shown) and shown
        lengths = map(len, small_tokenizer().encode([short, long]))
        assert example.num_cut == sum(lengths) + 3 - 16


def test_two_questions_about_one_long_text_differ() -> None:
    """A second text that fills the row leaves half of the row to the first."""
    rows = [
        {"id": str(i), "text": question, "text_pair": "a function of others " * 20}
        for i, question in enumerate(("what is a class", "where is a list"))
    ]
    one, other = task().encode(rows)
    assert one.tokens.tolist() != other.tokens.tolist()


WORDS = st.lists(
    st.sampled_from(["a", "class", "function", "returns", "Objects", "of", "undefined"]), max_size=9
)


@pytest.mark.slow
@pytest.mark.parametrize("family", OWN_MARKS)
@given(first=WORDS, second=st.none() | WORDS, max_tokens=st.integers(6, 30))
@settings(max_examples=60, deadline=None)
def test_texts_are_cut_as_by_transformers(family, first, second, max_tokens) -> None:
    tokenizer, theirs = tokenizer_of(checkpoint(family)), published_tokenizer(family)
    texts = {"text": " ".join(["x", *first])}
    if second is not None:
        texts["text_pair"] = " ".join(["y", *second])
    (example,) = Classification(LABELS, tokenizer, max_tokens).encode([{"id": "1", **texts}])
    expected = theirs(*texts.values(), truncation="longest_first", max_length=max_tokens)
    assert example.tokens.tolist() == expected["input_ids"]
    whole = theirs(*texts.values())["input_ids"]
    assert example.num_cut == len(whole) - len(expected["input_ids"])


@cache
def published_tokenizer(family: str) -> Any:
    return AutoTokenizer.from_pretrained(checkpoint(family))


@pytest.mark.parametrize("texts", [{"text": "a"}, {"text": "a", "text_pair": "a class"}])
def test_marks_that_leave_no_room_for_a_text_are_refused(texts) -> None:
    least = 3 if len(texts) == 1 else 5
    (example,) = task(least).encode([{"id": "1", **texts}])
    assert len(example.tokens) == least
    with pytest.raises(ValueError, match=f"^finetune.max_tokens: {least - 1} "):
        task(least - 1).encode([{"id": "1", **texts}])


def test_the_texts_of_a_pair_are_told_apart_where_a_model_has_segments() -> None:
    rows = [
        {"id": "1", "text": "a class", "text_pair": "a function", "label": "bad"},
        {"id": "2", "text": "a class of its own", "label": "bad"},
    ]
    batch = task().collate(task().encode(rows), rngs=[])
    assert batch.segment_ids is not None
    first = batch.input_ids[0].tolist().index(EOS_ID) + 1
    length = int(batch.document_ids[0].sum())
    expected = [0] * first + [1] * (length - first)
    assert batch.segment_ids[0, :length].tolist() == expected
    assert batch.segment_ids[1].tolist() == [0] * batch.segment_ids.shape[1]
    assert task().collate(task().encode(rows[1:]), rngs=[]).segment_ids is None
    for num_segments in (0, 1, 2):
        model = small_model("encoder", num_segments=num_segments).eval()
        alike = torch.equal(model(batch), model(replace(batch, segment_ids=None)))
        assert alike == (num_segments < 2)


def test_a_test_row_has_no_label_and_counts_in_no_loss() -> None:
    examples = task().encode([{"id": "1", "text": "x"}, {"id": "2", "text": "y", "label": "bad"}])
    batch = task().collate(examples, rngs=[])
    assert batch.labels is not None
    assert batch.labels.tolist() == [IGNORE_INDEX, 0]
    assert batch.num_targets == {"classification": 1}
    assert batch.example_ids == [example.key for example in examples]


def test_an_empty_text_and_a_long_one_are_predicted() -> None:
    for architecture in ARCHITECTURES:
        of = task()
        examples = of.encode([{"id": "1", "text": ""}, {"id": "2", "text": "a class " * 50}])
        batch = of.collate(examples, rngs=[])
        predicted = of.predict(adapted(architecture, of), batch, examples)
        assert len(predicted) == 2 and set(predicted) <= set(LABELS)


def test_prediction_does_not_depend_on_the_batch() -> None:
    """Padding next to a longer text changes no loss."""
    for architecture in ARCHITECTURES:
        of = task()
        model = adapted(architecture, of)
        rows = [
            {"id": "1", "text": "a class", "label": "bad"},
            {"id": "2", "text": "a function of other functions", "label": "good"},
        ]
        examples = of.encode(rows)
        together = of.loss(model, of.collate(examples, rngs=[]))["classification"][1]
        alone = [of.loss(model, of.collate([e], rngs=[]))["classification"][1] for e in examples]
        torch.testing.assert_close(together, alone[0] + alone[1])


def test_a_prefix_is_seen_in_both_directions() -> None:
    """Only in a decoder that was pretrained with prefixes does a later word change an earlier
    state."""
    for has_prefix in (False, True):
        of = task()
        of.has_prefix = has_prefix
        rows = [{"id": "1", "text": "a class of it"}, {"id": "2", "text": "a class"}]
        long, short = (of.collate([example], rngs=[]) for example in of.encode(rows))
        decoder = small_model("decoder").eval()
        alike = torch.allclose(decoder(long)[:, :2], decoder(short)[:, :2], atol=1e-5)
        assert alike != has_prefix


@pytest.mark.parametrize(
    ("architecture", "custom"),
    [("encoder", "first"), ("encoder_decoder", "first"), ("decoder", "last"), ("bilstm", "last")],
)
def test_values_of_pooling_auto_are_the_mean_and_the_custom(architecture, custom) -> None:
    backbone = small_model(architecture)
    assert Classification.values("pooling", "auto", backbone) == ["mean", custom]
    for setting, value in (("pooling", "first"), ("dropout", 0.1)):
        assert Classification.values(setting, value, backbone) == [value]
    assert task().head(backbone).pooling == "mean"
    assert task(pooling="last").head(backbone).pooling == "last"
