"""Counts the tokens of labelled texts with a tokenizer like that of the study, and chooses how many
tokens are read and written."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from stages.planning.costs import TOKENS_PER_WORD
from stages.proposal.corpus import VOCABULARIES, Corpus, trained
from stages.proposal.examples import Examples, count_words

MAX_ROWS = 4_000  # rows of train that are counted
# Choices for max_tokens and max_target_tokens (longer texts cost minutes), and the largest share of
# texts that may be longer: smaller for targets, since even a right answer that is cut loses score.
INPUT_LENGTHS, MAX_INPUTS_CUT = (32, 64, 128, 256), 0.05
TARGET_LENGTHS, MAX_TARGETS_CUT = (16, 32, 64, 128), 0.02


class Lengths(NamedTuple):
    """The numbers of tokens of train rows, special tokens included. ``targets`` is empty if the
    task is not to write a text."""

    inputs: Int[np.ndarray, " N"]
    targets: Int[np.ndarray, " N"]

    def max_tokens(self) -> int:
        return _fitting(self.inputs, INPUT_LENGTHS, MAX_INPUTS_CUT)

    def max_target_tokens(self) -> int:
        return _fitting(self.targets, TARGET_LENGTHS, MAX_TARGETS_CUT)


def share_cut(lengths: Int[np.ndarray, " N"], most: int) -> float:
    """Returns the share of texts that have more than ``most`` tokens."""
    return float((lengths > most).mean())


def _fitting(lengths: Int[np.ndarray, " N"], choices: Sequence[int], max_cut: float) -> int:
    """Returns the smallest choice that cuts at most this share of the texts, or else the largest
    choice."""
    return next((n for n in choices if share_cut(lengths, n) <= max_cut), choices[-1])


def lengths_of(examples: Examples, corpus: Corpus) -> Lengths:
    """Counts the tokens of some train rows with a tokenizer of the corpus's sample, or estimates
    them from the words if it has none."""
    train = examples.by_split["train"]
    rows = [example.row for example in train[:: ceil(len(train) / MAX_ROWS) or 1]]
    inputs = [" ".join(examples.kind.texts(row)) for row in rows]
    targets = [row["target"] for row in rows] if examples.targets else []
    sizes = [size for size in VOCABULARIES if size <= corpus.vocab_size and corpus.sample]
    tokenizers = (trained(corpus.sample, corpus.algorithm, size) for size in sizes)
    tokenizer = next((one for one in tokenizers if one is not None), None)

    def count(texts: list[str]) -> Int[np.ndarray, " N"]:
        if tokenizer is not None:
            return np.array([len(ids) for ids in tokenizer.encode(texts)], dtype=np.int64)
        words = np.array(count_words(texts, examples.script), dtype=np.int64)
        return np.rint(TOKENS_PER_WORD * words).astype(np.int64)

    return Lengths(count(inputs) + 2, count(targets) + 1)
