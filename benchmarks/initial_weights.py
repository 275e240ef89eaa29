"""Does attention that is local before training (`model.locality`) lower the loss of pretraining,
and for which objectives?

Trains the default study's models with each objective, from local attention (11, the default of
`model.locality`) and from the usual weights (0). Runs of the same objective and seed have the same
data and the same initial weights except the biases of queries and keys. Validates before the first
step and after each quarter of the steps.

Run by hand after the stages resolve, prepare_corpus@all, train_tokenizer and
encode_corpus@all-unigram of the default study; one thread. Prints the Markdown of
initial_weights.md up to its conclusion, which is written by hand. Losses go to --losses as soon as
they are known, and a run whose losses are in that file is not trained again.

    python benchmarks/initial_weights.py
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pandas as pd
from scipy.stats import t as student

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pretraining_data import reference, start
from stages.core.params import Params, Run
from stages.core.study_file import load
from stages.training.device import resolve
from stages.training.loop import Diverged, train

USUAL, LOCAL = 0.0, 11.0  # values of model.locality
CROSSED, OTHER_RATES = ("mlm", "causal"), (2e-3, 5e-3)
NUM_VALIDATIONS = 4
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Kind:
    """An objective with its settings, the run of params.yaml whose model and training it takes, and
    the number of seeds."""

    like: str
    num_seeds: int
    settings: dict[str, float] = field(default_factory=dict)


OBJECTIVES = {
    "mlm": Kind("encoder_mlm", 3, {"mask_prob": 0.3}),
    "causal": Kind("decoder_causal", 3),
    "denoising": Kind("encoder_decoder_denoising", 2, {"infilling": 0.3, "mean_span_length": 3.0}),
    "span_corruption": Kind("encoder_decoder_denoising", 2),
    "span_mlm": Kind("encoder_mlm", 2, {"mask_prob": 0.3}),
    "prefix_lm": Kind("decoder_causal", 2),
}
MEASURED = ("mlm", "causal", "denoising")  # in initial_weights.md; about 50 minutes of a busy core


@dataclass(frozen=True)
class Trial:
    """One pretraining of the benchmark."""

    objective: str
    locality: float
    lr: float
    seed: int


Losses = dict[Trial, dict[int, float]]  # validation loss by step; step 0 is before training


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--losses",
        type=Path,
        default=Path(__file__).with_suffix(".csv"),
        help="CSV of validation losses, read and extended (default: %(default)s)",
    )
    parser.add_argument(
        "--objectives",
        nargs="+",
        choices=OBJECTIVES,
        default=[*MEASURED],
        help=f"objectives to train that are not in the file (default: {' '.join(MEASURED)})",
    )
    options = parser.parse_args()
    params = load()
    losses = read(options.losses)
    for trial in trials(params, options.objectives):
        if trial not in losses:
            losses[trial] = pretrained(params, trial)
            write(options.losses, losses)
    print(page(params, losses))


# Trials ------------------------------------------------------------------------------------------


def trials(params: Params, objectives: list[str]) -> Iterator[Trial]:
    """Yields every objective with both initial weights, and those of CROSSED also at other learning
    rates, with one seed."""
    lr = reference(params).training.rates[0]
    for name in objectives:
        for seed, locality in product(range(1, OBJECTIVES[name].num_seeds + 1), (USUAL, LOCAL)):
            yield Trial(name, locality, lr, seed)
    crossed = [name for name in objectives if name in CROSSED]
    for name, other, locality in product(crossed, OTHER_RATES, (USUAL, LOCAL)):
        yield Trial(name, locality, other, 1)


def run_of(params: Params, trial: Trial) -> Run:
    kind = OBJECTIVES[trial.objective]
    entry = params.runs[kind.like]
    changed = {
        "model": entry.model | {"locality": trial.locality},
        "objective": {"name": trial.objective} | kind.settings,
        "seeds": [trial.seed],
    }
    return entry.model_copy(update=changed)


def pretrained(params: Params, trial: Trial) -> dict[int, float]:
    """Returns validation losses by step, which are infinite once the training has diverged."""
    device = resolve(params.compute, threads=1)
    run = run_of(params, trial)
    num_steps = run.training.num_steps
    begun = start(run, device, num_steps=num_steps)
    due = [num_steps * i // NUM_VALIDATIONS for i in range(1, NUM_VALIDATIONS + 1)]
    began = time.perf_counter()
    losses = {0: begun.validation_loss()}
    try:
        for step in train(
            begun.model,
            begun.objective,
            begun.data,
            run.training.at(trial.lr),
            num_steps=num_steps,
            seed=trial.seed,
            device=device,
        ):
            if step.step in due:
                losses[step.step] = begun.validation_loss()
    except Diverged:
        losses |= {step: float("inf") for step in due if step not in losses}
    seconds = time.perf_counter() - began
    print(f"{trial}: {losses[num_steps]:.3f} after {seconds:.0f} s", file=sys.stderr, flush=True)
    return losses


# The page ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contrast:
    """Losses from local attention less those from the usual weights, paired by seed."""

    usual: float
    local: float
    error: float  # standard error of the mean difference
    num_seeds: int

    @property
    def difference(self) -> float:
        return self.local - self.usual

    @property
    def half_width(self) -> float:
        return float(student.ppf((1 + CONFIDENCE) / 2, self.num_seeds - 1)) * self.error

    @property
    def verdict(self) -> str:
        if abs(self.difference) <= self.half_width:
            return "not shown"
        return "local is better" if self.difference < 0 else "usual is better"


def contrasted(losses: Losses, objective: str, lr: float, step: int) -> Contrast:
    local, usual = (by_seed(losses, objective, value, lr, step) for value in (LOCAL, USUAL))
    seeds = sorted(local.keys() & usual.keys())
    differences = [local[seed] - usual[seed] for seed in seeds]
    return Contrast(
        statistics.fmean(usual[seed] for seed in seeds),
        statistics.fmean(local[seed] for seed in seeds),
        statistics.stdev(differences) / len(seeds) ** 0.5,
        len(seeds),
    )


def by_seed(
    losses: Losses, objective: str, locality: float, lr: float, step: int
) -> dict[int, float]:
    return {
        trial.seed: by_step[step]
        for trial, by_step in losses.items()
        if (trial.objective, trial.locality, trial.lr) == (objective, locality, lr)
    }


def page(params: Params, losses: Losses) -> str:
    run = reference(params)
    training = run.training
    lr, steps = training.rates[0], [*next(iter(losses.values()))][1:]
    tokens = training.batch_rows * training.max_tokens
    objectives = [
        name for name in OBJECTIVES if len(by_seed(losses, name, LOCAL, lr, steps[-1])) > 1
    ]
    return f"""\
