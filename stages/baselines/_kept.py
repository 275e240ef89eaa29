"""Kept trials of baselines: records from which the baselines are fitted again.

Fitting takes seconds, and nothing in it is random but the draw of the labelled rows. So no model is
stored. Code that uses a kept trial fits the baseline again to the same rows, and checks that it
gives the same answers to the validation rows as in the trial.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stages.baselines._baseline import BASELINES, Baseline, Score
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, sha256, write_json
from stages.core.components import Settings
from stages.core.keys import TrialKey
from stages.evaluation.records import TrialRow
from stages.tasks._cells import Row
from stages.tasks._kind import Kind
from stages.tasks._labelled_rows import labelled_rows, of_draw
from stages.tasks._task import TASKS

KEPT = "kept"  # the folder of the records
FILES = ("task.json", "train.jsonl", "validation.jsonl")  # files that a baseline is fitted to


@dataclass(frozen=True)
class Examples:
    """The data that a baseline is fitted to: the labelled rows of a task, and its metric."""

    kind: Kind
    metric: str
    train: Sequence[Row]
    validation: Sequence[Row]
    labels: Sequence[str]
    fingerprint: str  # of FILES

    @classmethod
    def read(cls, folder: Path) -> "Examples":
        about = read_json(folder / FILES[0])
        train, validation = (read_jsonl(folder / name) for name in FILES[1:])
        fingerprint = sha256(*(folder / name for name in FILES))
        kind, labels = TASKS[about["kind"]], about["labels"]
        return cls(kind, about["metric"], train, validation, labels, fingerprint)

    @property
    def score(self) -> Score:
        return Score(self.kind, self.metric, self.labels)


@dataclass(frozen=True, kw_only=True)
class KeptBaseline(TrialRow):
    """The record of a kept trial of a baseline."""

    component: Settings  # the baseline's entry in params.yaml
    examples: str  # fingerprint of FILES
    answers: str  # fingerprint of the answers to the validation rows


def fit(component: Settings, key: TrialKey, examples: Examples) -> Baseline:
    """Returns the baseline of a trial, fitted to its labelled rows."""
    baseline = BASELINES.build(component, where=f"baselines.{key.run}")
    rows = labelled_rows(
        examples.train,
        key.label_budget,
        examples.kind,
        pretrain_seed=key.pretrain_seed,
        finetune_seed=key.finetune_seed,
        task=key.task,
    )
    baseline.fit(rows, of_draw(examples.validation, key.finetune_seed), examples.score)
    return baseline


def path_of(key: TrialKey) -> Path:
    """Returns the path of a trial's record. The file exists if the trial is kept."""
    name = f"{key.run}-{key.label_budget}-{key.pretrain_seed}-{key.finetune_seed}.json"
    return paths.BASELINES / key.task / KEPT / name


def save(
    baseline: Baseline, component: Settings, key: TrialKey, examples: Examples, path: Path
) -> None:
    """Writes the record of a fitted baseline."""
    answers = _fingerprint(baseline, examples.validation)
    kept = KeptBaseline(
        **key._asdict(), component=component, examples=examples.fingerprint, answers=answers
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(kept))


def read(path: Path) -> KeptBaseline:
    """Returns the record of a kept trial; raises ValueError if there is none."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; run `dvc repro`")
    return KeptBaseline(**read_json(path))


def refit(path: Path, folder: Path) -> tuple[Baseline, Kind]:
    """Returns the baseline of the record in ``path``, fitted to the task in ``folder``, and the
    kind of the task's rows.

    Raises ValueError if the task has changed since, or if the baseline answers differently, because
    its code or the version of a package has changed.
    """
    kept, examples = read(path), Examples.read(folder)
    is_same = examples.fingerprint == kept.examples
    baseline = fit(kept.component, kept.key, examples) if is_same else None
    if baseline is None or _fingerprint(baseline, examples.validation) != kept.answers:
        what = "the baseline answers differently" if is_same else f"{folder} has changed since"
        raise ValueError(f"{path}: {what}; run `dvc repro`")
    return baseline, examples.kind


def _fingerprint(baseline: Baseline, rows: Sequence[Row]) -> str:
    return hashlib.sha256(json.dumps(baseline.predict(rows)).encode()).hexdigest()
