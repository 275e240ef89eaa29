"""Corpora: documents in a file, and their tokens in flat arrays with the offsets of documents and
sentences."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from stages.core.seeding import stream
from stages.text.tokenizer import Tokenizer

SPLITS = ("train", "validation")
ORDER_SEED = 0
PART_DOCUMENTS = 256
DOCUMENTS_AT_ONCE = 16  # encoded in one call; their tokens are Python's integers for a moment


class StoredDocuments:
    """The documents of a ``.jsonl`` file, read by number. Only their positions in the file are in
    memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as lines:
            self._ends = np.cumsum(np.fromiter(map(len, lines), dtype=np.int64))

    def __len__(self) -> int:
        return len(self._ends)

    def sentences(self, numbers: Iterable[int]) -> Iterator[list[str]]:
        """Yields the sentences of each document with these numbers."""
        with self._path.open("rb") as file:
            for number in numbers:
                file.seek(self._ends[number - 1] if number else 0)
                yield json.loads(file.readline())["sentences"]

    def parts(self, numbers: Iterable[int]) -> Iterator[list[list[str]]]:
        """Yields the documents with these numbers in lists of at most ``PART_DOCUMENTS``."""
        documents = self.sentences(numbers)
        while part := list(islice(documents, PART_DOCUMENTS)):
            yield part


def document_order(num_documents: int, split: str) -> np.ndarray:
    """Returns the order in which documents are encoded, int64 [num_documents]. It decides which are
    used, since encoding stops when there are enough tokens."""
    return stream(ORDER_SEED, "documents", split).permutation(num_documents)


@dataclass(frozen=True)
class EncodedCorpus:
    """The documents of one split, concatenated, each as ``<bos> sentence sentence ... <eos>``."""

    tokens: np.ndarray  # uint16 or uint32 [num_tokens]
    document_starts: np.ndarray  # int64 [num_documents]
    sentence_starts: np.ndarray  # int64 [num_sentences]

    @property
    def document_lengths(self) -> np.ndarray:
        return np.diff(self.document_starts, append=len(self.tokens))

    @classmethod
    def load(cls, folder: Path) -> "EncodedCorpus":
        """Opens a corpus memory-mapped, since it may be larger than memory."""
        names = cls.__dataclass_fields__
        return cls(**{n: np.load(folder / f"{n}.npy", mmap_mode="r") for n in names})

    def save(self, folder: Path) -> None:
        """Writes the files that ``load`` opens into a new folder."""
        folder.mkdir(parents=True)
        for name, array in vars(self).items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)


def encode(
    documents: Iterable[Sequence[str]],
    tokenizer: Tokenizer,
    *,
    max_tokens: int | None = None,
    running: bool = True,
) -> EncodedCorpus:
    """Encodes documents (lists of sentences) in order; the one that reaches ``max_tokens`` is cut
    there. Without ``running`` each sentence is encoded alone, not as a part of running text."""
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32
    tokens, starts = [np.zeros(0, dtype=dtype)], [np.zeros(0, dtype=np.int64)]
    document_starts, length = list[int](), 0
    for document in _encoded(documents, tokenizer, tokenizer.blank if running else ""):
        lengths = np.fromiter(map(len, document), dtype=np.int64)
        document_starts.append(length)
        starts.append(length + np.cumsum(lengths) - lengths)
        tokens.append(np.fromiter(chain.from_iterable(document), dtype=dtype))
        length += int(lengths.sum())
        if max_tokens is not None and length >= max_tokens:
            length = max_tokens
            break
    sentence_starts = np.concatenate(starts)
    return EncodedCorpus(
        tokens=np.concatenate(tokens)[:length],
        document_starts=np.array(document_starts, dtype=np.int64),
        sentence_starts=sentence_starts[sentence_starts < length],
    )


def _encoded(
    documents: Iterable[Sequence[str]], tokenizer: Tokenizer, blank: str
) -> Iterator[list[list[int]]]:
    """Yields the ids of each sentence of each document. One call for several documents takes half
    the time."""
    documents = iter(documents)
    while some := list(islice(documents, DOCUMENTS_AT_ONCE)):
        texts = [blank * (i > 0) + each for document in some for i, each in enumerate(document)]
        encoded = iter(tokenizer.encode(texts))
        for document in some:
            ids = list(islice(encoded, len(document)))
            ids[0] = [*tokenizer.before, *ids[0]]
            ids[-1] = [*ids[-1], *tokenizer.after]
            yield ids
