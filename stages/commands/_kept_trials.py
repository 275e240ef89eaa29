"""Which trials are kept, and the one that is meant."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from stages.core import paths
from stages.core.components import unknown
from stages.core.params import Params, load
from stages.trials.kept import KeptTrial, file_name, read, setup_of
from stages.trials.setup import TrialSetup


@dataclass(frozen=True)
class KeptFile:
    """A trial that is kept, by the name of its file."""

    task: str
    method: str
    label_budget: str
    seed: str

    def path(self, run: str) -> Path:
        name = file_name(self.method, self.label_budget, self.seed)
        return paths.FINETUNED / self.task / run / "weights" / name


def add_options(parser: ArgumentParser) -> None:
    """Those that tell the trials of one run and task apart."""
    parser.add_argument("--method", help="of the trial, if several are kept")
    parser.add_argument("--label-budget", help="of the trial: a number, or all")
    parser.add_argument("--seed", help="of the trial's fine-tuning")


def chosen(options: Namespace) -> tuple[str | None, str | None, str | None]:
    return options.method, options.label_budget, options.seed


def find_trial(
    run: str, task: str, method: str | None, label_budget: str | None, seed: str | None
) -> KeptFile:
    """The one kept trial of this run and task that fits what is given.

    Raises ValueError if there is none, or more than one.
    """
    folder = paths.FINETUNED / task / run / "weights"
    if not folder.is_dir():
        raise ValueError(_why_missing(run, task))
    kept = [
        KeptFile(task, *path.stem.split("-", 2)) for path in sorted(folder.glob("*.safetensors"))
    ]
    fitting = [
        trial
        for trial in kept
        if method in (None, trial.method)
        and label_budget in (None, trial.label_budget)
        and seed in (None, trial.seed)
    ]
    if len(fitting) == 1:
        return fitting[0]
    if not kept:
        raise ValueError(f"{folder}: no trial is kept; set finetune.keep_weights and rerun")
    listed = "; ".join(
        f"--method {t.method} --label-budget {t.label_budget} --seed {t.seed}"
        for t in fitting or kept
    )
    how_many = "several" if fitting else "none"
    message = f"{how_many} of the trials that are kept fit this; there are {listed}"
    if not fitting:
        message += "; finetune.keep_weights says of which seeds: none, first_seed or all"
    raise ValueError(message)


def _why_missing(run: str, task: str) -> str:
    params = _params()
    if params is not None and task not in params.tasks:
        return f"tasks: {unknown(task, params.tasks)}"
    if params is not None and run not in params.pretrain:
        return f"pretrain: {unknown(run, params.pretrain)}"
    folder = paths.FINETUNED / task / run
    return f"{folder}: no such folder; `dvc repro finetune@{run}-{task}` writes it"


def _params() -> Params | None:
    """None where they cannot be read: what was trained can be used all the same."""
    try:
        return load()
    except ValueError:
        return None


def opened(run: str, trial: KeptFile) -> tuple[KeptTrial, TrialSetup]:
    """What is known of a kept trial, and the run and the task that it belongs to.

    Raises ValueError if one of the two has changed since.
    """
    path = trial.path(run)
    kept = read(path)
    return kept, setup_of(kept, path)
