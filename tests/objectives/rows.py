"""Rows of tokens for tests of objectives, and their batches."""

from dataclasses import replace

import numpy as np

from stages.core.seeding import stream
from stages.objectives._objective import Objective
from stages.text.batch import Batch
from stages.text.packing import Packing, Row
from stages.text.tokenizer import BOS_ID, EOS_ID, NUM_SPECIAL
from tests.small import VOCAB_SIZE, small_corpus

TOKENS = np.arange(NUM_SPECIAL, VOCAB_SIZE - 100)  # no special tokens and no sentinels


def row_of(*lengths: int, seed: int = 0, tokens: np.ndarray = TOKENS) -> Row:
    """Returns a row of documents with these numbers of random tokens between <bos> and <eos>."""
    rng = stream(seed, "text")
    documents = [[BOS_ID, *rng.choice(tokens, length), EOS_ID] for length in lengths]
    ids = np.repeat(np.arange(1, len(lengths) + 1), [*map(len, documents)])
    return Row(np.concatenate(documents), ids)


def packed_rows(max_tokens: int, number: int, *, seed: int = 1) -> list[Row]:
    """Returns rows of real text, each with another row."""
    packing = Packing(small_corpus(), max_tokens, seed=seed)
    return [replace(packing.row(i), other=packing.row(i + number)) for i in range(number)]


def collated(objective: Objective, rows: list[Row], *, seed: int = 0) -> Batch:
    return objective.collate(rows, rngs=[stream(seed, "row", i) for i in range(len(rows))])
