"""The input of a stack of blocks: embeddings of tokens, positions and segments."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from stages.models._dimensions import Dimensions
from stages.models._norm import make_norm


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


def sinusoids(num_positions: int, width: int, device: torch.device) -> Float[Tensor, "P D"]:
    """Returns sinusoidal positions: sines in the first half of the columns, cosines in the second
    (Vaswani et al. 2017, section 3.5). They are on the CPU, but in compiled code on ``device``,
    since copying them to a GPU would make every step wait."""
    made_on = device if torch.compiler.is_compiling() else "cpu"
    frequencies = 10_000 ** -(torch.arange(0, width, 2, device=made_on) / width)
    angles = torch.arange(num_positions, device=made_on)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]


class Embedding(nn.Module):
    """Embeddings of tokens and, depending on the dimensions, absolute positions and segments."""

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__()
        self.tokens = embedding_table(vocab_size, dims.d_model)
        self.positions = (
            embedding_table(dims.max_positions, dims.d_model)
            if dims.positions == "learned"
            else None
        )
        self.sinusoidal = dims.positions == "sinusoidal"
        self.segments = (
            embedding_table(dims.num_segments, dims.d_model) if dims.num_segments else None
        )
        self.norm = make_norm(dims) if dims.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(dims.dropout)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        document_ids: Int[Tensor, "B T"],
        segment_ids: Int[Tensor, "B T"] | None = None,
        *,
        earlier_document_ids: Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the sum of the embeddings, normalised if ``embedding_norm`` is set.

        Without ``segment_ids``, or if there is only one segment, every token has segment 0.
        ``earlier_document_ids`` are the document ids of the tokens that precede ``ids`` in the row.
        """
        x = self.tokens(ids)
        row = document_ids
        if earlier_document_ids is not None:
            row = torch.cat([earlier_document_ids, document_ids], dim=1)
        if self.positions is not None:
            x = x + self.positions(positions_in_document(row)[:, -ids.shape[1] :])
        elif self.sinusoidal:
            table = sinusoids(row.shape[1], x.shape[2], x.device).to(x)
            x = x + table[positions_in_document(row)[:, -ids.shape[1] :]]
        if self.segments is not None:
            has_pairs = segment_ids is not None and self.segments.num_embeddings > 1
            x = x + self.segments(segment_ids if has_pairs else torch.zeros_like(ids))
        return self.dropout(self.norm(x))
