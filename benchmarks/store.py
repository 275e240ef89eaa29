"""What the store of trials costs a trial: to look it up, to write it, to take it. Prints Markdown;
run by hand in a finished study, the result is in store.md.

    python -m benchmarks.store > benchmarks/store.md

The entries of the study's own store are written to an empty store and taken from it, one after
the other; the study does not change. Times are wall times, with the disk.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
from safetensors.torch import save_file

from stages.core.keys import TrialKey
from stages.core.study_file import load
from stages.training.device import resolve
from stages.trials import store
from stages.trials.setup import TrialSetup

P = ParamSpec("P")
T = TypeVar("T")
GOAL_S = 0.01 * 10  # 1 % of a trial of ten seconds
LARGE = 22_700_000  # weights, as a small published checkpoint has


def main() -> None:
    params = load()
    loaded = {each.folder.name: store.load(each.folder.name) for each in store.listed()}
    entries = {address: entry for address, entry in loaded.items() if entry}
    (checkpoint, *_), (task, *_) = params.checkpoints, params.tasks
    device = resolve(params.compute, threads=params.compute.trial_threads)
    method, seed = next(iter(params.finetune.methods)), params.finetune.seeds[0]
    key = TrialKey(*checkpoint, task, method, "all", seed)

    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as other:
        os.environ[store.VARIABLE] = other
        for address, entry in entries.items():
            timed(rows, "look up what is not there", store.load, address)
            timed(rows, "write", write, address, entry, entry.weights)
            timed(rows, "take", take, address, Path(other))
        large = Path(other, "large.safetensors")
        save_file({"weight": torch.zeros(LARGE)}, large)
        for address, entry in [*entries.items()][:5]:
            shutil.rmtree(Path(other, address))
            timed(rows, f"write, with {LARGE:,} weights", write, address, entry, large)
            timed(rows, f"take, with {LARGE:,} weights", take, address, Path(other))
        setup = TrialSetup(checkpoint, task, max_tokens=params.finetune.max_tokens)
        for _ in range(5):
            addresses = timed(
                rows,
                "hash checkpoint and rows, once per run and task",
                store.Addresses,
                params.finetune,
                setup,
                device,
            )
            timed(rows, "hash code and settings", addresses.of, key)

    weighted = sum(entry.weights is not None for entry in entries.values())
    print("# The store of trials: its cost per trial\n")
    print(
        f"`python -m benchmarks.store` in the finished study `{params.study}`: {len(entries)} "
        f"trials, {weighted} of which keep their weights. Milliseconds; the goal is "
        f"{GOAL_S * 1000:.0f}, 1 % of a trial of ten seconds.\n"
    )
    print("| what | median | largest | times |\n|---|---|---|---|")
    for what, seconds in rows.items():
        middle, most = statistics.median(seconds) * 1000, max(seconds) * 1000
        print(f"| {what} | {middle:.1f} | {most:.1f} | {len(seconds)} |")


def timed(
    rows: dict[str, list[float]], what: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    began = time.perf_counter()
    result = do(*args, **kwargs)
    rows.setdefault(what, []).append(time.perf_counter() - began)
    return result


def write(address: str, entry: store.Stored, weights: Path | None) -> None:
    with store.unfinished() as folder:
        if weights:
            shutil.copyfile(weights, folder / weights.name)
        store.save(address, entry.outcome, folder)


def take(address: str, folder: Path) -> None:
    entry = store.load(address)
    assert entry
    if entry.weights:
        shutil.copyfile(entry.weights, folder / "taken")
    store.mark_used(address)


if __name__ == "__main__":
    main()
