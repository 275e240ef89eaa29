"""The batch, the one thing that passes between data, objectives, tasks and models.

Legend of the letters in shapes, here and everywhere in ``stages/``:

    B  rows of a batch          D  d_model
    T  input tokens of a row    V  vocab_size
    U  decoder tokens of a row  H  num_heads
    M  predicted positions of   C  classes of a task
       a row                    P  pairs of texts of a row
    R  rows of the task whose   L  tokens of the longest span
       choices or windows are   W  windows of a text
       rows of a batch          N  starts of documents
                                E  of decoder documents
"""

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

IGNORE_INDEX = -100  # a label that counts in no loss and no metric
PADDING = 0  # the document id of padding


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of tokens and the labels to predict from them.

    The documents of a row are numbered from 1. A token attends only to tokens of its own document,
    so a model sees neither packing nor padding (document 0).
    """

    input_ids: Int[Tensor, "B T"]
    document_ids: Int[Tensor, "B T"]
    num_targets: dict[str, int]  # divisor of each term of the loss
    labels: Int[Tensor, "..."] | None = None
    label_weights: Float[Tensor, "..."] | None = None  # of the labels in the loss; None: all 1
    values: Float[Tensor, " B"] | None = None  # numbers to predict; NaN where unknown
    choices: Int[Tensor, "R C"] | None = None  # batch rows of a task row's choices; -1: none
    target_positions: Int[Tensor, "B M"] | None = None  # where labels are; None: everywhere
    boundary_positions: Int[Tensor, "B M 2"] | None = None  # just outside the span of each target
    segment_ids: Int[Tensor, "B T"] | None = None  # which text of a pair a token belongs to
    visible: Bool[Tensor, "B T"] | None = None  # prefix that a decoder reads in both directions
    decoder_input_ids: Int[Tensor, "B U"] | None = None
    decoder_document_ids: Int[Tensor, "B U"] | None = None
    candidates: Bool[Tensor, "B T"] | None = None  # tokens that an answer may contain
    pair_positions: Int[Tensor, "B P"] | None = None  # the first token of each pair
    pair_labels: Int[Tensor, "B P"] | None = None  # 0: a true pair, 1: an altered one
    example_ids: list[str] = field(default_factory=list)
    # Where documents start, as ``document_starts`` returns it; only of a batch on a GPU.
    document_starts: Int[Tensor, " N"] | None = None
    decoder_document_starts: Int[Tensor, " E"] | None = None

    def to(self, device: torch.device) -> "Batch":
        """Returns the batch on ``device``, or itself if it is already there. A process has one
        device of a kind. On a GPU with flash kernels the batch also has the starts of its
        documents, which are counted here because the host would wait for a GPU to count them."""
        if self.input_ids.device.type == device.type:
            return self
        tensors = {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}
        if device.type == "cuda":
            for side in ("document", "decoder_document") if _has_flash_kernels() else ():
                ids = tensors.get(f"{side}_ids")
                if ids is not None and (starts := document_starts(ids)) is not None:
                    tensors[f"{side}_starts"] = starts
            # The host waits for copies of memory that is not pinned.
            tensors = {k: v.pin_memory() for k, v in tensors.items()}
        return replace(self, **{k: v.to(device, non_blocking=True) for k, v in tensors.items()})


@cache
def _has_flash_kernels() -> bool:
    """Returns whether the GPU of this process has torch's flash kernels: Ampere or later."""
    is_built = torch.backends.cuda.is_flash_attention_available()
    return is_built and torch.cuda.get_device_capability() >= (8, 0)


def document_starts(document_ids: Int[Tensor, "B T"]) -> Int[Tensor, " N"] | None:
    """Returns where documents start in the concatenation of all rows, and then the number of all
    tokens, as int32. The padding of a row counts as a document. The number of all tokens is
    repeated until N is a power of two, so that batches have few different shapes.

    Returns None if a document is not contiguous in its row.
    """
    ids = document_ids.numpy()
    begins = np.ones(ids.shape, dtype=bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    ordered = np.sort(ids, axis=1)
    num_documents = len(ids) + int((ordered[:, 1:] != ordered[:, :-1]).sum())
    starts = np.flatnonzero(begins)
    if len(starts) != num_documents:
        return None
    padded = np.full(1 << len(starts).bit_length(), ids.size, dtype=np.int32)
    padded[: len(starts)] = starts
    return torch.from_numpy(padded)


def pad(rows: list[np.ndarray], value: int, *, length: int | None = None) -> Int[Tensor, "B T"]:
    """Stacks rows of integers into one tensor, padded at the right with ``value``."""
    width = length if length is not None else max(map(len, rows))
    padded = np.full((len(rows), width), value, dtype=np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(padded)
