"""The one family of blocks of which encoder, decoder and encoder_decoder are made.

The three differ in who attends to whom and in nothing else. After Vaswani et al. 2017 and, for
the pre-norm order, rotary and relative positions, Xiong et al. 2020, Su et al. 2021 and Raffel et
al. 2020.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Norm = Literal["layernorm", "rmsnorm"]
NormPosition = Literal["pre", "post"]
Activation = Literal["gelu", "relu", "swiglu"]
Positions = Literal["rotary", "learned", "sinusoidal", "relative", "none"]

NORM_EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}  # torch's and T5's
RELATIVE_BUCKETS, RELATIVE_MAX_DISTANCE = 32, 128  # T5's
HEAD_WIDTH, ASPECT_RATIO = 64, 64  # d_model per head, d_model per layer


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """What a block is made of. The keyword parameters of every transformer architecture are its
    fields and the parameters of ``from_settings``.

    Raises ValueError for widths that do not go together.
    """

    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    norm: Norm = "layernorm"
    norm_position: NormPosition = "pre"
    activation: Activation = "gelu"
    bias: bool = True  # of linear layers and norms; T5 has none
    positions: Positions = "rotary"
    max_positions: int = 512  # a learned position embedding has this many
    num_segments: int = 0  # BERT tells the texts of a pair apart by an embedding for each
    embedding_norm: bool = False  # of the sum of embeddings (BERT, BART)
    output_transform: bool = False  # a layer, activation and norm before the vocabulary (BERT)
    tied: bool = True  # the output embedding is the input embedding
    output_bias: bool = True  # of the vocabulary's logits (BERT, BART); GPT and T5 have none
    dropout: float = 0.0
    locality: float = 11.0  # how much rotary self-attention prefers near tokens before training

    def __post_init__(self) -> None:
        for name in ("d_model", "num_layers", "num_heads", "d_ff", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.num_segments < 0:
            raise ValueError(f"num_segments must be at least 0, not {self.num_segments}")
        if self.d_model % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} must divide d_model {self.d_model}")
        if self.positions == "rotary" and self.d_model // self.num_heads % 2:
            raise ValueError(
                f"rotary positions need an even d_model / num_heads, not "
                f"{self.d_model} / {self.num_heads}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")
        if self.locality < 0:
            raise ValueError(f"locality must be at least 0, not {self.locality}")

    @classmethod
    def from_settings(
        cls,
        *,
        d_model: int,
        aspect_ratio: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        d_ff: int | None = None,
        **others: Any,
    ) -> "Dimensions":
        """d_model gives the sizes that are left out: d_model / ``aspect_ratio`` layers (Kaplan et
        al. 2020, section 3.1), d_model / 64 heads, and a d_ff of 4 d_model.

        At an aspect ratio of 64, a d_model of 128, 256, 512 or 768 is BERT-tiny (2 layers), -mini
        (4), -medium (8; Turc et al. 2019) or -base (12; Devlin et al. 2019, section 3). BERT-large
        is deeper, 24 layers of 1024. ``others`` are fields.

        Raises ValueError if d_model gives no whole number, and if the layers are said twice.
        """
        if num_layers is not None and aspect_ratio is not None:
            raise ValueError("num_layers and aspect_ratio say the same; leave one of them out")
        ratio = ASPECT_RATIO if aspect_ratio is None else aspect_ratio
        if ratio < 1:
            raise ValueError(f"aspect_ratio must be at least 1, not {ratio}")
        if num_layers is None:
            num_layers = _quotient("num_layers", d_model, ratio)
        if num_heads is None:
            num_heads = _quotient("num_heads", d_model, HEAD_WIDTH)
        if d_ff is None:
            d_ff = 4 * d_model
        return cls(d_model=d_model, num_layers=num_layers, num_heads=num_heads, d_ff=d_ff, **others)


def _quotient(name: str, d_model: int, ratio: int) -> int:
    if d_model % ratio:
        raise ValueError(
            f"{name} is d_model / {ratio} if it is left out, and {d_model} is no multiple of "
            f"{ratio}; give {name} a value"
        )
    return d_model // ratio


def attention_mask(
    queries: Int[Tensor, "B T"],
    keys: Int[Tensor, "B S"],
    *,
    causal: bool = False,
    visible: Bool[Tensor, "B S"] | None = None,
) -> Bool[Tensor, "B 1 T S"]:
    """Who attends to whom, from document ids: a token to those of its own document.

    If ``causal``, the queries are the last of the keys' tokens. ``visible`` keys are attended to by
    earlier tokens too, ``causal`` or not. Padding (document 0) attends to padding, so that no row
    of the softmax is empty; nothing else attends to it.
    """
    mask = queries[:, :, None] == keys[:, None, :]
    if causal:
        order = torch.ones_like(mask).tril(mask.shape[2] - mask.shape[1])
        mask = mask & (order if visible is None else order | visible[:, None, :])
    return mask[:, None]


def positions_in_document(document_ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """0, 1, 2, ... from the first token of each document of a row."""
    index = torch.arange(document_ids.shape[1], device=document_ids.device).expand_as(document_ids)
    begins = torch.ones_like(document_ids, dtype=torch.bool)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values


def sinusoids(num_positions: int, width: int) -> Float[Tensor, "P D"]:
    """sin in the first half of the columns and cos in the second (Vaswani et al. 2017, 3.5)."""
    frequencies = 10_000 ** -(torch.arange(0, width, 2) / width)
    angles = torch.arange(num_positions)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]


def attend(
    q: Float[Tensor, "B H T d"],
    k: Float[Tensor, "B H S d"],
    v: Float[Tensor, "B H S d"],
    mask: Bool[Tensor, "B 1 T S"] | Float[Tensor, "B H T S"],
) -> Float[Tensor, "B H T d"]:
    """What the queries find; on a CPU in float32, whatever the precision is.

    There torch's kernel for bfloat16 takes up to four times as long on texts of some dozen tokens,
    most of it in the backward pass, and is no faster on those of some hundred.
    """
    slow = q.dtype == torch.bfloat16 and q.device.type == "cpu"
    inputs = [each.float() for each in (q, k, v)] if slow else [q, k, v]
    with torch.autocast(q.device.type, enabled=False) if slow else nullcontext():
        return F.scaled_dot_product_attention(
            *inputs, attn_mask=mask if mask.dtype == torch.bool else mask.to(inputs[0])
        ).to(q)


def rotate(x: Float[Tensor, "B H T d"], angles: Float[Tensor, "T d"]) -> Float[Tensor, "B H T d"]:
    """Rotary position embedding (Su et al. 2021, eq. 34), halves instead of neighbours paired."""
    half = angles.shape[1] // 2
    sin, cos = angles[:, :half], angles[:, half:]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def relative_buckets(num_queries: int, num_keys: int, *, bidirectional: bool) -> Int[Tensor, "T S"]:
    """T5's bucket of each distance between a query (row) and a key (column); the queries are the
    last of the keys' tokens.

    Half of the buckets are exact, the others grow with the logarithm of the distance up to
    RELATIVE_MAX_DISTANCE, beyond which all share the last (Raffel et al. 2020, section 2.1). With
    ``bidirectional`` keys behind the query have buckets of their own, else they count as 0.
    """
    index = torch.arange(num_keys)
    distance = index[num_keys - num_queries :, None] - index[None, :]
    buckets = RELATIVE_BUCKETS // 2 if bidirectional else RELATIVE_BUCKETS
    behind = (distance < 0).long() * buckets if bidirectional else torch.zeros_like(distance)
    distance = distance.abs() if bidirectional else distance.clamp(min=0)
    exact = buckets // 2
    scale = (buckets - exact) / math.log(RELATIVE_MAX_DISTANCE / exact)
    far = exact + ((distance.clamp(min=1) / exact).log() * scale).long()
    return behind + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


def embedding_table(num_rows: int, width: int) -> nn.Embedding:
    """A table whose weights are not yet drawn: an architecture draws all of its weights itself, and
    torch's own drawing loads its compiler where a model is only described (device meta)."""
    return nn.Embedding.from_pretrained(torch.empty(num_rows, width), freeze=False)


