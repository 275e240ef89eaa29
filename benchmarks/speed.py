"""Speed beside the Trainer of transformers: pretraining, fine-tuning, two trainings side by side,
and prediction. Run by hand in the folder of a finished study, on a machine with nothing else to do:

    pip install accelerate
    python benchmarks/speed.py --json speed.json > speed.md

Each side trains in a process of its own, one after the other, in several rounds; a figure is the
median of all its steps, a ratio that of two medians. Both train on the same text, tokenizer and
masked or corrupted tokens, on models of the same size, without validation.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pretraining_data import ARCHITECTURES
from stages.trials.prediction import PREDICTED_AT_ONCE

ROOT = Path(__file__).parents[1]
# As dvc.yaml has them: freed memory is kept for reuse, threads that wait do not spin.
MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "GOMP_SPINCOUNT": "1000",
}
OURS, DEFAULT, BEST = "this project", "Trainer as it comes", "Trainer at its best"
PEERS = {OURS: "", DEFAULT: "default", BEST: "best bf16"}
OBJECTIVES = tuple(ARCHITECTURES)
PRODUCT = 2048  # rows and columns of the matrices whose product gives the machine's peak
PREDICTION = "prediction of "  # and a task: work that is no training

Settings = dict[str, int | str]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="timed in each round")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--rows", type=int, default=32, help="of a step of pretraining")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row")
    parser.add_argument("--objectives", nargs="*", default=OBJECTIVES, choices=OBJECTIVES)
    parser.add_argument("--tasks", nargs="*", default=[], help="of the study, to fine-tune on")
    parser.add_argument("--run", default="encoder_mlm", help="of the study, to be fine-tuned")
    parser.add_argument("--examples", type=int, default=16, help="of a step of fine-tuning")
    parser.add_argument(
        "--predict", nargs="*", default=[], help="tasks, to predict their test rows"
    )
    parser.add_argument("--compile", action="store_true", help="compiled models too")
    parser.add_argument("--json", type=Path, help="where all seconds are written")
    asked = parser.parse_args()
    common: Settings = {
        "warmup": asked.warmup,
        "steps": asked.steps,
        "d_model": asked.d_model,
        "num_layers": asked.layers,
        "num_heads": max(asked.d_model // 64, 1),
        "length": asked.length,
        "run": asked.run,
    }
    sides = [(name, False) for name in PEERS]
    sides += [(name, True) for name in (OURS, BEST) if asked.compile]
    found: dict[str, list[Any]] = {}
    measured = [(work, asked.rows) for work in asked.objectives]
    measured += [(work, asked.examples) for work in asked.tasks]
    measured += [(f"{PREDICTION}{task}", PREDICTED_AT_ONCE) for task in asked.predict]
    for number in range(asked.rounds):
        found.setdefault("products per second", []).append(peak(asked.threads))
        for work, rows in tqdm(measured, desc=f"round {number + 1}", disable=None):
            for side, compiled in sides:
                settings = common | {"work": work, "rows": rows, "compile": compiled}
                name = f"{work}, {side}{' compiled' if compiled else ''}"
                found.setdefault(name, []).extend(
                    started([settings | {"peer": PEERS[side], "threads": asked.threads}])
                )
            if asked.threads > 1:
                alone = common | {"work": work, "rows": rows, "compile": False, "peer": ""}
                beside = started([alone | {"threads": 1}] * asked.threads)
                found.setdefault(f"{work}, side by side", []).append(beside)
    if asked.json:
        asked.json.write_text(
            json.dumps(
                {
                    "asked": {k: str(v) for k, v in vars(asked).items() if k != "json"},
                    "environment": environment(),
                    "found": found,
                },
                indent=1,
            )
        )
    print_tables(asked, found, [work for work, _ in measured], sides)


def started(processes: Sequence[Settings]) -> list[dict[str, Any]]:
    """What each process prints; all run at once."""
    running = []
    for settings in processes:
        as_it_comes = settings["peer"] == PEERS[DEFAULT]
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.speed_sides", json.dumps(settings)],
                env=environ if as_it_comes else environ | MALLOC,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    printed = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit(f"a side failed: {processes}")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def peak(threads: int) -> float:
    """Operations per second of a product of two large matrices, in the arithmetic of trainings."""
    code = f"""
import time, torch
from stages.core.params import load
from stages.training.device import resolve
device = resolve(load().compute, threads={threads})
kind = torch.bfloat16 if device.precision == "bfloat16" else torch.float32
a = torch.randn({PRODUCT}, {PRODUCT}, device=device.torch, dtype=kind)
def run():
    began = time.perf_counter()
    b = a @ a
    float(b[0, 0])
    return time.perf_counter() - began
run()
print(2 * {PRODUCT}**3 / min(run() for _ in range(10)))
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return float(subprocess.check_output([sys.executable, "-c", code], env=environ, text=True))


def environment() -> Mapping[str, str]:
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def rate(timed: Sequence[dict[str, Any]], what: str = "units") -> float:
    """Tokens, examples or operations per second: of the median step of all rounds."""
    seconds = statistics.median(second for each in timed for second in each["seconds"])
    return timed[0][what] / seconds


def print_tables(
    asked: argparse.Namespace,
    found: Mapping[str, list[Any]],
    works: Sequence[str],
    sides: Sequence[tuple[str, bool]],
) -> None:
    print("# Training speed, beside the Trainer of transformers\n")
    print(", ".join(f"{name} {value}" for name, value in environment().items()), end=". ")
    print(
        f"{asked.layers} layers of {asked.d_model}, {asked.rows} rows of {asked.length} tokens, "
        f"{asked.threads} threads; medians of {asked.rounds} x {asked.steps} steps, interleaved.\n"
    )
    names = [f"{side}{' compiled' if compiled else ''}" for side, compiled in sides]
    columns = [*names, "to the default", "to the best", "side by side", "of the peak"]
    print(f"| per second | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|")
    top = statistics.median(found["products per second"])
    for work in works:
        rates = {name: rate(found[f"{work}, {name}"]) for name in names}
        ours = max(value for name, value in rates.items() if name.startswith(OURS))
        best = max(value for name, value in rates.items() if name.startswith(BEST))
        row = [f"{value:,.0f}" for value in rates.values()]
        row += [f"{ours / rates[DEFAULT]:.2f}", f"{ours / best:.2f}"]
        beside = found.get(f"{work}, side by side", [])
        sums = [sum(rate([each]) for each in processes) for processes in beside]
        row.append(f"{statistics.median(sums) / rates[OURS]:.2f}" if sums else "")
        is_training = not work.startswith(PREDICTION)
        row.append(f"{rate(found[f'{work}, {OURS}'], 'flops') / top:.0%}" if is_training else "")
        unit = "tokens" if work in OBJECTIVES else "examples" if is_training else "texts"
        print(f"| {work}, {unit} | {' | '.join(row)} |")
    print(
        f"\nPeak: {top / 1e9:,.0f} GFLOP/s in the product of two matrices of {PRODUCT} rows and "
        "columns. Side by side: two processes with half of the threads each, their sum over one "
        "process with all."
    )


if __name__ == "__main__":
    main()
