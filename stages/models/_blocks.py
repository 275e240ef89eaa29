"""The blocks of encoder, decoder and encoder_decoder.

The three architectures differ only in their attention masks and in cross-attention. After Vaswani
et al. 2017; pre-norm after Xiong et al. 2020, rotary positions after Su et al. 2021, relative
positions after Raffel et al. 2020.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from stages.models._attention import (
    Attention,
    Cache,
    Documents,
    KeyValues,
    Mask,
    RelativeBias,
    additive,
    attention_mask,
)
from stages.models._dimensions import Dimensions
from stages.models._norm import make_norm
from stages.text.batch import PADDING


class FeedForward(nn.Module):
    """Two layers applied to each position; swiglu adds a gate to the first (Shazeer 2020)."""

    def __init__(self, dims: Dimensions) -> None:
        super().__init__()
        self.activation = dims.activation
        gated = self.activation == "swiglu"
        self.up = nn.Linear(dims.d_model, dims.d_ff * (2 if gated else 1), bias=dims.bias)
        self.down = nn.Linear(dims.d_ff, dims.d_model, bias=dims.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        x = self.up(x)
        if self.activation == "swiglu":
            value, gate = x.chunk(2, dim=-1)
            return self.down(F.silu(gate) * value)
        return self.down(F.gelu(x) if self.activation == "gelu" else F.relu(x))


class Block(nn.Module):
    """Self-attention, cross-attention if ``cross``, and feed-forward, each with a residual."""

    def __init__(self, dims: Dimensions, *, cross: bool = False) -> None:
        super().__init__()
        self.pre = dims.norm_position == "pre"
        self.attention = Attention(dims)
        self.attention_norm = make_norm(dims)
        self.cross_attention = Attention(dims, cross=True) if cross else None
        self.cross_norm = make_norm(dims) if cross else None
        self.feed_forward = FeedForward(dims)
        self.feed_forward_norm = make_norm(dims)
        self.dropout = nn.Dropout(dims.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Mask,
        memory: Float[Tensor, "M _ D"] | None = None,
        memory_mask: Bool[Tensor, "M 1 _ _"] | None = None,
        cached: KeyValues | None = None,
        cached_memory: KeyValues | None = None,
    ) -> Float[Tensor, "B T D"]:
        y = self.attention_norm(x) if self.pre else x
        x = self._add(x, self.attention(y, y, mask, cached), self.attention_norm)
        if self.cross_attention is not None and self.cross_norm is not None:
            assert memory_mask is not None
            y = self.cross_norm(x) if self.pre else x
            # Beams are rows of one token that share a memory row: they become queries of one row.
            queries = y.view(len(memory_mask), -1, y.shape[2])
            answer = self.cross_attention(queries, memory, memory_mask, cached_memory)
            x = self._add(x, answer.view_as(y), self.cross_norm)
        y = self.feed_forward_norm(x) if self.pre else x
        return self._add(x, self.feed_forward(y), self.feed_forward_norm)

    def _add(
        self, x: Float[Tensor, "B T D"], change: Float[Tensor, "B T D"], norm: nn.Module
    ) -> Float[Tensor, "B T D"]:
        x = x + self.dropout(change)
        return x if self.pre else norm(x)


class Stack(nn.Module):
    """``num_layers`` blocks and the final norm: the body of an encoder or, if ``causal``, of a
    decoder."""

    def __init__(self, dims: Dimensions, *, causal: bool, cross: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.relative = (
            RelativeBias(dims, bidirectional=not causal) if dims.positions == "relative" else None
        )
        self.blocks = nn.ModuleList(Block(dims, cross=cross) for _ in range(dims.num_layers))
        # The output of pre-norm blocks is not normalised; that of post-norm blocks is.
        self.norm = make_norm(dims) if dims.norm_position == "pre" else nn.Identity()

    @property
    def num_sublayers(self) -> int:
        """The number of sublayers that write into the residual stream."""
        return sum(2 if block.cross_attention is None else 3 for block in self.blocks)

    def takes_documents(self, x: Float[Tensor, "B T D"]) -> bool:
        """Returns whether the flash kernels can compute the attention of ``x``. They support
        neither relative positions nor learnt keys, and need 16-bit numbers and certain widths of
        heads."""
        attentions = [block.attention for block in self.blocks if isinstance(block, Block)]
        return (
            torch.is_autocast_enabled(x.device.type)
            and self.relative is None
            and all(each.prefix is None and each.has_flash_width for each in attentions)
        )

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        document_ids: Int[Tensor, "B T"],
        *,
        document_starts: Int[Tensor, " E"] | None = None,
        prefix_starts: Int[Tensor, " F"] | None = None,
        visible: Bool[Tensor, "B T"] | None = None,
        memory: Float[Tensor, "M N D"] | None = None,
        memory_document_ids: Int[Tensor, "M N"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the states of tokens. With a cache, ``x`` holds the tokens that follow the cached
        ones, and ``memory`` and ``visible`` are given with the first tokens only."""
        mask: Mask
        has_starts = visible is None or prefix_starts is not None
        if document_starts is not None and has_starts and self.takes_documents(x):
            assert cache is None
            prefixes = (visible, prefix_starts) if self.causal else (None, None)
            mask = Documents(document_starts, x.shape[1], self.causal, *prefixes)
        else:
            read = document_ids if cache is None else cache.extend(document_ids)
            mask = attention_mask(document_ids, read, causal=self.causal, visible=visible)
            if self.relative is not None:
                mask = self.relative(mask)
            kind = "cuda" if x.is_cuda else "cpu"  # "meta" has no autocast
            if torch.is_autocast_enabled(kind):
                mask = additive(mask, torch.get_autocast_dtype(kind))  # once for all blocks
        memory_mask = None
        if memory_document_ids is not None:
            asking = document_ids.reshape(len(memory_document_ids), -1)
            # Padding attends to the whole memory: if it attended to padding only, it might have no
            # key, and a softmax over no key gives NaN in the backward pass of some GPU kernels.
            is_padding = (asking == PADDING)[:, None, :, None]
            memory_mask = attention_mask(asking, memory_document_ids) | is_padding
        for i, block in enumerate(self.blocks):
            own = None if cache is None else cache.own[i]
            of_memory = cache.memory[i] if cache is not None and cache.memory else None
            x = block(x, mask, memory, memory_mask, own, of_memory)
        return self.norm(x)
