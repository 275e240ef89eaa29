"""Classification: how a model sees a text or a pair."""

import math
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from stages.tasks._task import TASKS, Example
from stages.tasks.classification import Classification
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.models.test_hub import tokenizer_of
from tests.small import small_model, small_tokenizer, with_head
from tests.small_hub import FAMILIES, checkpoint

LABELS = ["bad", "fine", "good"]


def task(max_tokens: int = 16, **settings) -> Classification:
    entry = {"name": "classification", **settings}
    built = TASKS.build(entry, LABELS, small_tokenizer(), max_tokens, where="task")
    assert isinstance(built, Classification)
    return built


def test_encode_reads_the_head_and_the_tail_of_a_long_text_and_short_texts_as_ever() -> None:
    words = ["a", "class", "function", "returns", "Objects", "of"]
    long = " ".join([*(words[i * i % 6] for i in range(60)), "is undefined"])
    (ids,) = small_tokenizer().encode([long])
    ends, pair = task(17, long_texts="head_tail"), {"text": "a class", "text_pair": long}
    (example,) = ends.encode([{"id": "1", "text": long}])
    assert example.tokens.tolist() == [BOS_ID, *ids[:8], *ids[-7:], EOS_ID]
    assert example.num_cut == len(ids) - 15
    (cut,), (both,) = (of.encode([{"id": "2", **pair}]) for of in (task(17), ends))
    assert (both.pair_start, both.num_cut) == (cut.pair_start, cut.num_cut)
    room = 17 - (cut.pair_start or 0) - 1
    assert cut.tokens[cut.pair_start : -1].tolist() == ids[:room]
    expected = [*ids[: room - room // 2], *ids[len(ids) - room // 2 :]]
    assert both.tokens[both.pair_start : -1].tolist() == expected
    short = [{"id": "3", "text": "a class"}, {"id": "4", "text": "a", "text_pair": "a class"}]
    for one, other in zip(task(17).encode(short), ends.encode(short), strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()


WORDS = st.lists(
    st.sampled_from(["a", "class", "function", "returns", "Objects", "of", "undefined"]), max_size=9
)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"gpt2"}))  # which has no marks
@given(first=WORDS, second=st.none() | WORDS, max_tokens=st.integers(6, 30))
@settings(max_examples=60, deadline=None)
def test_encode_cuts_texts_as_transformers_does(family, first, second, max_tokens) -> None:
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


def test_collate_tells_the_texts_of_a_pair_apart_by_segments() -> None:
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


def test_predict_decides_between_two_labels_by_a_threshold() -> None:
    rows = [{"id": str(i), "text": text} for i, text in enumerate(("a class", "objects", "of"))]
    tokenizer = small_tokenizer()
    usual = Classification(["no", "yes"], tokenizer, 16)
    chosen = Classification(["no", "yes"], tokenizer, 16, threshold="validation")
    model = with_head(usual, small_model("encoder")).eval()
    batch = usual.collate(usual.encode(rows), rngs=[])
    expected = usual.predict(model, batch, [])
    for one, of_chosen in zip(expected, chosen.predict(model, batch, []), strict=True):
        assert of_chosen.at(0.0) == one.prediction and of_chosen.scores == one.scores
        assert (of_chosen.at(math.inf), of_chosen.at(-math.inf)) == ("no", "yes")
        assert of_chosen.scores is not None and of_chosen.margin is not None
        odds = of_chosen.scores["yes"] / of_chosen.scores["no"]
        assert of_chosen.margin == pytest.approx(math.log(odds), abs=1e-5)