# Does attention that is local before training help pretraining?

`model.locality` gives queries and keys equal random biases, so that before training a token attends
mostly to itself and its neighbours; {LOCAL:g} is this project's default. With {USUAL:g} these
biases are 0, as in BERT and GPT-2: the usual weights.

Each run is {steps[-1]} steps of {tokens:,} tokens of corpus `{run.corpus}` with the models of the
default study, at learning rate {lr:g}. Losses are those of the validation split, in nats per
target; lower is better. Two runs of one objective and seed have the same data and the same weights
except the biases, so differences are paired by seed. Both begin with an output bias of the tokens'
log frequencies.

## At the end of training

{end_table(params, losses, objectives, lr, steps[-1])}

*Before* is the loss before the first step, about that of a model that knows only how frequent each
token is. *Interval* is a {CONFIDENCE:.0%} t interval over seeds, not corrected for several
comparisons; with two seeds it is 12.7 standard errors wide on each side. *Not shown*: the interval
contains 0.

## At each quarter of training

{LOCAL:g} less {USUAL:g}, mean over seeds ± standard error, and below it the two mean losses
({USUAL:g} / {LOCAL:g}).

{quarters_table(losses, objectives, lr, steps)}

## At other learning rates

The loss at the end, seed 1 alone.

{rates_table(losses, steps[-1])}"""


def end_table(params: Params, losses: Losses, objectives: list[str], lr: float, last: int) -> str:
    rows = []
    for name in objectives:
        contrast = contrasted(losses, name, lr, last)
        before = statistics.fmean(by_seed(losses, name, USUAL, lr, 0).values())
        rows.append(
            {
                "objective": name,
                "architecture": str(params.runs[OBJECTIVES[name].like].model["name"]),
                "seeds": str(contrast.num_seeds),
                "before": f"{before:.3f}",
                f"locality {USUAL:g}": f"{contrast.usual:.3f}",
                f"locality {LOCAL:g}": f"{contrast.local:.3f}",
                f"{LOCAL:g} less {USUAL:g}": f"{contrast.difference:+.3f}",
                "standard error": f"{contrast.error:.3f}",
                "interval": f"{contrast.difference - contrast.half_width:+.3f} to "
                f"{contrast.difference + contrast.half_width:+.3f}",
                "verdict": contrast.verdict,
            }
        )
    return table(rows)


def quarters_table(losses: Losses, objectives: list[str], lr: float, steps: list[int]) -> str:
    rows = []
    for name in objectives:
        contrasts = {step: contrasted(losses, name, lr, step) for step in steps}
        rows.append(
            {"objective": name}
            | {
                f"step {step}": f"{contrast.difference:+.3f} ± {contrast.error:.3f}"
                for step, contrast in contrasts.items()
            }
        )
        rows.append(
            {"objective": ""}
            | {
                f"step {step}": f"{contrast.usual:.3f} / {contrast.local:.3f}"
                for step, contrast in contrasts.items()
            }
        )
    return table(rows)


def rates_table(losses: Losses, last: int) -> str:
    """The last loss of seed 1 at each learning rate."""
    rows = []
    for name in CROSSED:
        for lr in sorted({trial.lr for trial in losses if trial.objective == name}):
            ends = [by_seed(losses, name, value, lr, last) for value in (USUAL, LOCAL)]
            if all(1 in by for by in ends):
                usual, local = (by[1] for by in ends)
                rows.append(
                    {
                        "objective": name,
                        "learning rate": f"{lr:g}",
                        f"locality {USUAL:g}": f"{usual:.3f}",
                        f"locality {LOCAL:g}": f"{local:.3f}",
                        f"{LOCAL:g} less {USUAL:g}": f"{local - usual:+.3f}",
                    }
                )
    return table(rows)


def table(rows: list[dict[str, str]]) -> str:
    return pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)


# The file of losses ------------------------------------------------------------------------------


def read(path: Path) -> Losses:
    losses = Losses()
    if path.exists():
        for row in pd.read_csv(path).itertuples(index=False):
            trial = Trial(row.objective, row.locality, row.lr, row.seed)
            losses.setdefault(trial, {})[row.step] = row.loss
    return losses


def write(path: Path, losses: Losses) -> None:
    rows = [
        vars(trial) | {"step": step, "loss": round(loss, 5)}
        for trial, by_step in losses.items()
        for step, loss in by_step.items()
    ]
    pd.DataFrame(rows).to_csv(path, index=False)


if __name__ == "__main__":
    main()
