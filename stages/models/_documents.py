"""The documents of packed rows, each in its own row, for models that do not support packing."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from stages.text.batch import PADDING

CALL_TOKENS = 128  # tokens of padding that take as long as one more call of a model


@dataclass(frozen=True)
class Documents:
    """The K tokens of N documents in packed rows, and the places that they get if each document has
    its own row, padded to the longest document."""

    tokens: Int[Tensor, " K"]  # indices into the flattened packed rows
    rows: Int[Tensor, " K"]
    places: Int[Tensor, " K"]
    number: int  # N
    length: int

    def apart(self, packed: Shaped[Tensor, "B T *D"]) -> Shaped[Tensor, "N L *D"]:
        """Returns the documents' part of ``packed``, one document per row, padded with zeros."""
        values = packed.new_zeros(self.number, self.length, *packed.shape[2:])
        values[self.rows, self.places] = packed.flatten(0, 1)[self.tokens]
        return values

    @property
    def mask(self) -> Int[Tensor, "N L"]:
        """1 for tokens, 0 for padding."""
        mask = self.rows.new_zeros(self.number, self.length)
        mask[self.rows, self.places] = 1
        return mask


def together(
    groups: list[Documents], states: list[Shaped[Tensor, "N L D"]], like: Int[Tensor, "B T"]
) -> Shaped[Tensor, "B T D"]:
    """Returns the states of all groups in packed rows (the inverse of ``apart``), with zeros at
    tokens that are in no group."""
    of_groups = zip(groups, states, strict=True)
    values = torch.cat([apart[group.rows, group.places] for group, apart in of_groups])
    packed = values.new_zeros(like.numel(), values.shape[1])
    packed[torch.cat([group.tokens for group in groups])] = values
    return packed.unflatten(0, like.shape)


def documents_of(document_ids: Int[Tensor, "B T"]) -> list[Documents]:
    """Returns all documents, in groups of similar length."""
    return [group for (group,) in _groups(document_ids)]


def pairs_of(
    document_ids: Int[Tensor, "B T"], decoder_document_ids: Int[Tensor, "B U"]
) -> list[tuple[Documents, Documents]]:
    """Returns the inputs and the targets of all documents that have targets, in groups of similar
    length. Documents that are too short to be corrupted have no targets."""
    return [(read, written) for read, written in _groups(document_ids, decoder_document_ids)]


def document_lengths(*document_ids: Int[Tensor, "B _"]) -> Int[np.ndarray, "B J S"]:
    """The lengths of all documents by row, document and side; the S sides are, for example, inputs
    and targets. Padding does not count."""
    sides = [ids.cpu().numpy() for ids in document_ids]
    width = max(ids.max(initial=0) for ids in sides) + 1
    of_row = width * np.arange(len(sides[0]))[:, None]
    counts = [np.bincount((ids + of_row).ravel(), minlength=of_row.size * width) for ids in sides]
    return np.stack(counts, axis=1).reshape(-1, width, len(sides))[:, PADDING + 1 :]


def groups_of_like_length(lengths: Int[np.ndarray, "N S"]) -> list[Int[np.ndarray, " n"]]:
    """Returns groups of documents, as indices. On each side a group will be padded to its longest
    document. The documents, sorted by length on the first side, are cut where the groups have the
    fewest tokens in all, counting padding and CALL_TOKENS per group."""
    order = np.argsort(lengths[:, 0], kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order, 0], append=-1)) + 1  # of runs of equal length
    starts = np.append(0, ends)
    longest = np.maximum.reduceat(lengths[order], starts[:-1]) if len(ends) else lengths
    least, firsts = [0], list[int]()  # least cost up to each start, and where its last group begins
    for last, end in enumerate(ends):
        padded_to = np.maximum.accumulate(longest[last::-1])[::-1].sum(axis=1)
        costs = least + (end - starts[: last + 1]) * padded_to
        firsts.append(int(costs.argmin()))
        least.append(int(costs.min()) + CALL_TOKENS)
    groups, stop = list[np.ndarray](), len(ends)
    while stop:
        first = firsts[stop - 1]
        groups.append(order[starts[first] : starts[stop]])
        stop = first
    return groups or [order]


def _groups(*document_ids: Int[Tensor, "B _"]) -> list[tuple[Documents, ...]]:
    """Returns the documents that have tokens on all sides, in groups of similar length; each group
    has one ``Documents`` per side. The ids are copied to the host once, and the places to the
    device once."""
    sides = [ids.cpu() for ids in document_ids]
    lengths = document_lengths(*sides)
    rows, columns = np.nonzero(lengths.all(axis=2))
    lengths = lengths[rows, columns]
    begins = [_begins(ids.numpy(), rows, columns + PADDING + 1) for ids in sides]
    parts = [
        (_places(lengths[group, side], begins[side][group]), lengths[group, side])
        for group in groups_of_like_length(lengths)
        for side in range(len(sides))
    ]
    places = torch.from_numpy(np.concatenate([each for each, _ in parts], axis=1))
    split = places.to(document_ids[0].device).split([each.shape[1] for each, _ in parts], dim=1)
    documents = [
        Documents(*three, number=len(of_group), length=int(of_group.max(initial=0)))
        for three, (_, of_group) in zip(split, parts, strict=True)
    ]
    return [*zip(*[iter(documents)] * len(sides), strict=True)]


def _begins(
    ids: Int[np.ndarray, "B T"], rows: Int[np.ndarray, " N"], numbers: Int[np.ndarray, " N"]
) -> Int[np.ndarray, " N"]:
    """Returns where each document begins in the flattened ``ids``. Document i has the id
    ``numbers[i]`` in row ``rows[i]``."""
    width = ids.max(initial=0) + 1
    known, first = np.unique(ids + width * np.arange(len(ids))[:, None], return_index=True)
    return first[np.searchsorted(known, numbers + width * rows)]


def _places(
    lengths: Int[np.ndarray, " N"], begins: Int[np.ndarray, " N"]
) -> Int[np.ndarray, "3 K"]:
    """The ``tokens``, ``rows`` and ``places`` of ``Documents``."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.stack([np.repeat(begins, lengths) + places, rows, places])
