"""The accounts of a pretraining: its size and work, its history and its resource usage."""

import csv
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from stages.core.artifacts import Json
from stages.core.params import Run
from stages.models._backbone import Backbone
from stages.training.device import Device
from stages.training.loop import Step
from stages.training.meter import Meter, hardware

HISTORY_ROWS = 1000  # about as many rows of history are kept at most
COLUMNS: Sequence[str] = ("step", "tokens", "flops", "loss", "lr", "validation_loss")

Account = dict[str, Any]  # numbers by name; None is an unknown one


def account_of(
    backbone: Backbone, run: Run, history: Sequence[Step], parent: Account | None
) -> Account:
    """What ``metrics.json`` holds: parameters, the work of this run and that of its lineage (the
    run with its parent, a teacher too, and theirs). The pretraining of a public checkpoint by
    others is unknown."""
    account = _parameters(backbone) | _work(run, history)
    if run.is_public:
        return account | {"lineage_tokens": None, "lineage_flops": None}
    earlier = parent or {"lineage_tokens": 0, "lineage_flops": 0}
    return account | {
        f"lineage_{amount}": account[f"pretrain_{amount}"] + earlier[f"lineage_{amount}"]
        for amount in ("tokens", "flops")
    }


def _parameters(backbone: Backbone) -> Account:
    return {
        "num_params": sum(p.numel() for p in backbone.parameters()),
        "num_embedding_params": sum(p.numel() for p in backbone.lookup_tables.parameters()),
    }


def _work(run: Run, history: Sequence[Step]) -> Account:
    if not history:
        done = None if run.is_public else 0
        return {"pretrain_tokens": done, "pretrain_flops": done}
    validated = [s.validation_loss for s in history if s.validation_loss is not None]
    return {
        "pretrain_tokens": run.training.num_steps * _step_tokens(run),
        "pretrain_flops": sum(step.flops for step in history),
        "train_loss": history[-1].loss,
        "validation_loss": validated[-1],
    }


def _step_tokens(run: Run) -> int:
    return run.training.batch_rows * run.training.max_tokens


def write_history(path: Path, history: Sequence[Step], run: Run) -> None:
    """A CSV file of COLUMNS; the header alone if nothing was trained."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_thinned(history, run))


def _thinned(history: Sequence[Step], run: Run) -> Iterator[Json]:
    """Every n-th step and those with a validation loss; tokens and FLOPs are cumulative."""
    every = -(-len(history) // HISTORY_ROWS) or 1
    done = accumulate(step.flops for step in history)
    for step, flops in zip(history, done, strict=True):
        if step.step % every == 0 or step.validation_loss is not None:
            tokens = step.step * _step_tokens(run)
            yield vars(step) | {"tokens": tokens, "flops": flops}


def timing(seconds: float, meter: Meter, account: Account, device: Device) -> Json:
    """Resource usage of a run that took ``seconds``, in processes that were interrupted too. Of
    those only the wall time is known: processor time and energy are scaled by it."""
    usage = meter.read()
    scale = seconds / usage.wall_time_s
    energy = usage.gpu_energy_j
    return {
        "wall_time_s": round(seconds, 3),
        "peak_memory_bytes": usage.peak_memory_bytes,
        "processor_time_s": round(scale * usage.processor_time_s, 3),
        "gpu_energy_j": None if energy is None else round(scale * energy, 3),
        "tokens_per_s": round((account["pretrain_tokens"] or 0) / seconds, 1),
        "device": device.device,
        "hardware": hardware(device),
        "threads": device.threads,
    }
