"""Positions of packed documents, and embeddings that architectures initialise themselves."""

import torch
from jaxtyping import Int
from torch import Tensor, nn


def embedding_table(num_rows: int, width: int) -> nn.Embedding:
    """Returns an uninitialised embedding: architectures initialise all of their weights themselves,
    and on device meta torch's initialisation would load torch's compiler."""
    return nn.Embedding.from_pretrained(torch.empty(num_rows, width), freeze=False)


def positions_in_document(document_ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Returns the positions 0, 1, 2, ... within each document of a row."""
    index = torch.arange(document_ids.shape[1], device=document_ids.device).expand_as(document_ids)
    begins = torch.ones_like(document_ids, dtype=torch.bool)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values
