"""The documents of packed rows, each in a row of its own: for a model that knows no packing."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from stages.text.batch import PADDING


@dataclass(frozen=True)
class Documents:
    """Where the K tokens of packed rows stand when each of N documents has a row of its own, of as
    many tokens as the longest has."""

    taken: Bool[Tensor, "B T"]  # which tokens these are
    rows: Int[Tensor, " K"]
    places: Int[Tensor, " K"]
    number: int  # N
    length: int

    def apart(self, packed: Shaped[Tensor, "B T *D"]) -> Shaped[Tensor, "N L *D"]:
        """What belongs to each token, document by document, and zeros behind."""
        found = packed.new_zeros(self.number, self.length, *packed.shape[2:])
        found[self.rows, self.places] = packed[self.taken]
        return found

    def together(self, apart: Shaped[Tensor, "N L *D"]) -> Shaped[Tensor, "B T *D"]:
        """The inverse; zeros at padding."""
        found = apart.new_zeros(*self.taken.shape, *apart.shape[2:])
        found[self.taken] = apart[self.rows, self.places]
        return found

    @property
    def mask(self) -> Int[Tensor, "N L"]:
        """1 at a token, 0 behind a document."""
        return self.apart(self.taken.long())


def documents_of(document_ids: Int[Tensor, "B T"]) -> Documents:
    """All of them."""
    return _documents(document_ids, _keys(document_ids, int(document_ids.max()) + 1))


def pairs_of(
    document_ids: Int[Tensor, "B T"], decoder_document_ids: Int[Tensor, "B U"]
) -> tuple[Documents, Documents]:
    """Those of which there is something to write: what is read, and what is written. The others,
    too short to be corrupted, are of no use to a decoder."""
    width = int(torch.maximum(document_ids.max(), decoder_document_ids.max())) + 1
    keys = _keys(decoder_document_ids, width)
    return _documents(document_ids, keys), _documents(decoder_document_ids, keys)


def _keys(document_ids: Int[Tensor, "B T"], width: int) -> tuple[int, Int[Tensor, " N"]]:
    """(the number by which rows are told apart, the documents by row and id, in order)."""
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
