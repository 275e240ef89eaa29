"""Objectives and batches for encoder-decoders, whose decoder reads the targets of each document
shifted by one."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from torch import Tensor

from stages.objectives._objective import Objective, document_parts
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad
from stages.text.packing import Row

Pair = tuple[np.ndarray, np.ndarray]  # (inputs, targets) of a document


class PairObjective(Objective):
    """Each document becomes a pair: the encoder reads its inputs, the decoder writes its
    targets."""

    architectures = ("encoder_decoder",)

    @abstractmethod
    def pair(self, document: Row, *, rng: np.random.Generator) -> Pair:
        """Returns the inputs and the targets of a document, or of the part that a row has."""

    def pairs(self, examples: list[Row], rngs: list[np.random.Generator]) -> list[list[Pair]]:
        """Returns the pairs of each row's documents."""
        return [
            [self.pair(document, rng=rng) for document in documents_of(row)]
            for row, rng in zip(examples, rngs, strict=True)
        ]

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        """Returns a batch in which the decoder's inputs are the targets of each document shifted by
        one, after the start token of the vocabulary (<bos> in our own; padding in T5's, which here
        belongs to the document)."""
        rows = self.pairs(examples, rngs)
        sources = [[source for source, _ in pairs] for pairs in rows]
        targets = [[target for _, target in pairs] for pairs in rows]
        start = [self.vocabulary.start_id]
        shifted = [[np.append(start, each[:-1])[: len(each)] for each in row] for row in targets]
        return Batch(
            input_ids=joined(sources, self.vocabulary.pad_id),
            document_ids=numbered(sources),
            decoder_input_ids=joined(shifted, self.vocabulary.pad_id),
            decoder_document_ids=numbered(targets),
            **self.targets(joined(targets, IGNORE_INDEX)),
        )

    def written(self, targets: np.ndarray) -> np.ndarray:
        """Returns the targets, preceded by the token with which all generated text begins if the
        vocabulary has one (BART's <s>)."""
        return np.concatenate([np.array(self.vocabulary.before_target, dtype=np.int64), targets])


def documents_of(row: Row) -> list[Row]:
    """Returns each document of a row as a row."""
    starts = row.starts_sentence
    return [
        Row(
            row.tokens[part],
            row.document_ids[part],
            starts_sentence=None if starts is None else starts[part],
        )
        for part in document_parts(row)
    ]


def joined(rows: Sequence[Sequence[np.ndarray]], value: int) -> Int[Tensor, "B T"]:
    """Returns the documents of each row one after the other, padded with ``value``."""
    return pad([np.concatenate(documents) for documents in rows], value)


def numbered(rows: Sequence[Sequence[np.ndarray]]) -> Int[Tensor, "B T"]:
    """Returns the number of each token's document, from 1 within the row."""
    lengths = [[*map(len, documents)] for documents in rows]
    return pad([np.repeat(np.arange(1, len(each) + 1), each) for each in lengths], PADDING)
