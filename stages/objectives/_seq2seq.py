"""Objectives and batches for encoder-decoders, whose decoder reads the targets of each document
shifted by one."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Int
from torch import Tensor

from stages.models._heads import ModelWithHead
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

Pair = tuple[np.ndarray, np.ndarray]  # (inputs, targets) of a document


class Corruption(Objective):
    """The encoder reads corrupted documents, each corrupted separately, and the decoder writes what
    restores them."""

    architectures = ("encoder_decoder",)
    term: ClassVar[str]

    @abstractmethod
    def corrupt(self, document: Row, *, rng: np.random.Generator) -> Pair:
        """Returns the inputs and the targets of a document, or of the part that a row has."""

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        rows = [
            [self.corrupt(document, rng=rng) for document in documents_of(row)]
            for row, rng in zip(examples, rngs, strict=True)
        ]
        return batch_of(rows, term=self.term, vocabulary=self.vocabulary)

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.labels is not None
        logits = model.backbone.unembed(model.backbone.decode(batch))
        return {self.term: (1.0, cross_entropy(logits, batch.labels))}


def documents_of(row: Row) -> list[Row]:
    """Returns each document of a row as a row."""
    cuts = np.flatnonzero(np.diff(row.document_ids)) + 1
    starts = row.starts_sentence
    return [
        Row(
            row.tokens[part],
            row.document_ids[part],
            starts_sentence=None if starts is None else starts[part],
        )
        for part in map(slice, [0, *cuts], [*cuts, len(row.tokens)])
    ]


def batch_of(rows: list[list[Pair]], *, term: str, vocabulary: Vocabulary) -> Batch:
    """Returns a batch of rows, each given as the pairs of its documents, in order.

    The decoder's inputs are the targets of each document shifted by one, after the start token of
    the vocabulary (<bos> in our own; padding in T5's, which here belongs to the document).
    """
    sources = [[source for source, _ in pairs] for pairs in rows]
    targets = [[target for _, target in pairs] for pairs in rows]
    start = [vocabulary.start_id]
    shifted = [[np.append(start, each[:-1])[: len(each)] for each in row] for row in targets]
    return Batch(
        input_ids=joined(sources, vocabulary.pad_id),
        document_ids=numbered(sources),
        decoder_input_ids=joined(shifted, vocabulary.pad_id),
        decoder_document_ids=numbered(targets),
        labels=joined(targets, IGNORE_INDEX),
        num_targets={term: sum(len(each) for row in targets for each in row)},
    )


def joined(rows: Sequence[Sequence[np.ndarray]], value: int) -> Int[Tensor, "B T"]:
    """Returns the documents of each row one after the other, padded with ``value``."""
    return pad([np.concatenate(documents) for documents in rows], value)


def numbered(rows: Sequence[Sequence[np.ndarray]]) -> Int[Tensor, "B T"]:
    """Returns the number of each token's document, from 1 within the row."""
    lengths = [[*map(len, documents)] for documents in rows]
    return pad([np.repeat(np.arange(1, len(each) + 1), each) for each in lengths], PADDING)


def written(targets: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Returns the targets, preceded by the token with which all generated text begins if the
    vocabulary has one (BART's <s>)."""
    return np.concatenate([np.array(vocabulary.before_target, dtype=np.int64), targets])
