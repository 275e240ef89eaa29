"""Measures how many tokens per second are packed into rows, masked or corrupted, and collated: by
one process, and by one process per core. Prints Markdown. Run by hand in the folder of a finished
study, which uses the corpus and tokenizer of its reference run; the result is in collation.md.

    python ROOT/benchmarks/collation.py > collation.md
"""

import argparse
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from benchmarks.pretraining_data import ARCHITECTURES, pretraining
from stages.core.parallel import cores
from stages.core.study_file import load

SIZES = {"d_model": 16, "num_layers": 1, "num_heads": 1, "d_ff": 16}  # no model runs
STEPS, REPEATS = 40, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32, help="of a step")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 1024], help="of a row")
    options = parser.parse_args()
    processes = cores()
    print("# Batches for pretraining: tokens per second\n")
    print(
        f"| objective | tokens of a row | one process | {processes} processes |\n|---|---|---|---|"
    )
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for objective in ARCHITECTURES:
            for length in options.lengths:
                work = objective, options.rows, length
                (alone,) = pool.map(rate, [work])
                together = sum(pool.map(rate, [work] * processes))
                rates = " | ".join(f"{each / 1e6:.1f} million" for each in (alone, together))
                print(f"| {objective} | {length} | {rates} |", flush=True)


def rate(work: tuple[str, int, int]) -> float:
    """Returns tokens per second in the median of REPEATS passes."""
    objective, rows, length = work
    torch.set_num_threads(1)
    *_, data = pretraining(load(), objective, SIZES, rows=rows, length=length)
    times = []
    for repeat in range(REPEATS):
        began = time.perf_counter()
        for step in range(repeat * STEPS, (repeat + 1) * STEPS):
            data.micro_batches(step)
        times.append(time.perf_counter() - began)
    return STEPS * rows * length / statistics.median(times)


if __name__ == "__main__":
    main()
