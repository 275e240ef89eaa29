"""Counts the tokens of labelled texts with a tokenizer like that of the study, and chooses how many
tokens are read and written."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from stages.planning.task_texts import TOKENS_PER_WORD
from stages.proposal.corpus import VOCABULARIES, Corpus, trained
from stages.proposal.examples import Examples, count_words

MOST_ROWS = 4_000  # rows of train that are counted
LENGTHS = (32, 64, 128, 256)  # choices for max_tokens; longer texts cost minutes
TARGET_LENGTHS = (16, 32, 64, 128)  # choices for max_target_tokens
MOST_CUT = 0.05  # largest share of texts that are longer than max_tokens
MOST_TARGETS_CUT = 0.02  # smaller, since even a right answer that is cut loses score


@dataclass(frozen=True)
class Lengths:
    """The numbers of tokens of train rows, special tokens included. ``targets`` is empty if the
    task is not to write a text."""

    inputs: np.ndarray
    targets: np.ndarray

    def max_tokens(self) -> int:
        return _fitting(self.inputs, LENGTHS, MOST_CUT)

    def max_target_tokens(self) -> int:
        return _fitting(self.targets, TARGET_LENGTHS, MOST_TARGETS_CUT)


def share_cut(lengths: np.ndarray, most: int) -> float:
    """Returns the share of texts that have more than ``most`` tokens."""
    return float((lengths > most).mean())


def _fitting(lengths: np.ndarray, choices: Sequence[int], most_cut: float) -> int:
    """Returns the smallest choice that cuts at most this share of the texts, or else the largest
    choice."""
    return next((n for n in choices if share_cut(lengths, n) <= most_cut), choices[-1])


def lengths_of(examples: Examples, corpus: Corpus) -> Lengths:
    """Counts the tokens of some train rows with a tokenizer of the corpus's sample, or estimates
    them from the words if it has none."""
    train = examples.by_split["train"]
    rows = [example.row for example in train[:: ceil(len(train) / MOST_ROWS) or 1]]
    inputs = [" ".join(examples.kind.texts(row)) for row in rows]
    targets = [row["target"] for row in rows] if examples.targets else []
    algorithm, largest = corpus.algorithm, corpus.vocab_size
    sizes = [size for size in VOCABULARIES if size <= largest and corpus.sample]
    tokenizers = (trained(corpus.sample, algorithm, size) for size in sizes)
    tokenizer = next((one for one in tokenizers if one is not None), None)

    def count(texts: list[str]) -> np.ndarray:
        if tokenizer is not None:
            return np.array([len(ids) for ids in tokenizer.encode(texts)], dtype=np.int64)
        words = np.array(count_words(texts, examples.script), dtype=np.int64)
        return np.rint(TOKENS_PER_WORD * words).astype(np.int64)

    return Lengths(count(inputs) + 2, count(targets) + 1)
