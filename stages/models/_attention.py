"""Attention: masks, positions, and the cache of keys and values."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from stages.models._dimensions import Dimensions
from stages.models._embedding import embedding_table, sinusoids

RELATIVE_BUCKETS, RELATIVE_MAX_DISTANCE = 32, 128  # T5's
# Rows of up to this many tokens use explicit matrix products (``attend``); in longer rows the
# attention logits would take most of the memory.
WRITTEN_OUT = 512


@dataclass(frozen=True)
class Documents:
    """The documents of a batch, used instead of a mask on a GPU. A token attends to its document
    or, if ``causal``, only to itself and earlier tokens of that document. No T x S mask is stored,
    and pairs of tokens that a mask would forbid take no time."""

    starts: Int[Tensor, " N"]  # ``document_starts`` of the batch
    longest: int  # an upper bound of the length of a document
    causal: bool
    # None without prefixes. ``visible`` marks the tokens of prefixes, which a causal model reads in
    # both directions; ``prefix_starts`` counts each prefix as a document of its own.
    visible: Bool[Tensor, "B T"] | None = None
    prefix_starts: Int[Tensor, " F"] | None = None


Mask = Bool[Tensor, "B 1 T S"] | Float[Tensor, "B _ T S"] | Documents


def attention_mask(
    queries: Int[Tensor, "B T"],
    keys: Int[Tensor, "B S"],
    *,
    causal: bool = False,
    visible: Bool[Tensor, "B S"] | None = None,
) -> Bool[Tensor, "B 1 T S"]:
    """The attention mask computed from document ids: a token attends to its own document.

    If ``causal``, a token attends only to itself, to earlier tokens and to ``visible`` ones; the
    queries belong to the last T of the S tokens. Padding (document 0) attends to padding, so that
    no row of the softmax is empty; no other token attends to padding.
    """
    mask = queries[:, :, None] == keys[:, None, :]
    if causal:
        order = torch.ones_like(mask).tril(mask.shape[2] - mask.shape[1])
        mask = mask & (order if visible is None else order | visible[:, None, :])
    return mask[:, None]


def attend(
    q: Float[Tensor, "B H T d"],
    k: Float[Tensor, "B H S d"],
    v: Float[Tensor, "B H S d"],
    mask: Mask,
) -> Float[Tensor, "B H T d"]:
    """Scaled dot-product attention. The mask must leave each query at least one key.

    Short rows in bfloat16 on a CPU use explicit matrix products: torch's kernel takes 1.7 to 6
    times as long, forward and backward (benchmarks/attention.md). Long rows use torch's kernel, to
    save memory.
    """
    if isinstance(mask, Documents):
        return attend_within_documents(q, k, v, mask)
    mask = mask if mask.dtype == torch.bool else mask.to(q)
    is_short = q.shape[2] * k.shape[2] <= WRITTEN_OUT**2
    if not (is_short and q.dtype == torch.bfloat16 and q.device.type == "cpu"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return (scores + additive(mask, q.dtype)).softmax(dim=-1) @ v


def attend_within_documents(
    q: Float[Tensor, "B H T d"],
    k: Float[Tensor, "B H T d"],
    v: Float[Tensor, "B H T d"],
    documents: Documents,
) -> Float[Tensor, "B H T d"]:
    """Scaled dot-product attention by the flash kernels, which read the rows as one sequence of
    documents of different lengths.

    With prefixes, attention is computed twice, within prefixes in both directions and causally
    within documents; tokens of prefixes get the first result, all others the second. A mask would
    take more memory and, in long rows, more time."""
    from torch.nn.attention.varlen import varlen_attn  # loads torch's compiler: 1 s

    queries, keys, values = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # [B*T H d]
    longest = documents.longest

    def within(starts: Int[Tensor, " _"], *, causal: bool) -> Float[Tensor, "_ H d"]:
        window = (-1, 0 if causal else -1)
        mixed = varlen_attn(
            queries, keys, values, starts, starts, longest, longest, window_size=window
        )
        assert isinstance(mixed, Tensor)
        return mixed

    mixed = within(documents.starts, causal=documents.causal)
    if documents.visible is not None and documents.prefix_starts is not None:
        of_prefixes = within(documents.prefix_starts, causal=False)
        mixed = torch.where(documents.visible.flatten()[:, None, None], of_prefixes, mixed)
    return mixed.unflatten(0, (len(q), -1)).transpose(1, 2)


def additive(
    mask: Bool[Tensor, "B 1 T S"] | Float[Tensor, "B _ T S"], dtype: torch.dtype
) -> Float[Tensor, "B _ T S"]:
    """Returns the mask as numbers to add to logits: minus infinity for a masked key."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return mask.to(dtype).log_()  # log 1 = 0, log 0 = -inf; masked_fill takes twice as long


