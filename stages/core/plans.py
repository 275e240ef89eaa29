"""The plan of each stage: the settings that it uses and the hashes of the code that it runs.

The root stage writes one file for each stage of dvc.yaml, ``data/plans/STAGE/KEY.json``. A stage
depends on its plan and its input files, and reads nothing else. So DVC reruns exactly the stages
whose plan or inputs changed, be it by a value in params.yaml or by a default in the code.
"""

from pathlib import Path
from typing import Any, ClassVar, TypeVar

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.components import unknown
from stages.core.params import (
    NONE,
    AnyTokenizer,
    Component,
    Compute,
    Corpus,
    Distributed,
    Finetune,
    Name,
    NumberOrAll,
    PackagedCheckpoint,
    Params,
    Run,
    Strict,
    Task,
)

P = TypeVar("P", bound="Plan")


class Plan(Strict):
    is_shared: ClassVar[bool] = False
    """Whether a stage has one plan for all of its keys."""

    code: dict[str, str]
    """Hashes of the files below ``stages/`` that the stage runs, by their paths."""


class CorpusPlan(Plan):
    """The plan of ``prepare_corpus``."""

    corpus: Corpus
    packages: str
    """Hash of requirements.lock, since the texts may depend on the versions of packages."""
    decontaminated_against: dict[Name, Task]
    """Tasks whose test texts are removed from the corpus."""


class TaskPlan(Plan):
    """The plan of ``prepare_task``."""

    task: Task
    packages: str
    """Hash of requirements.lock."""


class CheckpointPlan(Plan):
    """The plan of ``fetch_checkpoint``."""

    checkpoint: PackagedCheckpoint
    revisions: dict[str, str]
    """Content hashes that runs and tokenizers state, by the paths of these settings."""


class TokenizerPlan(Plan):
    """The plan of ``train_tokenizer``."""

    tokenizer: AnyTokenizer


class EncodingPlan(Plan):
    """The plan of ``encode_corpus``."""

    corpus: Corpus
    tokenizer: AnyTokenizer


class TextsPlan(Plan):
    """The plan of ``measure_contamination`` and ``measure_likeness``, which compare a corpus with
    the texts of tasks."""

    is_shared = True
    tasks: dict[Name, Task]


class RunInputs(Strict):
    """Names of the entries in params.yaml whose files a run reads, or ``none``."""

    corpus: Name
    tokenizer: Name
    checkpoint: Name

    @property
    def folders(self) -> list[Path]:
        """The folders that the run reads. For a run without a tokenizer this includes the
        placeholder file ``data/tokenizers/none``."""
        folders = [paths.TOKENIZERS / self.tokenizer]
        if self.corpus != NONE:
            folders.append(paths.ENCODED / self.corpus / self.tokenizer)
        if self.checkpoint != NONE:
            folders.append(paths.CHECKPOINTS / self.checkpoint)
        return folders


class InputsPlan(Plan):
    """The plan of ``record_inputs``."""

    runs: dict[Name, RunInputs]
    tasks: list[Name]
    label_budgets: list[NumberOrAll]


class PretrainPlan(Plan):
    """The plan of ``pretrain``."""

    study: Name
    """Name of the experiment in MLflow."""
    run: Run
    """Run under the matched budget."""
    compute: Compute
    distributed: Distributed


class BaselinePlan(Plan):
    """The plan of ``fit_baseline``."""

    baselines: dict[Name, Component]
    """The baselines of the task; a setting ``path`` names the user's file for this task."""
    files: dict[str, str] = {}
    """Hashes of the files that ``path`` settings of baselines name, by their paths."""
    reading: dict[str, Any] = {}
    """Settings with which the task's source reads cells, if ``files`` is not empty."""
    label_budgets: list[NumberOrAll]
    pretrain_seeds: list[int]
    """Seeds of all runs. With the fine-tuning seeds, they determine the labelled rows."""
    finetune_seeds: list[int]


class FinetunePlan(Plan):
    """The plan of ``finetune``."""

    runs: dict[Name, Run]
    """Runs under the matched budget."""
    finetune: Finetune
    compute: Compute


class EvaluationPlan(Plan):
    """The plan of ``evaluate``."""

    runs: list[Name]


class ReportPlan(Plan):
    """The plan of ``report``."""

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
        planned = sorted(
            file.relative_to(paths.PLANS / stage).with_suffix("").as_posix()
            for file in (paths.PLANS / stage).rglob("*.json")
        )
        if not planned:
            raise ValueError(f"{path}: missing; run `dvc repro`")
        raise ValueError(f"{stage}: {unknown('/'.join(keys), planned)}")
    return kind.model_validate(read_json(path))


def without_texts(entries: dict[str, Any]) -> dict[str, Any]:
    """Returns entries without ``about``, a text for the report on which no result depends."""
    return {key: entry.model_copy(update={"about": None}) for key, entry in entries.items()}
