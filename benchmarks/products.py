"""How long the matrix products of a training step take by themselves: no code that computes the
same products makes the step shorter. Run by hand in the folder of a finished study (for pretraining
its corpus is enough), on a machine with nothing else to do:

    python benchmarks/products.py --tasks tag section --json products.json > products.md

Each step of this project's training loop is timed, and the products of one step, recorded as torch
computes them, are computed again in their order. Products of one shape share their operands, which
are likelier in a cache than those of the step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pretraining_data import ARCHITECTURES
from benchmarks.speed import environment, peak
from benchmarks.speed_peer import RATE, Asked, now
from benchmarks.speed_sides import finetuning_side, pretraining_side
from stages.core.params import Optimisation, load
from stages.core.training_environment import training_environment
from stages.training.device import resolve
from stages.training.loop import step_flops, train

ROOT = Path(__file__).parents[1]
aten = torch.ops.aten
PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default}
WARMUP, STEPS, REPEATS = 3, 15, 15


@dataclass(frozen=True)
class Measured:
    """Medians; ``at_most`` is how many times as fast a step of the same products can be."""

    work: str
    step_ms: float
    products_ms: float
    num_products: int
    flops: float  # of a step
    peak: float  # operations per second

    @property
    def at_most(self) -> float:
        return self.step_ms / self.products_ms

    def of_peak(self, milliseconds: float) -> float:
        return self.flops / (milliseconds / 1e3) / self.peak


class Recorder(TorchDispatchMode):
    """Keeps what makes each product again."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Any]] = []
        self._operands: dict[Any, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS:
            operands = tree_map(self._like, args)
            self.calls.append(lambda: func(*operands, **kwargs or {}))
        return func(*args, **kwargs or {})

    def _like(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        key = value.shape, value.stride(), value.dtype
        if key not in self._operands:
            with torch.utils._python_dispatch._disable_current_modes():
                made = torch.empty_strided(*key[:2], dtype=value.dtype, device=value.device)
                self._operands[key] = made.normal_()
        return self._operands[key]


def measure(asked: Asked) -> Measured:
    device = resolve(load().compute, threads=asked.threads)
    side = pretraining_side if asked.work in ARCHITECTURES else finetuning_side
    model, criterion, data, _ = side(asked, load(), device)
    model.to(device.torch)
    flops = sum(step_flops(model, criterion, batch) for batch in data.micro_batches(0))
    schedule = Optimisation(
        lr=RATE, warmup_fraction=0.1, decay="linear", weight_decay=0.01, max_grad_norm=1.0
    )
    recorder, ends = Recorder(), []
    steps = train(
        model, criterion, _Alike(data), schedule, num_steps=WARMUP + STEPS, seed=1, device=device
    )
    for number in range(WARMUP + STEPS):
        if number == 1:
            with recorder:
                next(steps)
        else:
            next(steps)
        ends.append(now())
    assert recorder.calls
    times = []
    with torch.no_grad():
        for _ in range(REPEATS):
            began = now()
            for call in recorder.calls:
                call()
            times.append(now() - began)
    seconds = [end - begin for begin, end in zip(ends[WARMUP - 1 :], ends[WARMUP:], strict=False)]
    return Measured(
        asked.work,
        1e3 * statistics.median(seconds),
        1e3 * statistics.median(times),
        len(recorder.calls),
        flops,
        peak(asked.threads),
    )


@dataclass(frozen=True)
class _Alike:
    """The batches of the first step in each."""

    data: Any

    def micro_batches(self, step: int) -> Any:
        return self.data.micro_batches(0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--objectives", nargs="*", default=[*ARCHITECTURES], choices=ARCHITECTURES)
    parser.add_argument("--tasks", nargs="*", default=[], help="of the study, to fine-tune on")
    parser.add_argument("--run", default="encoder_mlm", help="of the study, to be fine-tuned")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    parser.add_argument("--one", metavar="WORK", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(asdict(measure(_asked(asked.one, asked.threads, asked.run)))))
        return
    found = [_in_a_process(work, asked) for work in [*asked.objectives, *asked.tasks]]
    if asked.json:
        figures = {"environment": environment(), "threads": asked.threads}
        figures |= {"found": [asdict(each) for each in found]}
        asked.json.write_text(json.dumps(figures, indent=1))
    print(
        "| step | ms | its products alone, ms | products | of the peak | products alone | at most |"
    )
    print("|---|---|---|---|---|---|---|")
    for each in found:
        shares = (f"{each.of_peak(ms):.0%}" for ms in (each.step_ms, each.products_ms))
        print(
            f"| {each.work} | {each.step_ms:.1f} | {each.products_ms:.1f} | {each.num_products} | "
            f"{' | '.join(shares)} | {each.at_most:.2f} |"
        )


def _in_a_process(work: str, asked: argparse.Namespace) -> Measured:
    """With the settings of memory that stages have."""
    command = [sys.executable, __file__, "--one", work, "--run", asked.run]
    command += ["--threads", str(asked.threads)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)} | training_environment()
    text = subprocess.check_output(command, env=environ, text=True)
    return Measured(**json.loads(text.splitlines()[-1]))


def _asked(work: str, threads: int, run: str) -> Asked:
    """The sizes of speed.py."""
    return Asked(
        work=work,
        peer="",
        compile=False,
        threads=threads,
        warmup=WARMUP,
        steps=STEPS,
        rows=32 if work in ARCHITECTURES else 16,
        length=128,
        d_model=256,
        num_layers=4,
        num_heads=4,
        run=run,
    )


if __name__ == "__main__":
    main()