def rotate(
    x: Float[Tensor, "B T H d"], sin: Float[Tensor, "T 1 d"], cos: Float[Tensor, "T 1 d"]
) -> Float[Tensor, "B T H d"]:
    """Rotary position embedding (Su et al. 2021, eq. 34), but column i is paired with i + d / 2,
    not with its neighbour; ``sin`` and ``cos`` come from ``rotation``."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def rotation(
    num_positions: int, width: int, device: torch.device, dtype: torch.dtype
) -> tuple[Float[Tensor, "T 1 d"], Float[Tensor, "T 1 d"]]:
    """Returns the sines and cosines of each position, as ``rotate`` needs them."""
    sin, cos = sinusoids(num_positions, width, device)[:, None].chunk(2, dim=-1)
    turns = torch.cat([-sin, sin], dim=-1), torch.cat([cos, cos], dim=-1)
    return turns[0].to(device, dtype), turns[1].to(device, dtype)


# ``rotation`` with a cache: each table is computed and copied to a GPU once. Compiled code calls
# ``rotation`` itself: torch keeps constants of compiled code anyway, and warns about a cache.
known_rotation = lru_cache(rotation)


def relative_buckets(
    num_queries: int, num_keys: int, *, bidirectional: bool, device: torch.device | None = None
) -> Int[Tensor, "T S"]:
    """T5's bucket for each distance between a query (row) and a key (column); the queries belong to
    the last T of the S tokens.

    Half of the buckets hold one distance each; the ranges of the others grow logarithmically up to
    RELATIVE_MAX_DISTANCE, and larger distances share the last bucket (Raffel et al. 2020, section
    2.1). Keys after the query have buckets of their own if ``bidirectional``, otherwise bucket 0.
    """
    index = torch.arange(num_keys, device=device)
    distance = index[num_keys - num_queries :, None] - index[None, :]
    buckets = RELATIVE_BUCKETS // 2 if bidirectional else RELATIVE_BUCKETS
    behind = (distance < 0).long() * buckets if bidirectional else torch.zeros_like(distance)
    distance = distance.abs() if bidirectional else distance.clamp(min=0)
    exact = buckets // 2
    scale = (buckets - exact) / math.log(RELATIVE_MAX_DISTANCE / exact)
    far = exact + ((distance.clamp(min=1) / exact).log() * scale).long()
    return behind + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


@lru_cache
def _square_buckets(
    num_tokens: int, bidirectional: bool, device: torch.device
) -> Int[Tensor, "S S"]:
    """Returns the buckets of ``num_tokens`` queries and keys, computed and copied to a GPU once."""
    return relative_buckets(num_tokens, num_tokens, bidirectional=bidirectional).to(device)


def known_buckets(
    num_queries: int, num_keys: int, *, bidirectional: bool, device: torch.device
) -> Int[Tensor, "T S"]:
    """Returns ``relative_buckets`` on a device, cut from a cached table for the next power of two,
    so that all lengths of rows share a few tables."""
    square = _square_buckets(1 << (num_keys - 1).bit_length(), bidirectional, device)
    return square[num_keys - num_queries : num_keys, :num_keys]


class RelativeBias(nn.Module):
    """Learnt biases of attention logits by head and distance, shared by all blocks (T5)."""

    def __init__(self, dims: Dimensions, *, bidirectional: bool) -> None:
        super().__init__()
        self.table = embedding_table(RELATIVE_BUCKETS, dims.num_heads)
        self.bidirectional = bidirectional

    def forward(self, mask: Bool[Tensor, "B 1 T S"]) -> Float[Tensor, "B H T S"]:
        """Returns numbers to add to logits: the bias, or minus infinity for a masked key."""
        sizes, device = mask.shape[2:], mask.device
        if torch.compiler.is_compiling():  # see ``known_rotation``
            buckets = relative_buckets(*sizes, bidirectional=self.bidirectional, device=device)
        else:
            buckets = known_buckets(*sizes, bidirectional=self.bidirectional, device=device)
        bias = self.table(buckets).permute(2, 0, 1)
        return bias.masked_fill(~mask, -torch.inf)


class KeyValues:
    """The keys and values that an attention layer has computed so far, in memory allocated once."""

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
        """Keeps only ``rows``, in this order; a row may be kept several times."""
        assert self._stored is not None
        keys, values = self._stored
        self._stored = keys.index_select(0, rows), values.index_select(0, rows)


class Cache:
    """The keys and values of all blocks of a causal stack for the tokens it has read, so that each
    token is read only once.

    Several rows, the beams of one input, may share a row of the memory.
    """

    def __init__(self, num_layers: int, *, capacity: int, memory_length: int = 0) -> None:
        """Makes an empty cache for ``capacity`` tokens per row."""
        self.own = [KeyValues(capacity) for _ in range(num_layers)]
        self.memory = [KeyValues(memory_length) for _ in range(num_layers if memory_length else 0)]
        self.document_ids: Int[Tensor, "B S"] | None = None  # of the tokens read

    def extend(self, document_ids: Int[Tensor, "B T"]) -> Int[Tensor, "B S"]:
        """Adds tokens; returns the document ids of all tokens, the new ones included."""
        before = [] if self.document_ids is None else [self.document_ids]
        self.document_ids = torch.cat([*before, document_ids], dim=1)
        return self.document_ids

    def keep(self, rows: Int[Tensor, " N"], memory_rows: Int[Tensor, " M"] | None = None) -> None:
        """Keeps only ``rows`` and, if given, only ``memory_rows`` of the memory."""
        assert self.document_ids is not None
        self.document_ids = self.document_ids[rows]
        for key_values in self.own:
            key_values.keep(rows)
        if memory_rows is not None:
            for key_values in self.memory:
                key_values.keep(memory_rows)


class Attention(nn.Module):
    """Multi-head attention to a memory: the queries' own row or, if ``cross``, another row."""

    def __init__(self, dims: Dimensions, *, cross: bool = False) -> None:
        super().__init__()
        self.num_heads, self.head_width = dims.num_heads, dims.d_model // dims.num_heads
        # Positions of two rows have no common origin: cross-attention has no rotary positions.
        self.rotary = dims.positions == "rotary" and not cross
        self.query = nn.Linear(dims.d_model, dims.d_model, bias=dims.bias)
        self.key_value = nn.Linear(dims.d_model, 2 * dims.d_model, bias=dims.bias)
        self.output = nn.Linear(dims.d_model, dims.d_model, bias=dims.bias)
        self.prefix: nn.Module | None = None  # learnt keys and values (prefix tuning)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Float[Tensor, "B _ D"] | None,
        mask: Mask,
        cached: KeyValues | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the attention of ``x`` to ``memory``. With ``cached``, ``memory`` holds the
        tokens that are not yet in the cache, or is None if all are."""
        q = self._heads(self.query(x))
        if memory is None:
            assert cached is not None
            k, v = cached.all()
        else:
            k, v = (self._heads(half) for half in self.key_value(memory).chunk(2, dim=-1))
            if self.rotary:
                start = 0 if cached is None else cached.length
                turns_of = rotation if torch.compiler.is_compiling() else known_rotation
                turns = turns_of(start + x.shape[1], q.shape[-1], q.device, q.dtype)
                sin, cos = (turn[start:] for turn in turns)
                q, k = rotate(q, sin, cos), rotate(k, sin, cos)
            k, v = k.transpose(1, 2), v.transpose(1, 2)
            if cached is not None:
                cached.append(k, v)
                k, v = cached.all()
        q = q.transpose(1, 2)
        if self.prefix is not None:
            assert not isinstance(mask, Documents)
            k, v, mask = self.prefix(k, v, mask)
        mixed = attend(q, k, v, mask)
        return self.output(mixed.transpose(1, 2).flatten(2))  # [B H T d] -> [B T D]

    @torch.no_grad()
    def initialise_locality(self, locality: float, *, generator: torch.Generator) -> None:
        """Initialises the biases of queries and keys with equal random numbers, so that a token's
        attention logits decrease with the distance: its logit for itself exceeds that for a distant
        token by ``locality`` on average (the long-term decay of Su et al. 2021, section 3.4.3). A
        ``locality`` of 0 gives biases of 0. Attention without rotary positions or biases is not
        changed.

        With biases of 0, a masked token finds its neighbours only after both biases have grown:
        small models predicted unigram frequencies for hundreds of steps.
        """
        if not self.can_be_local:
            return
        width = self.query.bias.numel() // self.num_heads
        self.query.bias.normal_(0, (locality / width**0.5) ** 0.5, generator=generator)
        self.key_value.bias[: self.query.bias.numel()] = self.query.bias

    @property
    def has_flash_width(self) -> bool:
        """Returns whether the flash kernels compute heads of this width."""
        return self.head_width % 8 == 0 and self.head_width <= 256

    @property
    def can_be_local(self) -> bool:
        """Returns whether equal biases of queries and keys can make the attention local: it needs
        biases and rotary positions."""
        return self.rotary and self.query.bias is not None

    @torch.no_grad()
    def drop_locality(self) -> None:
        """Sets to 0 the biases of queries and keys that ``initialise_locality`` drew."""
        if self.can_be_local:
            self.query.bias.zero_()
            self.key_value.bias[: self.query.bias.numel()] = 0.0

    def _heads(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T H d"]:
        return x.unflatten(-1, (self.num_heads, -1))
