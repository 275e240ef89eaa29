"""The batch, the one thing that passes between data, objectives, tasks and models.

Legend of the letters in shapes, here and everywhere in ``stages/``:

    B  rows of a batch          D  d_model
    T  input tokens of a row    V  vocab_size
    U  decoder tokens of a row  H  num_heads
    M  predicted positions of   C  classes of a task
       a row                    P  pairs of texts of a row
    R  rows of the task whose   L  tokens of the longest span
       choices are rows of a    N  starts of documents
       batch                    K  predicted tokens of a batch
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from stages.text.ignored import IGNORE_INDEX as IGNORE_INDEX

PADDING = 0  # the document id of padding
WIDTH = 64  # widths of rows are multiples of this within ``in_few_widths``
ABSENT = -1  # pads ``label_places``
_longest = ContextVar[int]("longest", default=0)  # 0: outside of ``in_few_widths``


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of tokens and the labels to predict from them.

    The documents of a row are numbered from 1. A token attends only to tokens of its own document,
    so a model sees neither packing nor padding (document 0).
    """

    input_ids: Int[Tensor, "B T"]
    document_ids: Int[Tensor, "B T"]
    num_targets: dict[str, int]  # divisor of each term of the loss
    labels: Shaped[Tensor, "..."] | None = None  # integers, or numbers with NaN for unknown ones
    label_weights: Float[Tensor, "..."] | None = None  # of the labels in the loss; None: all 1
    # Rows and columns of the labels that count; set if logits are computed for these alone.
    label_places: Int[Tensor, "*S 2 K"] | None = None
    target_positions: Int[Tensor, "B M"] | None = None  # where labels are; None: everywhere
    segment_ids: Int[Tensor, "B T"] | None = None  # which text of a pair a token belongs to
    visible: Bool[Tensor, "B T"] | None = None  # prefix that a decoder reads in both directions
    decoder_input_ids: Int[Tensor, "B U"] | None = None
    decoder_document_ids: Int[Tensor, "B U"] | None = None
    # What one task or objective needs besides: [R C], the batch rows of a task row's choices, -1
    # for none; [B T], whether an answer may contain a token; [B P 2], the first token of each pair,
    # and 0 for a true pair, 1 for an altered one; [B M 2], the places next to each target's span.
    extra: Shaped[Tensor, "..."] | None = None
    # Only on a GPU: where documents start (see the function), by the name of their ids, and the
    # document ids in memory of the host.
    document_starts: dict[str, Int[Tensor, " N"]] = field(default_factory=dict)
    host_document_ids: Int[Tensor, "B T"] | None = None

    @property
    def readable_document_ids(self) -> Int[Tensor, "B T"]:
        """The document ids in memory of the host, to read them without waiting for a GPU."""
        return self.document_ids if self.host_document_ids is None else self.host_document_ids

    def to(self, device: torch.device) -> "Batch":
        """Returns the batch on ``device``, or itself if it is already there. For a GPU the label
        places are padded to a power of two, and with flash kernels the batch gets the starts of its
        documents, computed before the move so that the host need not wait for the GPU."""
        if self.input_ids.device.type == device.type:
            return self
        tensors = {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}
        if (places := self.label_places) is not None:
            room = _power_of_two(places.shape[-1]) - places.shape[-1]
            tensors["label_places"] = F.pad(places, (0, room), value=ABSENT)
        ids = {k: v for k, v in tensors.items() if k.endswith("document_ids")}
        starts = {k: document_starts(v) for k, v in ids.items() if _has_flash_kernels()}

        def moved(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
            # The host would wait for copies of memory that is not pinned.
            pinned = {k: v.pin_memory() for k, v in tensors.items() if v is not None}
            return {k: v.to(device, non_blocking=True) for k, v in pinned.items()}

        on_host = {"document_starts": moved(starts), "host_document_ids": self.document_ids}
        return replace(self, **(moved(tensors) | on_host))

    def declare_changing_sizes(self) -> None:
        """Tells torch's compiler which sizes differ from batch to batch. Otherwise it would compile
        again, for half a minute, at the first batch with another number of documents."""
        for changing in (*self.document_starts.values(), self.label_places):
            if changing is not None:
                torch._dynamo.maybe_mark_dynamic(changing, changing.dim() - 1)


@cache
def _has_flash_kernels() -> bool:
    """Returns whether the GPU of this process has torch's flash kernels: Ampere or later."""
    is_built = torch.backends.cuda.is_flash_attention_available()
    return is_built and torch.cuda.get_device_capability() >= (8, 0)


def document_starts(document_ids: Int[Tensor, "B T"]) -> Int[Tensor, " N"] | None:
    """Returns, for kernels that read all rows as one sequence, the positions in it at which
    documents start (int32), then the number of all tokens, repeated until N is a power of two. The
    padding of a row counts as a document. Returns None if a document is not contiguous in its
    row."""
    ids = document_ids.numpy()
    begins = np.ones(ids.shape, dtype=bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    ordered = np.sort(ids, axis=1)
    num_documents = len(ids) + int((ordered[:, 1:] != ordered[:, :-1]).sum())
    starts = np.flatnonzero(begins)
    if len(starts) != num_documents:
        return None
    padded = np.full(_power_of_two(len(starts) + 1), ids.size, dtype=np.int32)
    padded[: len(starts)] = starts
    return torch.from_numpy(padded)


def _power_of_two(number: int) -> int:
    """Returns the smallest power of two that is at least ``number``."""
    return 1 << max(number - 1, 0).bit_length()


def label_places(labels: Int[Tensor, "B T"]) -> Int[Tensor, "2 K"]:
    """Returns the rows and columns of the labels other than IGNORE_INDEX."""
    return (labels != IGNORE_INDEX).nonzero().T


@contextmanager
def in_few_widths(longest: int) -> Iterator[None]:
    """Makes ``pad`` round widths up to multiples of WIDTH, but not above ``longest``, so that
    batches for a GPU have few shapes, each of which may compile code again; 0 changes nothing."""
    token = _longest.set(longest)
    try:
        yield
    finally:
        _longest.reset(token)


def pad(rows: list[np.ndarray], value: int, *, length: int | None = None) -> Int[Tensor, "B T"]:
    """Stacks rows of integers into one tensor, padded at the right with ``value`` to ``length`` or,
    without one, to the longest row (see ``in_few_widths``), but at least to one column."""
    width = length if length is not None else max(1, *map(len, rows))
    if length is None and (longest := _longest.get()):
        width = max(width, min(-(-width // WIDTH) * WIDTH, longest))
    padded = np.full((len(rows), width), value, dtype=np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(padded)
