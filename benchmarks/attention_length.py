"""How the cost of attention grows: with the square of a row's length, and with both lengths of
cross-attention. Prints a Markdown table; run by hand, the result is in attention_length.md.

    python benchmarks/attention_length.py > benchmarks/attention_length.md
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.models._attention import Attention
from stages.models._dimensions import Dimensions

DIMS = Dimensions(d_model=256, num_layers=1, num_heads=4, d_ff=1)
CASES = [
    *(("self-attention", n, n) for n in (256, 512, 1024, 2048, 4096)),
    *(("cross-attention", n, m) for n in (512, 1024) for m in (256, 1024, 4096)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9, help="of each case, interleaved")
    repeats = parser.parse_args().repeats
    torch.manual_seed(0)
    torch.set_num_threads(1)
    times: dict[tuple[str, int, int], list[float]] = {case: [] for case in CASES}
    for _ in tqdm(range(repeats + 1), desc="repeats", disable=None):  # the first is a warm-up
        for case in CASES:
            times[case].append(seconds(*case))
    rows = []
    for (kind, n, m), measured in times.items():
        core, whole = flops(kind, n, m)
        rows.append(
            {
                "": kind,
                "queries n": n,
                "keys m": m,
                "n m d x 4 (GFLOP)": core / 1e9,
                "all (GFLOP)": whole / 1e9,
                "share that grows with n m": f"{core / whole:.0%}",
                "median (ms)": 1000 * statistics.median(measured[1:]),
            }
        )
    print(
        f"Attention of d_model {DIMS.d_model}, one row, float32, one thread of a CPU: operations "
        f"as torch counts\nthem, and the median time of {repeats} interleaved forward passes.\n"
    )
    print(pd.DataFrame(rows).to_markdown(index=False, floatfmt=".3g"))


def inputs(kind: str, n: int, m: int) -> tuple[Attention, torch.Tensor, torch.Tensor, torch.Tensor]:
    attention = Attention(DIMS, cross=kind == "cross-attention")
    x = torch.randn(1, n, DIMS.d_model)
    memory = x if kind == "self-attention" else torch.randn(1, m, DIMS.d_model)
    return attention, x, memory, torch.ones(1, 1, n, m, dtype=torch.bool)


@torch.no_grad()
def seconds(kind: str, n: int, m: int) -> float:
    attention, *rest = inputs(kind, n, m)
    began = time.perf_counter()
    attention(*rest)
    return time.perf_counter() - began


@torch.no_grad()
def flops(kind: str, n: int, m: int) -> tuple[int, int]:
    """Returns operations without the linear layers, and with them."""
    attention, *rest = inputs(kind, n, m)
    counter = FlopCounterMode(display=False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
        attention(*rest)
    whole = counter.get_total_flops()
    linear = 2 * DIMS.d_model**2 * (2 * n + 2 * m)
    return whole - linear, whole


if __name__ == "__main__":
    main()
