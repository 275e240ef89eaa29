"""Which documents of a corpus are encoded: the first in a random order, up to ``max_tokens``."""

import numpy as np

from stages.seeding import stream

SEED = 0


def document_order(num_documents: int, split: str) -> np.ndarray:
    """int64 [num_documents]: a permutation, the same whatever the tokenizer."""
    return stream(SEED, "documents", split).permutation(num_documents)
