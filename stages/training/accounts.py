"""The accounts of a pretraining: model size, work, history and resource usage."""

import csv
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from stages.core.artifacts import Json
from stages.core.params import Model
from stages.models._backbone import Backbone
from stages.training.device import Device
from stages.training.meter import Usage, hardware
from stages.training.tries import Try, best

HISTORY_ROWS = 1000  # a history keeps at most about this many rows
COLUMNS: Sequence[str] = ("step", "tokens", "flops", "loss", "lr", "validation_loss")
LINEAGE = ("tokens", "flops", "bytes")  # amounts that are also summed over parents and teachers

Account = dict[str, Any]  # numbers by name; None if unknown


def account_of(
    backbone: Backbone,
    entry: Model,
    tries: Sequence[Try],
    parent: Account | None,
    *,
    bytes_per_token: float,
) -> Account:
    """Returns the content of ``metrics.json``: numbers of parameters, the work of this model, and
    the work of its lineage (the model, its parent or teacher, and so on). The work of pretraining a
    public checkpoint is unknown (None).

    Tokens count what the kept model has seen; FLOPs count all learning rates that were tried. A
    model that trains nothing has no ``tries``. The bytes of text that were read are an estimate:
    the tokens times the mean ``bytes_per_token`` of the encoded corpus.
    """
    step_tokens = _step_tokens(entry)
    account: Account = {
        "num_params": sum(p.numel() for p in backbone.parameters()),
        "num_embedding_params": sum(p.numel() for p in backbone.token_embedding.parameters()),
        "pretrain_tokens": None if entry.is_public else 0,
        "pretrain_flops": None if entry.is_public else 0,
    }
    if tries:
        chosen = best(tries)
        account |= {
            "pretrain_tokens": entry.training.num_steps * step_tokens,
            "tokens_of_all_rates": sum(len(each.history) for each in tries) * step_tokens,
            "pretrain_flops": sum(step.flops for each in tries for step in each.history),
            "flops_of_kept_rate": sum(step.flops for step in chosen.history),
            "train_loss": chosen.history[-1].loss,
            "validation_loss": chosen.final_loss,
            "lr": chosen.rate,
            "rates": {str(t.rate): None if t.diverged else t.final_loss for t in tries},
        }
    tokens = account["pretrain_tokens"]
    account["pretrain_bytes"] = None if tokens is None else round(tokens * bytes_per_token)
    for amount in LINEAGE:
        earlier = parent[f"lineage_{amount}"] if parent else 0
        own = account[f"pretrain_{amount}"]
        account[f"lineage_{amount}"] = None if entry.is_public else own + earlier
    return account


def _step_tokens(entry: Model) -> int:
    return entry.training.batch_rows * entry.training.max_tokens


def write_histories(folder: Path, tries: Sequence[Try], entry: Model) -> None:
    """Writes the tables of COLUMNS ``history.csv``, of the kept rate, and ``rates.csv``, of all
    rates if there are several; tables of nothing have a header."""
    several = [
        {"rate": each.rate, "kept": int(each is best(tries))} | row
        for each in tries
        for row in _thinned(each, entry)
    ]
    tables = {
        "history": (COLUMNS, [row for row in several if row["kept"]]),
        "rates": (("rate", "kept", *COLUMNS), several if len(tries) > 1 else []),
    }
    for name, (columns, rows) in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


def _thinned(of_rate: Try, entry: Model) -> list[Json]:
    """Returns the rows of the first and the last step, every n-th step and all steps with a
    validation loss; tokens and FLOPs are cumulative."""
    history, tokens = of_rate.history, _step_tokens(entry)
    every = -(-len(history) // HISTORY_ROWS)
    return [
        vars(step) | {"tokens": step.step * tokens, "flops": flops}
        for step, flops in zip(history, accumulate(s.flops for s in history), strict=True)
        if step in (history[0], history[-1])
        or step.validation_loss is not None
        or step.step % every == 0
    ]


def timing(seconds: float, usage: Usage, account: Account, device: Device) -> Json:
    """Returns the resource usage of a pretraining that took ``seconds``, interrupted processes
    included. For these only the wall time is known, so the processor time is scaled up."""
    processor_time_s = seconds / usage.wall_time_s * usage.processor_time_s
    return {
        "wall_time_s": round(seconds, 3),
        "peak_memory_bytes": usage.peak_memory_bytes,
        "processor_time_s": round(processor_time_s, 3),
        "tokens_per_s": round(account.get("tokens_of_all_rates", 0) / seconds, 1),
        "device": device.device,
        "hardware": hardware(device),
        "threads": device.threads,
    }
