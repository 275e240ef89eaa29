"""The attention of all Transformers: which tokens attend to which, and how that is computed.

``ATTENTION`` is registered with transformers, whose models then call ``attend``. Rows of several
documents get a mask that keeps the documents apart; on a GPU, kernels for sequences of different
lengths read the documents instead and need no mask.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask

ATTENTION = "study"
# Rows of up to this many tokens use explicit matrix products; in longer rows the attention logits
# would take most of the memory.
WRITTEN_OUT = 512
# A mask [B 1 T T] with which rows of T tokens are read: ``generate`` thereby reads a prefix in both
# directions and writes causally after it.
PREFIX = ContextVar[Tensor | None]("prefix", default=None)


@dataclass(frozen=True)
class Documents:
    """The documents of a batch on a GPU: where they start in the concatenation of all rows."""

    starts: Int[Tensor, " N"]  # ``document_starts`` of the batch
    longest: int  # an upper bound of the length of a document
    causal: bool


def attend(
    module: nn.Module,
    query: Float[Tensor, "B H T d"],
    key: Float[Tensor, "B G S d"],
    value: Float[Tensor, "B G S d"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Float[Tensor, "_ H T S"] | None = None,
    documents: Documents | None = None,
    **others: Any,
) -> tuple[Float[Tensor, "B T H d"], None]:
    """Scaled dot-product attention, in the form that transformers calls; ``G`` heads of keys and
    values are shared by groups of heads (Llama).

    Short rows in bfloat16 on a CPU use explicit matrix products: torch's kernel takes 1.7 to 6
    times as long (benchmarks/attention.py). ``documents`` use the kernels for sequences of
    different lengths, other rows torch's kernel.
    """
    # Rotary positions leave queries and keys in float32 under autocast.
    query, key = query.to(value.dtype), key.to(value.dtype)
    in_16_bits = query.dtype in (torch.bfloat16, torch.float16)
    if (prefix := PREFIX.get()) is not None and query.shape[2] == prefix.shape[3]:
        # Beams repeat the rows of a batch.
        attention_mask = additive(prefix, query.dtype)
        attention_mask = attention_mask.repeat_interleave(len(query) // len(prefix), dim=0)
    is_short = query.shape[2] * key.shape[2] <= WRITTEN_OUT**2
    writes_out = is_short and query.dtype == torch.bfloat16 and query.device.type == "cpu"
    if not writes_out and not (documents is not None and in_16_bits):
        if attention_mask is not None and attention_mask.dtype != torch.bool:
            attention_mask = attention_mask.to(query.dtype)
        settings = {"dropout": dropout, "scaling": scaling, "position_bias": position_bias}
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, **settings, **others
        )
    if (repeats := query.shape[1] // key.shape[1]) > 1:
        key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
    if documents is not None:
        return _within_documents(query, key, value, documents, scaling), None
    scores = (query * (query.shape[-1] ** -0.5 if scaling is None else scaling)) @ key.mT
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        # transformers writes the least float32 for a masked key, which bfloat16 would round to
        # minus infinity; a row of these alone has no softmax.
        least = torch.finfo(scores.dtype).min
        scores = scores + attention_mask.to(scores.dtype).clamp(min=least)
    weights = F.dropout(scores.softmax(dim=-1), dropout, training=dropout > 0)
    return (weights @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, eager_mask)


def _within_documents(
    query: Float[Tensor, "B H T d"],
    key: Float[Tensor, "B H T d"],
    value: Float[Tensor, "B H T d"],
    documents: Documents,
    scaling: float | None,
) -> Float[Tensor, "B T H d"]:
    """Attention within documents by the flash kernels, which read the rows as one sequence."""
    from torch.nn.attention.varlen import varlen_attn  # loads torch's compiler: 1 s

    if scaling is not None:  # the kernels divide by the root of the width
        query = query * (scaling * query.shape[-1] ** 0.5)
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))  # [B*T H d]
    starts, longest = documents.starts, documents.longest
    window = (-1, 0 if documents.causal else -1)
    mixed = varlen_attn(q, k, v, starts, starts, longest, longest, window_size=window)
    assert isinstance(mixed, Tensor)
    return mixed.unflatten(0, (len(query), -1))


def document_mask(
    queries: Int[Tensor, "B T"],
    keys: Int[Tensor, "B S"],
    *,
    causal: bool = False,
    visible: Bool[Tensor, "B S"] | None = None,
    window: int | None = None,
) -> Bool[Tensor, "B 1 T S"]:
    """The attention mask computed from document ids: a token attends to its own document.

    If ``causal``, a token attends only to itself, to earlier tokens and to ``visible`` ones. With a
    ``window``, it attends to tokens at a distance of at most ``window``. Padding (document 0)
    attends to padding, so that no row of the softmax is empty; no other token attends to padding.
    """
    mask = queries[:, :, None] == keys[:, None, :]
    if causal:
        order = torch.ones_like(mask).tril()
        mask = mask & (order if visible is None else order | visible[:, None, :])
    if window is not None:
        mask = mask & torch.ones_like(mask).tril(window).triu(-window)
    return mask[:, None]


def additive(mask: Bool[Tensor, "B 1 T S"], dtype: torch.dtype) -> Float[Tensor, "B 1 T S"]:
    """Returns the mask as numbers to add to logits: minus infinity for a masked key."""
    return mask.to(dtype).log_()  # log 1 = 0, log 0 = -inf; masked_fill takes twice as long
