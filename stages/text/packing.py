"""Packing: which tokens make up row i, a pure function of (lengths, max_tokens, seed, i).

Each epoch concatenates the documents in a new random order (the line), cuts the line into rows of
``max_tokens`` and visits the rows in a new random order. There is no padding; an epoch drops the
last tokens that do not fill a row (at most ``max_tokens - 1``).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stages.core.seeding import stream
from stages.text.corpus import EncodedCorpus


@dataclass(frozen=True)
class Row:
    """A row of tokens with the number of each token's document, counted from 1 within the row."""

    tokens: np.ndarray  # int64 [T]
    document_ids: np.ndarray  # int64 [T]
    other: "Row | None" = None  # any row of the corpus, for objectives that compare documents
    starts_sentence: np.ndarray | None = None  # bool [T]


class Packing:
    """The rows of a corpus. ``row(i)`` depends on i alone, so there is no state to save."""

    def __init__(self, corpus: EncodedCorpus, max_tokens: int, *, seed: int) -> None:
        """Raises ValueError if the corpus does not fill one row."""
        self._corpus, self.max_tokens, self._seed = corpus, max_tokens, seed
        self.rows_per_epoch = len(corpus.tokens) // max_tokens
        if self.rows_per_epoch == 0:
            raise ValueError(
                f"the corpus has {len(corpus.tokens)} tokens, fewer than max_tokens {max_tokens}"
            )
        self._epoch = lru_cache(maxsize=2)(self._draw_epoch)

    def row(self, index: int) -> Row:
        epoch, place = divmod(index, self.rows_per_epoch)
        order, line_starts, row_order = self._epoch(epoch)
        begin = int(row_order[place]) * self.max_tokens
        end = begin + self.max_tokens
        first = int(np.searchsorted(line_starts, begin, side="right")) - 1
        last = int(np.searchsorted(line_starts, end, side="left"))
        tokens, ids, starts = [], [], []
        for number, at in enumerate(range(first, last), start=1):
            start = int(self._corpus.document_starts[order[at]]) - int(line_starts[at])
            # the part of this document that lies in [begin, end) of the line
            low, high = max(begin, int(line_starts[at])), min(end, int(line_starts[at + 1]))
            part = slice(start + low, start + high)
            tokens.append(self._corpus.tokens[part].astype(np.int64))
            ids.append(np.full(high - low, number, dtype=np.int64))
            starts.append(self._starts_sentence(part))
        return Row(
            np.concatenate(tokens), np.concatenate(ids), starts_sentence=np.concatenate(starts)
        )

    def _starts_sentence(self, part: slice) -> np.ndarray:
        """Returns whether each token of a part of the corpus is the first of a sentence."""
        sentences = self._corpus.sentence_starts
        among = slice(*np.searchsorted(sentences, [part.start, part.stop]))
        starts = np.zeros(part.stop - part.start, dtype=bool)
        starts[sentences[among] - part.start] = True
        return starts

    def _draw_epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lengths = self._corpus.document_lengths
        order = stream(self._seed, "documents", epoch).permutation(len(lengths))
        line_starts = np.concatenate([[0], np.cumsum(lengths[order])])
        row_order = stream(self._seed, "rows", epoch).permutation(self.rows_per_epoch)
        return order, line_starts, row_order
