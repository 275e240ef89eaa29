"""Classification: how a model sees a text or a pair."""

from typing import Any

import pytest
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


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"gpt2"}))  # which has no marks
@pytest.mark.parametrize("lengths", [(3, None), (40, None), (3, 40), (40, 3), (30, 31), (2, 2)])
def test_encode_cuts_texts_as_transformers_does(family: str, lengths) -> None:
    tokenizer = tokenizer_of(checkpoint(family))
    theirs: Any = AutoTokenizer.from_pretrained(checkpoint(family))
    texts = [" ".join(["class"] * n) for n in lengths if n]
    row = dict(zip(("text", "text_pair"), texts, strict=False))
    (example,) = Classification(LABELS, tokenizer, 24).encode([{"id": "1", **row}])
    expected = theirs(*texts, truncation="longest_first", max_length=24)["input_ids"]
    assert example.tokens.tolist() == expected
    assert example.num_cut == len(theirs(*texts)["input_ids"]) - len(expected)


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