class RelativeBias(nn.Module):
    """What is added to the logits of a head for each distance; one table for all blocks (T5)."""

    def __init__(self, dims: Dimensions, *, bidirectional: bool) -> None:
        super().__init__()
        self.table = embedding_table(RELATIVE_BUCKETS, dims.num_heads)
        self.bidirectional = bidirectional

    def forward(self, mask: Bool[Tensor, "B 1 T S"]) -> Float[Tensor, "B H T S"]:
        """The mask as numbers to add: the bias, and minus infinity where nothing is seen."""
        buckets = relative_buckets(*mask.shape[2:], bidirectional=self.bidirectional)
        bias = self.table(buckets.to(mask.device)).permute(2, 0, 1)
        return bias.masked_fill(~mask, -torch.inf)


class Embedding(nn.Module):
    """Tokens, with absolute positions and segments if the dimensions ask for them."""

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
        """Without ``segment_ids``, or with but one segment, every token is of segment 0.

        ``earlier_document_ids`` are those of the row's tokens before these.
        """
        x = self.tokens(ids)
        row = document_ids
        if earlier_document_ids is not None:
            row = torch.cat([earlier_document_ids, document_ids], dim=1)
        if self.positions is not None:
            x = x + self.positions(positions_in_document(row)[:, -ids.shape[1] :])
        elif self.sinusoidal:
            table = sinusoids(row.shape[1], x.shape[2]).to(x)
            x = x + table[positions_in_document(row)[:, -ids.shape[1] :]]
        if self.segments is not None:
            told = segment_ids is not None and self.segments.num_embeddings > 1
            x = x + self.segments(segment_ids if told else torch.zeros_like(ids))
        return self.dropout(self.norm(x))


