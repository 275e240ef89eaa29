"""The peers of ``gpu.py`` and ``speed.py``: configurations of transformers, and a decoder in plain
torch.

The decoder has nanoGPT's recipe (https://github.com/karpathy/nanoGPT): GPT-2's blocks without
biases and dropout, embeddings that are tied to the output, torch's own causal attention. There are
no masks of documents or padding, so this is about what torch itself can do.
"""

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
import transformers
from torch import Tensor, nn

BETAS, WEIGHT_DECAY, MAX_NORM = (0.9, 0.95), 0.1, 1.0


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model, and the tokens of a row."""

    d_model: int
    num_layers: int
    num_heads: int
    length: int


def gpt2(sizes: Sizes, vocab_size: int, dropout: float) -> Any:
    return transformers.GPT2Config(
        vocab_size=vocab_size,
        n_positions=sizes.length,
        n_embd=sizes.d_model,
        n_layer=sizes.num_layers,
        n_head=sizes.num_heads,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=None,
        eos_token_id=None,
    )


def t5(sizes: Sizes, vocab_size: int, dropout: float) -> Any:
    start: dict[str, Any] = {"decoder_start_token_id": 0}
    return transformers.T5Config(
        vocab_size=vocab_size,
        d_model=sizes.d_model,
        d_kv=sizes.d_model // sizes.num_heads,
        d_ff=4 * sizes.d_model,
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        dropout_rate=dropout,
        **start,
    )


def bert(sizes: Sizes, vocab_size: int, dropout: float) -> Any:
    return transformers.BertConfig(
        vocab_size=vocab_size,
        hidden_size=sizes.d_model,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        intermediate_size=4 * sizes.d_model,
        max_position_embeddings=sizes.length,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


class Block(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norms = nn.ModuleList([nn.LayerNorm(width, bias=False) for _ in range(2)])
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3 * self.num_heads, -1)).transpose(1, 2)
        q, k, v = heads.chunk(3, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    def __init__(self, sizes: Sizes, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, sizes.d_model)
        self.positions = nn.Embedding(sizes.length, sizes.d_model)
        blocks = [Block(sizes.d_model, sizes.num_heads) for _ in range(sizes.num_layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(sizes.d_model, bias=False)
        for weights in (self.tokens.weight, self.positions.weight):
            nn.init.normal_(weights, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the loss of all tokens after the first, in nats."""
        x = self.tokens(ids) + self.positions.weight
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
