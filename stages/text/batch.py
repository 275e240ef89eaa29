"""The batch, the one thing that passes between data, objectives, tasks and models.

Legend of the letters in shapes, here and everywhere in ``stages/``:

    B  rows of a batch          D  d_model
    T  input tokens of a row    V  vocab_size
    U  decoder tokens of a row  H  num_heads
    M  predicted positions of   C  classes of a task
       a row                    P  pairs of texts of a row
    R  rows of the task whose   L  tokens of the longest span
       choices are rows of a
       batch
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

IGNORE_INDEX = -100  # a label that counts in no loss and no metric
PADDING = 0  # the document id of padding


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of tokens, and what is to be predicted from them.

    Documents of a row are numbered from 1; a token attends to tokens of its own document only, so
    packing is invisible to a model and so is padding (document 0).
    """

    input_ids: Int[Tensor, "B T"]
    document_ids: Int[Tensor, "B T"]
    num_targets: dict[str, int]  # of each term of the loss: what its sum is divided by
    labels: Int[Tensor, "..."] | None = None
    values: Float[Tensor, " B"] | None = None  # the number to be predicted; NaN if not known
    choices: Int[Tensor, "R C"] | None = None  # which rows are the choices of each; -1 for none
    target_positions: Int[Tensor, "B M"] | None = None  # where labels are predicted, if not at all
    boundary_positions: Int[Tensor, "B M 2"] | None = None  # just outside the span of each target
    segment_ids: Int[Tensor, "B T"] | None = None  # which text of a pair a token is of
    visible: Bool[Tensor, "B T"] | None = None  # a prefix, which a decoder sees in both directions
    decoder_input_ids: Int[Tensor, "B U"] | None = None
    decoder_document_ids: Int[Tensor, "B U"] | None = None
    candidates: Bool[Tensor, "B T"] | None = None  # the tokens that an answer may be made of
    pair_positions: Int[Tensor, "B P"] | None = None  # the first token of each pair
    pair_labels: Int[Tensor, "B P"] | None = None  # 0 if its texts stand as they did, 1 if not
    example_ids: list[str] = field(default_factory=list)

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device; itself if it is there."""
        if self.input_ids.device == device:
            return self
        tensors = {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **{k: v.to(device, non_blocking=True) for k, v in tensors.items()})


def pad(rows: list[np.ndarray], value: int, *, length: int | None = None) -> Int[Tensor, "B T"]:
    """Rows of whole numbers as one tensor, filled up at the right with ``value``."""
    width = length if length is not None else max(map(len, rows))
    padded = np.full((len(rows), width), value, dtype=np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(padded)
