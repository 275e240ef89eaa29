"""Batches for encoder-decoders, whose decoder reads the targets of each document shifted by one."""

import numpy as np

from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

Pair = tuple[np.ndarray, np.ndarray]  # (inputs, targets) of a document


def documents_of(row: Row) -> list[np.ndarray]:
    """The positions of each document of a row."""
    return [np.flatnonzero(row.document_ids == i) for i in range(1, row.document_ids[-1] + 1)]


def batch_of(rows: list[list[Pair]], *, term: str, vocabulary: Vocabulary) -> Batch:
    """Returns a batch of rows, each given as the pairs of its documents, in order.

    The decoder's inputs are the targets of each document shifted by one, after the start token of
    the vocabulary (<bos> in our own; padding in T5's, which here belongs to the document).
    """
    inputs, input_documents, decoder_inputs, targets, target_documents = [], [], [], [], []
    for pairs in rows:
        numbers = np.arange(1, len(pairs) + 1)
        inputs.append(np.concatenate([source for source, _ in pairs]))
        targets.append(np.concatenate([target for _, target in pairs]))
        input_documents.append(np.repeat(numbers, [len(source) for source, _ in pairs]))
        target_documents.append(np.repeat(numbers, [len(target) for _, target in pairs]))
        decoder_inputs.append(
            np.concatenate([_shifted(target, vocabulary.start_id) for _, target in pairs])
        )
    return Batch(
        input_ids=pad(inputs, vocabulary.pad_id),
        document_ids=pad(input_documents, PADDING),
        decoder_input_ids=pad(decoder_inputs, vocabulary.pad_id),
        decoder_document_ids=pad(target_documents, PADDING),
        labels=pad(targets, IGNORE_INDEX),
        num_targets={term: sum(map(len, targets))},
    )


def _shifted(targets: np.ndarray, start_id: int) -> np.ndarray:
    return np.concatenate([[start_id], targets[:-1]])[: len(targets)]


def written(targets: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Returns the targets, preceded by the token with which all generated text begins if the
    vocabulary has one (BART's <s>)."""
    return np.concatenate([np.array(vocabulary.before_target, dtype=np.int64), targets])
