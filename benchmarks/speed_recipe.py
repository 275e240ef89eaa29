"""The decoder of ``peers.py``, trained as in nanoGPT: autocast, fused AdamW, and no schedule."""

import torch
from torch import Tensor, nn

from benchmarks.peers import BETAS, MAX_NORM, WEIGHT_DECAY, Decoder
from benchmarks.speed_peer import RATE, Asked, now, of_timed_steps
from stages.training.device import Device


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
