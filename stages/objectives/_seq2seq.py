"""What a decoder is trained on: the targets of each document, shifted by one."""

import numpy as np

from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad
from stages.text.packing import Row
from stages.text.tokenizer import BOS_ID, PAD_ID

Pair = tuple[np.ndarray, np.ndarray]  # (inputs, targets) of a document


def documents_of(row: Row) -> list[np.ndarray]:
    """The places of each document of a row."""
    return [np.flatnonzero(row.document_ids == i) for i in range(1, row.document_ids[-1] + 1)]


def batch_of(rows: list[list[Pair]], *, term: str) -> Batch:
    """A batch of rows, each the pairs of its documents in order.

    The decoder reads <bos> and then each target as the one before; T5 begins with padding, which
    in our masks would attend to nothing, and BART with <eos>.
    """
    inputs, input_documents, decoder_inputs, targets, target_documents = [], [], [], [], []
    for pairs in rows:
        numbers = np.arange(1, len(pairs) + 1)
        inputs.append(np.concatenate([source for source, _ in pairs]))
        targets.append(np.concatenate([target for _, target in pairs]))
        input_documents.append(np.repeat(numbers, [len(source) for source, _ in pairs]))
        target_documents.append(np.repeat(numbers, [len(target) for _, target in pairs]))
        decoder_inputs.append(np.concatenate([_shifted(target) for _, target in pairs]))
    return Batch(
        input_ids=pad(inputs, PAD_ID),
        document_ids=pad(input_documents, PADDING),
        decoder_input_ids=pad(decoder_inputs, PAD_ID),
        decoder_document_ids=pad(target_documents, PADDING),
        labels=pad(targets, IGNORE_INDEX),
        num_targets={term: sum(map(len, targets))},
    )


def _shifted(targets: np.ndarray) -> np.ndarray:
    return np.concatenate([[BOS_ID], targets[:-1]])[: len(targets)]
