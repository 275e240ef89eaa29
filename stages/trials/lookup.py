"""Finding a kept trial of a run and a task by its method, label budget and seed."""

from dataclasses import dataclass
from pathlib import Path

from stages.core import paths
from stages.core.components import unknown
from stages.core.params import Params, load
from stages.evaluation import records
from stages.trials.kept import KeptTrial, file_name, read, setup_of
from stages.trials.setup import TrialSetup


@dataclass(frozen=True)
class KeptFile:
    """The file of a kept trial, by the parts of its name."""

    task: str
    method: str
    label_budget: str
    seed: str

    def path(self, run: str) -> Path:
        name = file_name(self.method, self.label_budget, self.seed)
        return paths.FINETUNED / self.task / run / "weights" / name


def find_trial(
    run: str, task: str, method: str | None, label_budget: str | None, seed: str | None
) -> KeptFile:
    """The one kept trial of this run and task with the given method, label budget and seed.

    Raises ValueError if there is none, or more than one.
    """
    folder = paths.FINETUNED / task / run / "weights"
    if not folder.is_dir():
        raise ValueError(_why_missing(run, task))
    kept = [
        KeptFile(task, *path.stem.split("-", 2)) for path in sorted(folder.glob("*.safetensors"))
    ]
    found = [
        trial
        for trial in kept
        if method in (None, trial.method)
        and label_budget in (None, trial.label_budget)
        and seed in (None, trial.seed)
    ]
    if len(found) == 1:
        return found[0]
    if not kept:
        trials = folder.with_name("trials.csv")
        if trials.is_file() and not records.read(trials, records.TrialRecord):
            raise ValueError(
                f"{trials}: {run} was not fine-tuned on {task}: no method of the study fits, or "
                "finetune.screen leaves it out"
            )
        raise ValueError(f"{folder}: no trial is kept; set finetune.keep_weights and rerun")
    listed = "; ".join(
        f"--method {t.method} --label-budget {t.label_budget} --seed {t.seed}"
        for t in found or kept
    )
    if found:
        raise ValueError(f"several kept trials match: {listed}")
    raise ValueError(
        f"no kept trial matches; kept are: {listed}; finetune.keep_weights sets which seeds are "
        "kept: none, first_seed or all"
    )


def _why_missing(run: str, task: str) -> str:
    params = _params()
    if params is not None and task not in params.tasks:
        return f"tasks: {unknown(task, params.tasks)}"
    if params is not None and run not in params.pretrain:
        return f"pretrain: {unknown(run, params.pretrain)}"
    folder = paths.FINETUNED / task / run
    return f"{folder}: no such folder; `dvc repro finetune@{task}` writes it"


def _params() -> Params | None:
    """None if params.yaml cannot be read: a kept trial can be used without it."""
    try:
        return load()
    except ValueError:
        return None


def opened(run: str, trial: KeptFile) -> tuple[KeptTrial, TrialSetup]:
    """The record of a kept trial, with the run and the task that it belongs to.

    Raises ValueError if one of the two has changed since.
    """
    path = trial.path(run)
    kept = read(path)
    return kept, setup_of(kept, path)
