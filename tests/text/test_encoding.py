"""Encoding in parts, by one process or several, gives the same bytes as encoding the whole."""

from pathlib import Path

import numpy as np
import pytest

from stages.core import parallel
from stages.core.artifacts import write_jsonl
from stages.text.corpus import document_order, encode
from stages.text.encoding import encode_stored
from stages.text.stored import StoredDocuments
from stages.text.tokenizer import Tokenizer
from tests.small import documents, saved, small_tokenizer

PART_BYTES = 3_000


class MarkedTokenizer(Tokenizer):
    """A tokenizer with its own special tokens, which encodes the first sentence of a text
    differently."""

    before, after = (7, 8), ()
    vocab_size = 2**17

    def encode_running(self, sentences: list[str]) -> list[list[int]]:
        first, *others = self.encode(sentences)
        return [first, *([2**16, *ids] for ids in others)]


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "HERE_BYTES", 1)
    monkeypatch.setattr(parallel, "PART_BYTES", PART_BYTES)


@pytest.fixture
def stored(tmp_path: Path) -> StoredDocuments:
    rows = ({"id": str(i), "sentences": d} for i, d in enumerate(documents()))
    write_jsonl(tmp_path / "train.jsonl", rows)
    return StoredDocuments(tmp_path / "train.jsonl")


def tokenizer(kind: type[Tokenizer], *, running: bool = True) -> Tokenizer:
    made = kind(small_tokenizer().files[0])
    if kind is MarkedTokenizer:
        made.vocab_size = MarkedTokenizer.vocab_size
    if not running:  # each sentence is encoded as if it were alone
        made.encode_running = lambda sentences: made.encode(sentences)
    return made


def whole(kind: type[Tokenizer], max_tokens: int | None, running: bool, folder: Path) -> list[int]:
    """Encodes all documents at once, writes them to ``folder`` and returns [tokens, documents,
    bytes]."""
    order = document_order(len(documents()), "train")
    texts = [documents()[i] for i in order]
    encoded = saved(encode(texts, tokenizer(kind, running=running)), folder, max_tokens)
    sizes = [len("".join(text).encode()) for text in texts[: len(encoded.document_starts)]]
    tokens_before_last = int(encoded.document_starts[-1])
    estimate = (
        sum(sizes[:-1]) / tokens_before_last * len(encoded.tokens)
        if tokens_before_last
        else sizes[-1]
    )
    return [len(encoded.tokens), len(sizes), round(estimate)]


@pytest.mark.parametrize(
    ("kind", "running", "processes"),
    [
        (Tokenizer, True, 1),
        (Tokenizer, False, 1),
        (MarkedTokenizer, True, 1),
        (MarkedTokenizer, False, 1),
        pytest.param(Tokenizer, True, 2, marks=pytest.mark.slow),
        pytest.param(Tokenizer, True, 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("max_tokens", [None, 1, 100, 20_000])
def test_encode_stored_in_parts_gives_what_encode_does(
    kind, running, processes, max_tokens, stored: StoredDocuments, tmp_path: Path
) -> None:
    extent = encode_stored(
        stored,
        "train",
        tokenizer(kind),
        tmp_path / "parts",
        max_tokens=max_tokens,
        running=running,
        processes=processes,
    )
    assert list(extent) == whole(kind, max_tokens, running, tmp_path / "whole")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_encode_stored_takes_as_many_tokens_as_a_part_ends_with(
    stored: StoredDocuments, tmp_path: Path
) -> None:
    """Nothing of the next part is added if a part ends exactly at the limit."""
    order = document_order(len(stored), "train")
    first = next(iter(stored.parts(order)))
    number = len(encode([documents()[i] for i in first], small_tokenizer()).tokens)
    for change in (-1, 0, 1):
        folder = tmp_path / f"parts{change}"
        encode_stored(
            stored, "train", small_tokenizer(), folder, max_tokens=number + change, running=True
        )
        whole(Tokenizer, number + change, True, tmp_path / f"whole{change}")
        assert contents(folder) == contents(tmp_path / f"whole{change}")


def test_stored_documents_are_found_by_their_numbers(stored: StoredDocuments) -> None:
    assert len(stored) == len(documents())
    numbers = [5, 0, len(stored) - 1, 5]
    assert list(stored.sentences(numbers)) == [documents()[i] for i in numbers]
    parts = list(stored.parts(np.arange(len(stored))))
    assert np.concatenate(parts).tolist() == list(range(len(stored)))
    assert all(stored.size(part[:-1]) < PART_BYTES <= stored.size(part) for part in parts[:-1])
    assert stored.size(np.arange(len(stored))) == stored.path.stat().st_size


def test_encode_stored_refuses_a_document_without_a_sentence(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"id": "0", "sentences": ["One."]}, {"sentences": []}])
    with pytest.raises(ValueError, match="a.jsonl: a document has no sentence"):
        encode_stored(
            StoredDocuments(tmp_path / "a.jsonl"),
            "train",
            small_tokenizer(),
            tmp_path / "encoded",
            max_tokens=None,
            running=True,
        )


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}
