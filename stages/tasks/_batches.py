"""Batches of examples, and losses over their labels; this file needs torch."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from stages.core.artifacts import Json
from stages.tasks._task import Example
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, pad


def batch_of(examples: list[Example], *, pad_id: int, is_visible: bool, targets: Json) -> Batch:
    """Returns one padded row per example, with the fields ``targets``. If ``is_visible``, a decoder
    reads the rows in both directions."""
    ones = [np.ones(len(example.tokens)) for example in examples]
    segments = [
        np.arange(len(e.tokens)) >= (len(e.tokens) if e.pair_start is None else e.pair_start)
        for e in examples
    ]
    input_ids = pad([example.tokens for example in examples], pad_id)
    has_pairs = any(example.pair_start is not None for example in examples)
    return Batch(
        input_ids=input_ids,
        document_ids=pad(ones, PADDING),
        segment_ids=pad(segments, 0) if has_pairs else None,
        visible=torch.ones_like(input_ids, dtype=torch.bool) if is_visible else None,
        **targets,
        example_ids=[example.key for example in examples],
    )


def label_weights(examples: Sequence[Example], *, width: int = 1) -> Float[Tensor, "B T"] | None:
    """Returns the weights of the labels, padded with 0 to ``width`` for each example, or None if
    the examples have no weights."""
    weights = [torch.from_numpy(e.weights).float() for e in examples if e.weights is not None]
    padded = [F.pad(each, (0, width - len(each))) for each in weights]
    return torch.stack(padded) if padded else None


def cross_entropy(logits: Float[Tensor, "*N C"], batch: Batch) -> Float[Tensor, ""]:
    """Returns the sum of the weighted losses of the batch's labels."""
    assert batch.labels is not None
    logits, labels = logits.flatten(0, -2), batch.labels.flatten()
    if batch.label_weights is None:
        return F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum")
    losses = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="none")
    return (losses * batch.label_weights.flatten()).sum()
