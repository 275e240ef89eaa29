"""The accounts of a pretraining: model size, work, history and resource usage."""

import csv
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from stages.core.artifacts import Json
from stages.core.params import Run
from stages.models._backbone import Backbone
from stages.training.curve_end import last_quarter_share, slope_at_end
from stages.training.device import Device
from stages.training.loop import Step
from stages.training.meter import Meter, hardware
from stages.training.tries import Try, best

HISTORY_ROWS = 1000  # a history keeps at most about this many rows
COLUMNS: Sequence[str] = ("step", "tokens", "flops", "loss", "lr", "validation_loss")
TRY_COLUMNS: Sequence[str] = ("rate", "kept", *COLUMNS)

Account = dict[str, Any]  # numbers by name; None if unknown


LINEAGE = ("tokens", "flops", "bytes")  # amounts that are also summed over parents and teachers


def account_of(
    backbone: Backbone,
    run: Run,
    tries: Sequence[Try],
    parent: Account | None,
    *,
    bytes_per_token: float,
) -> Account:
    """Returns the content of ``metrics.json``: numbers of parameters, the work of this run, and the
    work of its lineage (the run, its parent or teacher, and so on). The work of pretraining a
    public checkpoint is unknown (None).

    Tokens count what the kept model has seen; FLOPs count all learning rates that were tried. A run
    that trains nothing has no ``tries``. The bytes of text that were read are an estimate: the
    tokens times the mean ``bytes_per_token`` of the encoded corpus.
    """
    account = _parameters(backbone) | _work(run, tries)
    tokens = account["pretrain_tokens"]
    account["pretrain_bytes"] = None if tokens is None else round(tokens * bytes_per_token)
    if run.is_public:
        return account | {f"lineage_{amount}": None for amount in LINEAGE}
    earlier = parent or {f"lineage_{amount}": 0 for amount in LINEAGE}
    return account | {
        f"lineage_{amount}": account[f"pretrain_{amount}"] + earlier[f"lineage_{amount}"]
        for amount in LINEAGE
    }


def _parameters(backbone: Backbone) -> Account:
    return {
        "num_params": sum(p.numel() for p in backbone.parameters()),
        "num_embedding_params": sum(p.numel() for p in backbone.lookup_tables.parameters()),
    }


def _work(run: Run, tries: Sequence[Try]) -> Account:
    if not tries:
        done = None if run.is_public else 0
        return {"pretrain_tokens": done, "pretrain_flops": done}
    chosen = best(tries)
    history = chosen.history
    losses = {s.step: s.validation_loss for s in history if s.validation_loss is not None}
    work = [step for each in tries for step in each.history]
    return {
        "pretrain_tokens": run.training.num_steps * _step_tokens(run),
        "tokens_of_all_rates": len(work) * _step_tokens(run),
        "pretrain_flops": sum(step.flops for step in work),
        "flops_of_kept_rate": sum(step.flops for step in history),
        "train_loss": history[-1].loss,
        "validation_loss": chosen.final_loss,
        "lr": chosen.rate,
        "rates": {str(t.rate): None if t.diverged else t.final_loss for t in tries},
        "validation_loss_slope": slope_at_end(losses),
        "last_quarter_share": last_quarter_share(history[0].loss, losses),
    }


def _step_tokens(run: Run) -> int:
    return run.training.batch_rows * run.training.max_tokens


def write_history(path: Path, history: Sequence[Step], run: Run) -> None:
    """Writes the history as a CSV file of COLUMNS; only the header if nothing was trained."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_thinned(history, run))


def write_tries(path: Path, tries: Sequence[Try], run: Run) -> None:
    """Writes the histories of all tries as one CSV file of TRY_COLUMNS; only the header if
    there are fewer than two tries."""
    chosen = best(tries) if tries else None
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, TRY_COLUMNS, lineterminator="\n")
        writer.writeheader()
        for attempt in tries if len(tries) > 1 else ():
            about = {"rate": attempt.rate, "kept": int(attempt is chosen)}
            writer.writerows(about | row for row in _thinned(attempt.history, run))


def _thinned(history: Sequence[Step], run: Run) -> Iterator[Json]:
    """Yields the rows of the first and the last step, every n-th step and all steps with a
    validation loss; tokens and FLOPs are cumulative."""
    every = -(-len(history) // HISTORY_ROWS) or 1
    done = accumulate(step.flops for step in history)
    for step, flops in zip(history, done, strict=True):
        always = step is history[0] or step is history[-1] or step.validation_loss is not None
        if always or step.step % every == 0:
            tokens = step.step * _step_tokens(run)
            yield vars(step) | {"tokens": tokens, "flops": flops}


def timing(seconds: float, meter: Meter, account: Account, device: Device) -> Json:
    """Returns the resource usage of a run that took ``seconds``, interrupted processes included.
    For these only the wall time is known, so processor time and energy are scaled up."""
    usage = meter.read()
    scale = seconds / usage.wall_time_s
    energy = usage.gpu_energy_j
    return {
        "wall_time_s": round(seconds, 3),
        "peak_memory_bytes": usage.peak_memory_bytes,
        "processor_time_s": round(scale * usage.processor_time_s, 3),
        "gpu_energy_j": None if energy is None else round(scale * energy, 3),
        "tokens_per_s": round(account.get("tokens_of_all_rates", 0) / seconds, 1),
        "device": device.device,
        "hardware": hardware(device),
        "threads": device.threads,
    }
