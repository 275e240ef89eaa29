"""Encoded corpora: flat arrays of ids with the offsets of documents and sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.core.seeding import stream
from stages.text.tokenizer import TaskTokenizer

SPLITS = ("train", "validation")
ORDER_SEED = 0


@dataclass(frozen=True)
class EncodedCorpus:
    """The documents of one split, concatenated. Each is ``<bos> sentence sentence ... <eos>``, or
    has the special tokens of a public checkpoint's tokenizer."""

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


def document_order(num_documents: int, split: str) -> np.ndarray:
    """Returns the order in which documents are encoded, int64 [num_documents].

    Encoding stops when there are enough tokens, so the order decides which documents are used. It
    does not depend on the tokenizer.
    """
    return stream(ORDER_SEED, "documents", split).permutation(num_documents)


def encode(documents: Iterable[Sequence[str]], tokenizer: TaskTokenizer) -> EncodedCorpus:
    """Encodes documents (lists of sentences) in order."""
    chunks: list[list[int]] = []
    document_starts, sentence_starts, length = [], [], 0
    for sentences in documents:
        document_starts.append(length)
        ids = tokenizer.encode_running(list(sentences))
        ids[0] = [*tokenizer.before, *ids[0]]
        ids[-1] = [*ids[-1], *tokenizer.after]
        for sentence in ids:
            sentence_starts.append(length)
            chunks.append(sentence)
            length += len(sentence)
    tokens = np.fromiter((i for chunk in chunks for i in chunk), dtype=np.int64, count=length)
    return EncodedCorpus(
        tokens=tokens.astype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32),
        document_starts=np.array(document_starts, dtype=np.int64),
        sentence_starts=np.array(sentence_starts, dtype=np.int64),
    )