class KeyValues:
    """The keys and values that an attention has computed for rows, in memory taken once."""

    def __init__(self, capacity: int) -> None:
        self.length, self._capacity = 0, capacity
        self._stored: tuple[Tensor, Tensor] | None = None  # [B H capacity d] each

    def append(self, keys: Float[Tensor, "B H T d"], values: Float[Tensor, "B H T d"]) -> None:
        if self._stored is None:
            rows, heads, _, width = keys.shape
            room = (rows, heads, self._capacity, width)
            self._stored = keys.new_empty(room), values.new_empty(room)
        end = self.length + keys.shape[2]
        for stored, new in zip(self._stored, (keys, values), strict=True):
            stored[:, :, self.length : end] = new
        self.length = end

    def all(self) -> tuple[Float[Tensor, "B H S d"], Float[Tensor, "B H S d"]]:
        assert self._stored is not None
        keys, values = self._stored
        return keys[:, :, : self.length], values[:, :, : self.length]

    def keep(self, rows: Int[Tensor, " N"]) -> None:
        """These rows alone, in this order; a row may be kept several times."""
        assert self._stored is not None
        keys, values = self._stored
        self._stored = keys.index_select(0, rows), values.index_select(0, rows)


class Cache:
    """What a causal stack has read of rows: the keys and values of all its blocks, so that a token
    is read once and not again for each that follows it.

    Several rows may share a row of the memory: beams of one input.
    """

    def __init__(self, num_layers: int, *, capacity: int, memory_length: int = 0) -> None:
        """Room for ``capacity`` tokens of a row."""
        self.own = [KeyValues(capacity) for _ in range(num_layers)]
        self.memory = [KeyValues(memory_length) for _ in range(num_layers if memory_length else 0)]
        self.document_ids: Int[Tensor, "B S"] | None = None  # of the tokens read

    def extend(self, document_ids: Int[Tensor, "B T"]) -> Int[Tensor, "B S"]:
        """The document ids of all tokens, these included from now on."""
        before = [] if self.document_ids is None else [self.document_ids]
        self.document_ids = torch.cat([*before, document_ids], dim=1)
        return self.document_ids

    def keep(self, rows: Int[Tensor, " N"], memory_rows: Int[Tensor, " M"] | None = None) -> None:
        """These rows alone, and of the memory ``memory_rows`` or all."""
        assert self.document_ids is not None
        self.document_ids = self.document_ids[rows]
        for key_values in self.own:
            key_values.keep(rows)
        if memory_rows is not None:
            for key_values in self.memory:
                key_values.keep(memory_rows)


