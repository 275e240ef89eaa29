"""Does every system learn? Prints the validation loss of each run of studies/systems.yaml against
tokens seen, at two sizes, and the entropy of the frequencies of its own targets: the loss of a
model that knows only these frequencies. Run by hand on the corpus of the default study:

    dvc repro encode_corpus && python benchmarks/systems.py
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pretraining_data import start
from stages.budgets.budget import trains
from stages.core.params import Model
from stages.core.study_file import load
from stages.models._backbone import Backbone
from stages.text.batch import IGNORE_INDEX, Batch
from stages.training.device import Device, resolve
from stages.training.loop import train

STUDY = Path("studies/systems.yaml")
SIZES = {128: "2 x 128", 256: "4 x 256"}  # d_model, the study's setting: layers x d_model
OWN_SIZE = 128  # the d_model for which the study sets rates
POINTS = 3  # of each curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600, help="of each system at each size")
    parser.add_argument(
        "--sizes", type=int, nargs="+", choices=SIZES, default=[*SIZES], help="d_model"
    )
    options = parser.parse_args()
    num_steps = options.steps
    params = load(STUDY)
    device = resolve(params.compute, threads=params.compute.threads)
    rows = []
    for d_model in options.sizes:
        trained: dict[str, Trained] = {}  # teachers
        for key, model in params.models.items():
            if trains(model):
                rows.append(measure(key, model, d_model, num_steps, device, trained))
                print(*rows[-1].values(), sep="  ", file=sys.stderr, flush=True)
    first = next(iter(params.models.values())).training
    print(
        f"Validation loss (nats per target) of each system of {STUDY} on the default study's\n"
        f"corpus; {num_steps} steps of {first.batch_rows} rows of {first.max_tokens} tokens, one "
        f"seed, on {device.threads} threads of a CPU in {device.precision}.\n"
        f"The study's learning rates are those of d_model {OWN_SIZE}; a wider model's are as much "
        "lower as it is wider.\n"
        "`entropy` is that of the frequencies of the system's own targets, `below` how far the "
        "last loss\nlies below it. A lineage is a system with its teacher: distilbert has seen the "
        "tokens of its own\ntraining and begins from a bert that has been trained on as many; its "
        "FLOPs are those of both and of\nthe teacher's forward passes beside its own.\n"
    )
    print(pd.DataFrame(rows).to_markdown(index=False))


@dataclass(frozen=True)
class Trained:
    """A system after training; tokens and FLOPs are those of its lineage."""

    backbone: Backbone
    tokens: int
    flops: int


def measure(
    key: str,
    entry: Model,
    d_model: int,
    num_steps: int,
    device: Device,
    trained: dict[str, Trained],
) -> dict[str, Any]:
    """Trains one system; returns its row of the table."""
    # Adam's best rate falls as the width grows (Yang et al. 2022, table 3).
    training = entry.training
    schedule = training.at(training.rates[0] * OWN_SIZE / d_model)
    entry = entry.model_copy(update={"architecture": entry.architecture | {"d_model": d_model}})
    teacher = trained[entry.parent].backbone if entry.parent in trained else None
    begun = start(entry, device, num_steps=num_steps, teacher=teacher)
    losses: dict[int, float] = {}
    flops = 0
    began = time.monotonic()
    for step in train(
        begun.model,
        begun.objective,
        begun.data,
        schedule,
        num_steps=num_steps,
        seed=entry.seeds[0],
        device=device,
    ):
        flops += step.flops
        if step.step * POINTS % num_steps < POINTS:
            losses[step.step] = begun.validation_loss()
    seconds = time.monotonic() - began
    step_tokens = training.batch_rows * training.max_tokens
    backbone = begun.model.backbone.requires_grad_(False).eval()
    parent = trained.get(entry.parent, Trained(backbone, 0, 0))
    tokens = num_steps * step_tokens + parent.tokens
    trained[key] = Trained(backbone, tokens, flops + parent.flops)
    entropy = entropy_of_targets(begun.validation)
    return {
        "size": SIZES[d_model],
        "system": key,
        "parameters": f"{sum(p.numel() for p in backbone.parameters()) / 1e6:.2f}M",
        "entropy": f"{entropy:.2f}",
        **{f"{n * step_tokens / 1e6:.2f}M tokens": f"{loss:.2f}" for n, loss in losses.items()},
        "lineage tokens": f"{trained[key].tokens / 1e6:.2f}M",
        "lineage FLOPs": f"{trained[key].flops:.2e}",
        "below": f"{entropy - losses[max(losses)]:.2f}",
        "tokens/s": round(num_steps * step_tokens / seconds),
    }


def entropy_of_targets(batches: list[Batch]) -> float:
    """Returns the entropy of the labels over the vocabulary, in nats."""
    labels = torch.cat([batch.labels.flatten() for batch in batches if batch.labels is not None])
    counts = labels[labels != IGNORE_INDEX].bincount()
    shares = counts[counts > 0] / counts.sum()
    return -(shares * shares.log()).sum().item()


if __name__ == "__main__":
    main()
