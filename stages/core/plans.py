"""The plan of each stage, ``data/plans/STAGE/KEY.json``: its settings and the hashes of its code.

A stage reads its plan and its input files alone, so DVC reruns exactly the stages whose plan or
inputs changed, be it by params.yaml or by a default in the code.
"""

from pathlib import Path
from typing import Any, ClassVar, TypeVar

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.components import unknown
from stages.core.params import (
    AnyTokenizer,
    Component,
    Compute,
    Corpus,
    Distributed,
    Finetune,
    Model,
    Name,
    NumberOrAll,
    PackagedCheckpoint,
    Params,
    Strict,
    TaskEntry,
)


class Plan(Strict):
    is_shared: ClassVar[bool] = False
    """Whether a stage has one plan for all of its keys."""

    code: dict[str, str]
    """Hashes of the files below ``stages/`` that the stage runs, by their paths."""


P = TypeVar("P", bound=Plan)


class CorpusPlan(Plan):
    corpus: Corpus
    packages: str
    """Hash of requirements.lock, since the texts may depend on the versions of packages."""
    decontaminated_against: dict[Name, TaskEntry]
    """Tasks whose test texts are removed from the corpus."""


class TaskPlan(Plan):
    task: TaskEntry
    packages: str


class CheckpointPlan(Plan):
    checkpoint: PackagedCheckpoint
    revisions: dict[str, str]
    """Content hashes that models and tokenizers state, by the paths of these settings."""


class TokenizerPlan(Plan):
    tokenizer: AnyTokenizer


class EncodingPlan(Plan):
    corpus: Corpus
    tokenizer: AnyTokenizer


class TextsPlan(Plan):
    """The plan of the stages that compare a corpus with the texts of tasks."""

    is_shared = True
    tasks: dict[Name, TaskEntry]


class InputsPlan(Plan):
    inputs: dict[Name, list[str]]
    """Files and folders that each corpus or model reads."""
    tasks: list[Name]
    label_budgets: list[NumberOrAll]


class PretrainPlan(Plan):
    study: Name
    """Name of the experiment in MLflow."""
    entry: Model
    """Model under the matched budget."""
    parent: "PretrainPlan | None" = None
    """Plan of the model's parent, with the seeds of the model."""
    compute: Compute
    distributed: Distributed


class BaselinePlan(Plan):
    baselines: dict[Name, Component]
    """The baselines of the task; a setting ``path`` names the user's file for this task."""
    files: dict[str, str] = {}
    """Hashes of the files that ``path`` settings of baselines name, by their paths."""
    reading: dict[str, Any] = {}
    """Settings with which the task's source reads cells, if ``files`` is not empty."""
    label_budgets: list[NumberOrAll]
    pretrain_seeds: list[int]
    """Seeds of all models. With the fine-tuning seeds, they determine the labelled rows."""
    finetune_seeds: list[int]


class FinetunePlan(Plan):
    models: dict[Name, Model]
    """Models under the matched budget."""
    finetune: Finetune
    compute: Compute


class EvaluationPlan(Plan):
    models: list[Name]


class ReportPlan(Plan):
    params: Params
    """The study under the matched budget."""


def path_of(stage: str, *keys: str) -> Path:
    """Returns the file with the plan of a stage: ``path_of("pretrain", "encoder_mlm")``."""
    return paths.PLANS.joinpath(stage, *keys).with_suffix(".json")


def read_plan(kind: type[P], stage: str, *keys: str) -> P:
    """Reads the plan of a stage.

    Raises ValueError with the valid keys if the root stage has not written this plan.
    """
    path = path_of(stage, *keys)
    if not path.is_file():
        planned = [file.stem for file in path.parent.glob("*.json")]
        fault = unknown(path.stem, sorted(planned)) if planned else "missing; run `dvc repro`"
        raise ValueError(f"{stage}: {fault}")
    return kind.model_validate(read_json(path))


def without_texts(entries: dict[str, Any]) -> dict[str, Any]:
    """Returns entries without ``about`` and ``label``, which only the report shows."""
    texts = ("about", "label")
    return {
        key: entry.model_copy(update={text: None for text in texts if hasattr(entry, text)})
        for key, entry in entries.items()
    }
