"""A tokenizer learns from a sample of all sentences."""

from pathlib import Path

import pytest

from stages import train_tokenizer
from stages.core.artifacts import write_jsonl
from stages.core.seeding import stream
from stages.text.corpus import StoredDocuments
from tests.small import documents


@pytest.mark.parametrize("max_sentences", [1, 500, 10**6])
def test_sample_is_drawn_from_all_sentences(max_sentences: int, tmp_path: Path) -> None:
    rows = ({"id": str(i), "sentences": d} for i, d in enumerate(documents()))
    write_jsonl(tmp_path / "train.jsonl", rows)
    sentences = [sentence for document in documents() for sentence in document]
    drawn = stream(train_tokenizer.SEED, "tokenizer").permutation(len(sentences))
    sample = train_tokenizer.sample(StoredDocuments(tmp_path / "train.jsonl"), max_sentences)
    assert sample == [sentences[i] for i in drawn[:max_sentences]]
