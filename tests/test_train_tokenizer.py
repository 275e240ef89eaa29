"""A tokenizer learns from a sample of all sentences, however many processes read them."""

from pathlib import Path

import numpy as np
import pytest

from stages import train_tokenizer
from stages.core import parallel
from stages.core.artifacts import write_jsonl
from stages.core.seeding import stream
from stages.text.stored import StoredDocuments
from tests.small import documents


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("max_sentences", [1, 500, 10**6])
def test_the_sample_is_drawn_from_all_sentences(
    processes: int, max_sentences: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "PART_BYTES", 3_000)
    monkeypatch.setattr(parallel, "HERE_BYTES", 1)
    rows = ({"id": str(i), "sentences": d} for i, d in enumerate(documents()))
    write_jsonl(tmp_path / "train.jsonl", rows)
    sentences = [sentence for document in documents() for sentence in document]
    drawn = stream(train_tokenizer.SEED, "tokenizer").permutation(len(sentences))
    stored = StoredDocuments(tmp_path / "train.jsonl")
    sample = train_tokenizer.sample(stored, max_sentences, processes=processes)
    assert sample == [sentences[i] for i in drawn[:max_sentences]]


@pytest.mark.parametrize("number", [0, 1, 2, 1_000_003])
def test_the_order_is_that_of_a_permutation(number: int) -> None:
    expected = stream(train_tokenizer.SEED, "tokenizer").permutation(number)
    assert np.array_equal(train_tokenizer.order(number), expected)