class Attention(nn.Module):
    """Multi-head attention of queries over a memory: the queries' own row, or another's."""

    def __init__(self, dims: Dimensions, *, cross: bool = False) -> None:
        super().__init__()
        self.num_heads = dims.num_heads
        # Positions of two rows have no common origin: cross-attention is not rotated.
        self.rotary = dims.positions == "rotary" and not cross
        self.query = nn.Linear(dims.d_model, dims.d_model, bias=dims.bias)
        self.key_value = nn.Linear(dims.d_model, 2 * dims.d_model, bias=dims.bias)
        self.output = nn.Linear(dims.d_model, dims.d_model, bias=dims.bias)
        self.prefix: nn.Module | None = None  # keys and values that a method adds to all others

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Float[Tensor, "B _ D"] | None,
        mask: Bool[Tensor, "B 1 T S"] | Float[Tensor, "B H T S"],
        cached: KeyValues | None = None,
    ) -> Float[Tensor, "B T D"]:
        """With ``cached``, ``memory`` is what is read anew, None for what was read once and for
        all."""
        q = self._heads(self.query(x))
        if memory is None:
            assert cached is not None
            k, v = cached.all()
        else:
            k, v = (self._heads(half) for half in self.key_value(memory).chunk(2, dim=-1))
            if self.rotary:
                start = 0 if cached is None else cached.length
                angles = sinusoids(start + x.shape[1], q.shape[-1])[start:].to(q)
                q, k = rotate(q, angles), rotate(k, angles)
            if cached is not None:
                cached.append(k, v)
                k, v = cached.all()
        if self.prefix is not None:
            k, v, mask = self.prefix(k, v, mask)
        mixed = attend(q, k, v, mask)
        return self.output(mixed.transpose(1, 2).flatten(2))  # [B H T d] -> [B T D]

    @torch.no_grad()
    def initialise_locality(self, locality: float, *, generator: torch.Generator) -> None:
        """Draw the biases of queries and keys, alike, so that a token's logit for itself exceeds
        that for a far token by ``locality`` on average; in between it falls with the distance
        (the long-term decay of Su et al. 2021, section 3.4.3). 0 leaves them at 0, and attention
        that is not rotary or has no biases is left as it is.

        From biases of 0 a masked token knows nothing of its neighbours until both have grown; small
        models stayed at the frequencies of single tokens for hundreds of steps.
        """
        if not self.rotary or self.query.bias is None:
            return
        width = self.query.bias.numel() // self.num_heads
        self.query.bias.normal_(0, (locality / width**0.5) ** 0.5, generator=generator)
        self.key_value.bias[: self.query.bias.numel()] = self.query.bias

    def _heads(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two layers position by position; swiglu has a gate beside the first (Shazeer 2020)."""

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
    """Self-attention, attention to a memory if ``cross``, feed-forward, each with its residual."""

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
        mask: Bool[Tensor, "B 1 T S"] | Float[Tensor, "B H T S"],
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
            # Rows that share a row of the memory, one token each, are queries of one row.
            asked = y.view(len(memory_mask), -1, y.shape[2])
            answer = self.cross_attention(asked, memory, memory_mask, cached_memory)
            x = self._add(x, answer.view_as(y), self.cross_norm)
        y = self.feed_forward_norm(x) if self.pre else x
        return self._add(x, self.feed_forward(y), self.feed_forward_norm)

    def _add(
        self, x: Float[Tensor, "B T D"], change: Float[Tensor, "B T D"], norm: nn.Module
    ) -> Float[Tensor, "B T D"]:
        x = x + self.dropout(change)
        return x if self.pre else norm(x)


class Stack(nn.Module):
    """``num_layers`` blocks and the last norm: the body of an encoder or, if ``causal``, of a
    decoder."""

    def __init__(self, dims: Dimensions, *, causal: bool, cross: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.relative = (
            RelativeBias(dims, bidirectional=not causal) if dims.positions == "relative" else None
        )
        self.blocks = nn.ModuleList(Block(dims, cross=cross) for _ in range(dims.num_layers))
        # Pre-norm blocks leave their sum unnormalised; post-norm blocks do not.
        self.norm = make_norm(dims) if dims.norm_position == "pre" else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        document_ids: Int[Tensor, "B T"],
        *,
        visible: Bool[Tensor, "B T"] | None = None,
        memory: Float[Tensor, "M N D"] | None = None,
        memory_document_ids: Int[Tensor, "M N"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The states of tokens; with a cache, of tokens that stand behind those that it has read.
        Then ``memory`` and ``visible`` are given with the first tokens alone."""
        read = document_ids if cache is None else cache.extend(document_ids)
        mask = attention_mask(document_ids, read, causal=self.causal, visible=visible)
        if self.relative is not None:
            mask = self.relative(mask)
        memory_mask = None
        if memory_document_ids is not None:
            asking = document_ids.reshape(len(memory_document_ids), -1)
            memory_mask = attention_mask(asking, memory_document_ids)
        for i, block in enumerate(self.blocks):
            own = None if cache is None else cache.own[i]
            of_memory = cache.memory[i] if cache is not None and cache.memory else None
            x = block(x, mask, memory, memory_mask, own, of_memory)
        return self.norm(x)


def make_norm(dims: Dimensions) -> nn.Module:
    eps = NORM_EPS[dims.norm]
    if dims.norm == "layernorm":
        return nn.LayerNorm(dims.d_model, eps=eps, bias=dims.bias)
    return nn.RMSNorm(dims.d_model, eps=eps)
