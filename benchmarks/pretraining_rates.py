"""Whether one learning rate of pretraining serves all widths, and what the slope at the end of a
pretraining says about a longer one.

Trains the encoder of params.yaml's reference, with two layers, on its corpus: at three widths
and five rates, and at the smallest width also for two and four times the steps. Run by hand after
`dvc repro` of the default study; one thread. Prints Markdown.

    python benchmarks/pretraining_rates.py
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pretraining_data import reference, start
from stages.core.params import Params
from stages.core.study_file import load
from stages.findings.models import slope_at_end
from stages.training.device import resolve
from stages.training.loop import Diverged, train

WIDTHS = (64, 128, 256)
RATES = (5e-4, 1.2e-3, 3e-3, 7e-3, 1.6e-2)
SEEDS = (1, 2)  # the second only at the best rate of each width
NUM_VALIDATIONS = 8  # where a slope is measured
BATCH_ROWS = 8  # half of the study's, to save time
NUM_LAYERS, HEAD_DIM = 2, 32


@dataclass(frozen=True)
class Ended:
    """The validation losses of a pretraining by step."""

    losses: dict[int, float]

    @property
    def final(self) -> float:
        return list(self.losses.values())[-1] if self.losses else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=75)
    num_steps = parser.parse_args().steps
    params = load()
    entry = reference(params)
    sweep = {
        (width, rate): pretrained(params, width, rate, num_steps, SEEDS[0])
        for width, rate in product(WIDTHS, RATES)
    }
    best = {width: min(RATES, key=lambda rate: sweep[width, rate].final) for width in WIDTHS}
    again = {w: pretrained(params, w, best[w], num_steps, SEEDS[1]) for w in WIDTHS}
    width = WIDTHS[0]
    longer = [
        [
            pretrained(params, width, best[width], n * num_steps, seed, NUM_VALIDATIONS)
            for seed in SEEDS
        ]
        for n in (1, 2, 4)
    ]
    print(
        f"Encoders of {NUM_LAYERS} layers, {entry.objective['name']}, {num_steps} steps of "
        f"{BATCH_ROWS * entry.training.max_tokens:,} tokens of corpus `{entry.corpus}`.\n"
        "Validation loss at the end, in nats; in bold the best rate of a width. Another seed\n"
        "(weights and order of data) at that rate says how far chance goes.\n\n"
        f"{sweep_table(sweep, best, again)}\n\n"
        "What the best rate of one width (row) costs another (column), in nats:\n\n"
        f"{cost_table(sweep, best)}\n\n"
        f"The end of the curve at d_model {width} and rate {best[width]:g}, mean of {len(SEEDS)} "
        "seeds: the slope in nats per\ndoubling over the last half of a run's steps, and what "
        f"twice the steps changed, with a\nschedule of their own.\n\n{length_table(longer)}\n\n"
        f"In all {time.process_time() / 60:.0f} minutes of one core."
    )


def pretrained(
    params: Params, width: int, rate: float, num_steps: int, seed: int, num_validations: int = 1
) -> Ended:
    device = resolve(params.compute, threads=1)
    entry = reference(params)
    sizes = {"d_model": width, "num_layers": NUM_LAYERS, "d_ff": 4 * width}
    architecture = entry.architecture | sizes | {"num_heads": width // HEAD_DIM}
    rows = {"batch_rows": BATCH_ROWS, "micro_batch_rows": BATCH_ROWS}
    training = entry.training.model_copy(update=rows)
    changes = {"architecture": architecture, "seeds": [seed], "training": training}
    model = entry.model_copy(update=changes)
    begun = start(model, device, num_steps=num_steps)
    losses = dict[int, float]()
    about = f"{width} wide, {rate:g}, seed {seed}"
    try:
        for step in train(
            begun.model,
            begun.objective,
            begun.data,
            training.at(rate),
            num_steps=num_steps,
            seed=seed,
            device=device,
            description=about,
        ):
            if (
                step.step * num_validations // num_steps
                > (step.step - 1) * num_validations // num_steps
            ):
                losses[step.step] = begun.validation_loss()
    except Diverged:
        losses = {}
    ended = Ended(losses)
    print(f"{about}, {num_steps} steps: {ended.final:.3f}", file=sys.stderr, flush=True)
    return ended


Sweep = dict[tuple[int, float], Ended]


def sweep_table(sweep: Sweep, best: dict[int, float], again: dict[int, Ended]) -> str:
    def shown(width: int, rate: float) -> str:
        bold = "**" if rate == best[width] else ""
        return f"{bold}{sweep[width, rate].final:.3f}{bold}"

    rows = [
        {"d_model": str(w)}
        | {f"{r:g}": shown(w, r) for r in RATES}
        | {"best x d_model": f"{best[w] * w:.2f}"}
        | {"another seed": f"{again[w].final:.3f}"}
        for w in WIDTHS
    ]
    return pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)


def cost_table(sweep: Sweep, best: dict[int, float]) -> str:
    rows = [
        {"": f"{best[own]:g}, best at {own}"}
        | {str(w): f"{sweep[w, best[own]].final - sweep[w, best[w]].final:+.3f}" for w in WIDTHS}
        for own in WIDTHS
    ]
    return pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)


def length_table(longer: list[list[Ended]]) -> str:
    finals = [statistics.fmean(one.final for one in runs) for runs in longer]
    changes = [f"{after - before:+.3f}" for before, after in pairwise(finals)]
    rows = [
        {
            "steps": str(max(runs[0].losses)),
            "loss": f"{final:.3f}",
            "slope at the end": f"{mean(slope_at_end(one.losses) for one in runs):+.3f}",
            "twice the steps": change,
        }
        for runs, final, change in zip(longer, finals, [*changes, ""], strict=True)
    ]
    return pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)


def mean(values: Iterable[float | None]) -> float:
    return statistics.fmean(value for value in values if value is not None)


if __name__ == "__main__":
    main()
