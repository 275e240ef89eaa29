"""Kept trials of baselines: records from which the baselines are fitted again.

Fitting takes seconds, and nothing in it is random but the draw of the labelled rows. So no model is
stored. Code that uses a kept trial fits the baseline again to the same rows, and checks that it
gives the same answers to the validation rows as in the trial.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.baselines._baseline import BASELINES, Baseline, Score
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, sha256, write_json
from stages.core.components import Settings
from stages.core.keys import TrialKey
from stages.tasks._cells import Row
from stages.tasks._labelled_rows import labelled_rows, of_draw
from stages.tasks._task import TASKS, Task

FILES = ("task.json", "train.jsonl", "validation.jsonl")  # files that a baseline is fitted to


@dataclass(frozen=True)
class Examples:
    """The data that a baseline is fitted to: the labelled rows of a task, and their score."""

    train: Sequence[Row]
    validation: Sequence[Row]
    score: Score
    fingerprint: str  # of FILES

    @classmethod
    def read(cls, folder: Path) -> "Examples":
        about, train, validation = (folder / name for name in FILES)
        task = read_json(about)
        score = Score(TASKS[task["kind"]], task["metric"], task["labels"])
        fingerprint = sha256(about, train, validation)
        return cls(read_jsonl(train), read_jsonl(validation), score, fingerprint)


def fit(component: Settings, key: TrialKey, examples: Examples) -> Baseline:
    """Returns the baseline of a trial, fitted to its labelled rows."""
    baseline = BASELINES.build(component, where=f"baselines.{key.model}")
    rows = labelled_rows(
        examples.train,
        key.label_budget,
        examples.score.kind,
        pretrain_seed=key.pretrain_seed,
        finetune_seed=key.finetune_seed,
        task=key.task,
    )
    baseline.fit(rows, of_draw(examples.validation, key.finetune_seed), examples.score)
    return baseline


def path_of(key: TrialKey) -> Path:
    """Returns the path of a trial's record. The file exists if the trial is kept."""
    name = f"{key.model}-{key.label_budget}-{key.pretrain_seed}-{key.finetune_seed}.json"
    return paths.BASELINES / key.task / "kept" / name


def save(
    baseline: Baseline, component: Settings, key: TrialKey, examples: Examples, path: Path
) -> None:
    """Writes the record of a fitted baseline: its trial, its entry in params.yaml, and the
    fingerprints of its rows and of its answers to the validation rows."""
    about = {"component": dict(component), "examples": examples.fingerprint}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, key._asdict() | about | {"answers": _answers(baseline, examples)})


def refit(path: Path, folder: Path) -> tuple[Baseline, Task]:
    """Returns the baseline of the record in ``path``, fitted to the task in ``folder``, and the
    kind of the task's rows.

    Raises ValueError if there is no record, if the task has changed since, or if the baseline
    answers differently, because its code or the version of a package has changed.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; run `dvc repro`")
    kept, examples = read_json(path), Examples.read(folder)
    if examples.fingerprint != kept["examples"]:
        raise ValueError(f"{path}: {folder} has changed since; run `dvc repro`")
    key = TrialKey(*(kept[name] for name in TrialKey._fields))
    baseline = fit(kept["component"], key, examples)
    if _answers(baseline, examples) != kept["answers"]:
        raise ValueError(f"{path}: the baseline answers differently; run `dvc repro`")
    return baseline, examples.score.kind


def _answers(baseline: Baseline, examples: Examples) -> str:
    """Returns a fingerprint of the answers to the validation rows."""
    answers = json.dumps(baseline.predict(examples.validation))
    return hashlib.sha256(answers.encode()).hexdigest()
