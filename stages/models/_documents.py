"""The documents of packed rows, each in its own row, for models that do not support packing."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from stages.text.batch import PADDING


@dataclass(frozen=True)
class Documents:
    """The places of the K tokens of packed rows when each of N documents has its own row, padded to
    the longest."""

    taken: Bool[Tensor, "B T"]  # whether a token is one of the K
    rows: Int[Tensor, " K"]
    places: Int[Tensor, " K"]
    number: int  # N
    length: int

    def apart(self, packed: Shaped[Tensor, "B T *D"]) -> Shaped[Tensor, "N L *D"]:
        """Returns the values of the tokens with one document per row, padded with zeros."""
        values = packed.new_zeros(self.number, self.length, *packed.shape[2:])
        values[self.rows, self.places] = packed[self.taken]
        return values

    def together(self, apart: Shaped[Tensor, "N L *D"]) -> Shaped[Tensor, "B T *D"]:
        """Returns the values in packed rows (the inverse of ``apart``), with zeros at padding."""
        values = apart.new_zeros(*self.taken.shape, *apart.shape[2:])
        values[self.taken] = apart[self.rows, self.places]
        return values

    @property
    def mask(self) -> Int[Tensor, "N L"]:
        """1 for tokens, 0 for padding."""
        return self.apart(self.taken.long())


def documents_of(document_ids: Int[Tensor, "B T"]) -> Documents:
    """Returns the places of all documents."""
    return _documents(document_ids, _keys(document_ids, int(document_ids.max()) + 1))


def pairs_of(
    document_ids: Int[Tensor, "B T"], decoder_document_ids: Int[Tensor, "B U"]
) -> tuple[Documents, Documents]:
    """Returns the places of the inputs and of the targets of all documents that have targets.
    Documents that are too short to be corrupted have none."""
    width = int(torch.maximum(document_ids.max(), decoder_document_ids.max())) + 1
    keys = _keys(decoder_document_ids, width)
    return _documents(document_ids, keys), _documents(decoder_document_ids, keys)


def _keys(document_ids: Int[Tensor, "B T"], width: int) -> tuple[int, Int[Tensor, " N"]]:
    """Returns the stride between the numbers of two rows, and the sorted numbers of all
    documents."""
    numbered = _numbered(document_ids, width)
    return width, numbered[document_ids != PADDING].unique()


def _numbered(document_ids: Int[Tensor, "B T"], width: int) -> Int[Tensor, "B T"]:
    rows = torch.arange(len(document_ids), device=document_ids.device)
    return document_ids + width * rows.unsqueeze(1)


def _documents(document_ids: Int[Tensor, "B T"], keys: tuple[int, Int[Tensor, " N"]]) -> Documents:
    width, listed = keys
    numbered = _numbered(document_ids, width)
    columns = torch.arange(document_ids.shape[1], device=document_ids.device)
    new = torch.ones_like(document_ids, dtype=torch.bool)
    new[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    begins = torch.where(new, columns, 0).cummax(dim=1).values
    taken = torch.isin(numbered, listed)
    places = (columns - begins)[taken]
    return Documents(
        taken=taken,
        rows=torch.searchsorted(listed, numbered[taken]),
        places=places,
        number=len(listed),
        length=int(places.max()) + 1 if len(places) else 0,
    )
