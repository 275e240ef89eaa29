"""A decoder in plain torch with the recipe of nanoGPT (https://github.com/karpathy/nanoGPT), for
``speed_sides.py``: GPT-2's blocks without biases and dropout, embeddings that are tied to the
output, torch's own causal attention, autocast, fused AdamW. There are no masks of documents or
padding, no schedule and no records, so this is about what torch itself can do.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.speed_peer import RATE, Asked, now, of_timed_steps
from stages.training.device import Device

BETAS, WEIGHT_DECAY, MAX_NORM = (0.9, 0.95), 0.1, 1.0


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
    def __init__(self, asked: Asked, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, asked.d_model)
        self.positions = nn.Embedding(asked.length, asked.d_model)
        blocks = [Block(asked.d_model, asked.num_heads) for _ in range(asked.num_layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(asked.d_model, bias=False)
        for weights in (self.tokens.weight, self.positions.weight):
            nn.init.normal_(weights, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the loss of all tokens after the first, in nats."""
        x = self.tokens(ids) + self.positions.weight
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def seconds_of_recipe(
    asked: Asked, rows: list[Tensor], vocab_size: int, device: Device
) -> list[float]:
    """Returns the seconds of each timed step. ``rows`` has the rows of all steps, in order."""
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    decoder = Decoder(asked, vocab_size).to(device.torch)
    optimizer = torch.optim.AdamW(
        decoder.parameters(), lr=RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )
    loss_of = torch.compile(decoder) if asked.compile else decoder
    times = []
    for step in range(asked.warmup + asked.steps):
        ids = torch.stack(rows[step * asked.rows : (step + 1) * asked.rows]).to(device.torch)
        with device.autocast():
            loss = loss_of(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), MAX_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(now())
    return of_timed_steps(asked, times)
