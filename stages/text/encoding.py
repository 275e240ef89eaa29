"""Encodes the documents of a corpus on all cores and writes them in order as they are ready."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from stages.core import parallel
from stages.text.corpus import EncodedCorpus, document_order
from stages.text.stored import StoredDocuments
from stages.text.tokenizer import TaskTokenizer


class Extent(NamedTuple):
    """The amount of text that was encoded."""

    tokens: int
    documents: int
    # UTF-8 bytes of text. The bytes of the last document, which ``max_tokens`` may cut, are
    # estimated from the bytes per token of the other documents.
    num_bytes: int


def encode_stored(
    documents: StoredDocuments,
    split: str,
    tokenizer: TaskTokenizer,
    folder: Path,
    *,
    max_tokens: int | None,
    running: bool,
    processes: int | None = None,
) -> Extent:
    """Encodes stored documents in ``document_order`` and writes them to ``folder``.

    The files hold the arrays that ``encode`` would return, up to ``max_tokens``: the document that
    reaches this number is cut there. Neither the whole text nor all tokens are in memory.
    Without ``running`` each sentence is encoded alone and not as a part of running text.

    Raises ValueError for a document without a sentence.
    """
    work = partial(_encode, documents, tokenizer, running)
    parts = documents.parts(document_order(len(documents), split))
    encoded = parallel.in_order(work, parts, documents.size, processes=processes)
    folder.mkdir(parents=True)
    with closing(encoded), ExitStack() as stack:
        writer = _Writer(stack, folder)
        for part in encoded:
            writer.add(part, max_tokens)
            if writer.num_tokens == max_tokens:
                break
        return writer.finished()


class _Part(NamedTuple):
    """Encoded documents, concatenated."""

    tokens: np.ndarray  # uint16 or uint32 [num_tokens]
    document_lengths: np.ndarray  # int64 [num_documents], in tokens
    sentence_lengths: np.ndarray  # int64 [num_sentences], in tokens
    document_bytes: np.ndarray  # int64 [num_documents], UTF-8 bytes of text


def _encode(
    documents: StoredDocuments, tokenizer: TaskTokenizer, running: bool, numbers: np.ndarray
) -> _Part:
    texts = list(documents.sentences(numbers))
    counts = np.array([len(sentences) for sentences in texts])
    if not counts.all():
        raise ValueError(f"{documents.path}: a document has no sentence")
    firsts = np.cumsum(counts) - counts
    flat = list(chain.from_iterable(texts))
    del texts
    num_bytes = np.fromiter(map(len, map(str.encode, flat)), dtype=np.int64, count=len(flat))
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32
    is_first, is_last = np.zeros((2, len(flat) + 1), dtype=bool)
    is_first[firsts] = is_last[firsts + counts - 1] = True
    tokens, lengths = [], []
    for begin, end in _spans(num_bytes):
        ids = _ids(flat[begin:end], is_first[begin:end], tokenizer, running)
        for i in np.flatnonzero(is_first[begin:end]):
            ids[i] = [*tokenizer.before, *ids[i]]
        for i in np.flatnonzero(is_last[begin:end]):
            ids[i] = [*ids[i], *tokenizer.after]
        lengths.append(np.fromiter(map(len, ids), dtype=np.int64, count=len(ids)))
        tokens.append(
            np.fromiter(chain.from_iterable(ids), dtype=dtype, count=int(lengths[-1].sum()))
        )
    sentence_lengths = np.concatenate(lengths)
    return _Part(
        np.concatenate(tokens),
        np.add.reduceat(sentence_lengths, firsts),
        sentence_lengths,
        np.add.reduceat(num_bytes, firsts),
    )


def _spans(num_bytes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields the bounds of spans of sentences. Each span is encoded in one call, since the ids of a
    whole document may not fit into memory."""
    step = parallel.PART_BYTES
    bounds = np.searchsorted(np.cumsum(num_bytes), np.arange(step, num_bytes.sum(), step))
    edges = np.unique([0, *bounds, len(num_bytes)]).tolist()
    yield from zip(edges, edges[1:], strict=False)


def _ids(
    sentences: list[str], is_first: np.ndarray, tokenizer: TaskTokenizer, running: bool
) -> list[list[int]]:
    """Returns the ids of each sentence. One call of the tokenizer for all documents takes half the
    time of one call per document."""
    if not running:
        return tokenizer.encode(sentences)
    firsts = [s for s, first in zip(sentences, is_first, strict=True) if first]
    others = [s for s, first in zip(sentences, is_first, strict=True) if not first]
    begins = iter(tokenizer.encode(firsts))
    follow = iter(tokenizer.encode_running([".", *others])[1:])
    return [next(begins if first else follow) for first in is_first]


class _Writer:
    """Writes the arrays of an ``EncodedCorpus`` while they grow. ``stack`` closes their files."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._files = {
            name: _GrowingArray(stack.enter_context((folder / f"{name}.npy").open("wb")))
            for name in EncodedCorpus.__dataclass_fields__
        }
        self.num_tokens = 0
        self._num_documents = 0
        self._num_bytes = 0  # UTF-8 bytes of all documents
        self._last = 0, 0  # start of the last document, and its UTF-8 bytes

    def add(self, part: _Part, max_tokens: int | None) -> None:
        """Appends as much of ``part`` as ``max_tokens`` allows."""
        room = len(part.tokens) if max_tokens is None else max_tokens - self.num_tokens
        documents = _starts(part.document_lengths)
        documents = documents[documents < room]
        sentences = _starts(part.sentence_lengths)
        self._files["document_starts"].append(documents + self.num_tokens)
        self._files["sentence_starts"].append(sentences[sentences < room] + self.num_tokens)
        self._files["tokens"].append(part.tokens[:room])
        num_bytes = part.document_bytes[: len(documents)]
        self._num_documents += len(documents)
        self._num_bytes += int(num_bytes.sum())
        self._last = self.num_tokens + int(documents[-1]), int(num_bytes[-1])
        self.num_tokens += min(len(part.tokens), room)

    def finished(self) -> Extent:
        for file in self._files.values():
            file.finish()
        whole, last_bytes = self._last
        num_bytes = last_bytes
        if whole:  # more than one document
            num_bytes = round((self._num_bytes - last_bytes) * self.num_tokens / whole)
        return Extent(self.num_tokens, self._num_documents, num_bytes)


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.cumsum(lengths) - lengths


class _GrowingArray:
    """A ``.npy`` file as ``np.save`` writes it, but written in parts. numpy's header has room for a
    longer first axis, so ``finish`` can overwrite it with the final length."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._dtype = np.dtype(np.int64)
        self._length = 0
        self._write_header()

    def append(self, values: np.ndarray) -> None:
        """Appends ``values``, whose type must not change between calls."""
        self._dtype = values.dtype
        self._length += len(values)
        self._file.write(np.ascontiguousarray(values).data)

    def finish(self) -> None:
        self._file.seek(0)
        self._write_header()

    def _write_header(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._length,),
        }
        np.lib.format.write_array_header_1_0(self._file, header)
