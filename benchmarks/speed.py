"""Compares speed with the Trainer of transformers: pretraining, fine-tuning, several trainings at
once, and prediction. Run by hand in the folder of a finished study, on an otherwise idle machine:

    pip install accelerate
    python benchmarks/speed.py --json speed.json > speed.md

It runs on a GPU if there is one; ``gpu.py`` measures a GPU in one command, without a study.

Each side trains in a process of its own, one after the other, in several rounds; a figure is the
median of all its steps, a ratio divides two medians. All sides have the same text, tokenizer,
masked or corrupted tokens and sizes of models; none validates.
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
from benchmarks.speed_peer import RECIPE
from stages.core.parallel import training_environment
from stages.trials.prediction import PREDICTED_AT_ONCE

ROOT = Path(__file__).parents[1]
OURS, DEFAULT, BEST = "this project", "Trainer as it comes", "Trainer at its best"
PEERS = {OURS: "", DEFAULT: "default", BEST: "best bf16", RECIPE: RECIPE}
OBJECTIVES = tuple(ARCHITECTURES)
# Rows and columns of the matrices whose product gives the machine's peak.
PRODUCT = 8192 if torch.cuda.is_available() else 2048
PREDICTION = "prediction of "  # followed by a task: work that is no training

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
    parser.add_argument(
        "--recipe", action="store_true", help=f"{RECIPE} beside causal, compiled if others are"
    )
    parser.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help="trainings side by side, which share the threads or the GPU (default: --threads; "
        "1: none)",
    )
    parser.add_argument("--json", type=Path, help="where all seconds are written")
    options = parser.parse_args()
    common: Settings = {
        "warmup": options.warmup,
        "steps": options.steps,
        "d_model": options.d_model,
        "num_layers": options.layers,
        "num_heads": max(options.d_model // 64, 1),
        "length": options.length,
        "run": options.run,
    }
    sides = [(name, False) for name in (OURS, DEFAULT, BEST)]
    sides += [(name, True) for name in (OURS, BEST) if options.compile]
    sides += [(RECIPE, options.compile)] if options.recipe else []
    at_once = options.threads if options.at_once is None else options.at_once
    results: dict[str, list[Any]] = {}
    measured = [(work, options.rows) for work in options.objectives]
    measured += [(work, options.examples) for work in options.tasks]
    measured += [(f"{PREDICTION}{task}", PREDICTED_AT_ONCE) for task in options.predict]
    for number in range(options.rounds):
        results.setdefault("products per second", []).append(peak(options.threads))
        for work, rows in tqdm(measured, desc=f"round {number + 1}", disable=None):
            for side, compiled in sides:
                if side == RECIPE and work != "causal":
                    continue
                settings = common | {"work": work, "rows": rows, "compile": compiled}
                name = f"{work}, {label(side, compiled)}"
                results.setdefault(name, []).extend(
                    started([settings | {"peer": PEERS[side], "threads": options.threads}])
                )
            if at_once > 1:
                alone = common | {"work": work, "rows": rows, "compile": False, "peer": ""}
                share = {"threads": max(options.threads // at_once, 1)}
                beside = started([alone | share] * at_once)
                results.setdefault(f"{work}, side by side", []).append(beside)
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "asked": {k: str(v) for k, v in vars(options).items() if k != "json"},
                    "environment": environment(),
                    "found": results,
                },
                indent=1,
            )
        )
    print_tables(options, results, [work for work, _ in measured], sides)


def label(side: str, compiled: bool) -> str:
    return f"{side}{' compiled' if compiled else ''}"


def started(processes: Sequence[Settings]) -> list[dict[str, Any]]:
    """Returns what each process prints; all run at once."""
    running = []
    for settings in processes:
        as_it_comes = settings["peer"] == PEERS[DEFAULT]
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.speed_sides", json.dumps(settings)],
                env=environ if as_it_comes else environ | training_environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    printed = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit(f"a side failed: {processes}")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def peak(threads: int) -> float:
    """Returns operations per second of a large matrix product, in the precision of trainings."""
    code = f"""
import time, torch
from stages.core.study_file import load
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
    """Returns tokens, examples or operations per second in the median step of all rounds."""
    seconds = statistics.median(second for each in timed for second in each["seconds"])
    return timed[0][what] / seconds


def print_tables(
    options: argparse.Namespace,
    results: Mapping[str, list[Any]],
    works: Sequence[str],
    sides: Sequence[tuple[str, bool]],
) -> None:
    print("# Training speed, beside the Trainer of transformers\n")
    print(", ".join(f"{name} {value}" for name, value in environment().items()), end=". ")
    print(
        f"{options.layers} layers of {options.d_model}, {options.rows} rows of {options.length} "
        f"tokens, {options.threads} threads; medians of {options.rounds} x {options.steps} steps, "
        "interleaved.\n"
    )
    names = [label(*each) for each in sides]
    columns = [*names, "to the default", "to the best", "at once", "of the peak"]
    print(f"| per second | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|")
    top = statistics.median(results["products per second"])
    for work in works:
        rates = {name: rate(of) for name in names if (of := results.get(f"{work}, {name}"))}
        ours = max((name for name in rates if name.startswith(OURS)), key=rates.__getitem__)
        best = max(value for name, value in rates.items() if name.startswith(BEST))
        row = [f"{rates[name]:,.0f}" if name in rates else "" for name in names]
        row += [f"{rates[ours] / rates[DEFAULT]:.2f}", f"{rates[ours] / best:.2f}"]
        beside = results.get(f"{work}, side by side", [])
        sums = [sum(rate([each]) for each in processes) for processes in beside]
        row.append(f"{statistics.median(sums) / rates[OURS]:.2f}" if sums else "")
        is_training = not work.startswith(PREDICTION)
        row.append(f"{rate(results[f'{work}, {ours}'], 'flops') / top:.0%}" if is_training else "")
        unit = "tokens" if work in OBJECTIVES else "examples" if is_training else "texts"
        print(f"| {work}, {unit} | {' | '.join(row)} |")
    print(
        f"\nPeak: {top / 1e9:,.0f} GFLOP/s in the product of two matrices of {PRODUCT} rows and "
        "columns; `of the peak` counts the operations of the model. At once: the sum of several "
        "processes, which share the threads or the GPU, over one that has all."
    )


if __name__ == "__main__":
    main()
