"""The folder of an MLflow model: the project's code, and the study's files that a kept trial needs,
at their paths in the study."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stages.baselines import _kept
from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.components import STAGES
from stages.core.keys import CellKey, RunKey
from stages.evaluation.records import CLASSICAL
from stages.kinds._cells import Row
from stages.kinds._kind import KINDS, Kind

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

EXAMPLE_ROWS = 2


def files_of(cell: CellKey) -> list[Path]:
    """Returns the files that prediction with a cell needs: first the cell's kept trial with the
    lowest seeds (a record or weights), then the other files. Empty if a file is missing."""
    is_baseline = cell.method == CLASSICAL
    if is_baseline:
        folder = paths.BASELINES / cell.task / _kept.KEPT
        kept = folder.glob(f"{cell.run}-{cell.label_budget}-*.json")
    else:
        folder = paths.FINETUNED / cell.task / cell.run / "weights"
        kept = folder.glob(f"{cell.method}-{cell.label_budget}-*.safetensors")
    first = min(kept, key=seeds_of, default=None)
    needed = _kept.FILES if is_baseline else ("task.json", "train.jsonl")
    examples = [paths.examples(cell.task) / name for name in needed]
    if first is None or not all(path.exists() for path in examples):
        return []
    if is_baseline:
        return [first, *examples]
    checkpoint = paths.pretrained(RunKey(cell.run, seeds_of(first)[0]))
    if not checkpoint.is_dir():
        return []
    return [first, *sorted(path for path in checkpoint.rglob("*") if path.is_file()), *examples]


def seeds_of(trial: Path) -> tuple[int, int]:
    """Returns the pretraining seed and the fine-tuning seed from a kept trial's file name."""
    *_, pretrain_seed, finetune_seed = trial.stem.split("-")
    return int(pretrain_seed), int(finetune_seed)


def link(source: Path, place: Path) -> None:
    """Makes a hard link, or a copy if ``place`` is on another disk."""
    try:
        os.link(source, place)
    except OSError:
        shutil.copyfile(source, place)


def write_model(
    folder: Path,
    task: str,
    files: Sequence[Path],
    loader: str,
    *,
    put: Callable[[Path, Path], object] = link,
) -> None:
    """Writes a model that ``mlflow.pyfunc`` loads with the module ``loader``. ``put`` brings a file
    of the study to its place in the folder."""
    import mlflow.pyfunc
    import pandas as pd

    examples = paths.examples(task)
    kind = KINDS[read_json(examples / "task.json")["kind"]]
    some = [kind.inputs_of(row) for row in read_jsonl(examples / "test.jsonl")[:EXAMPLE_ROWS]]
    is_baseline = paths.BASELINES in files[0].parents
    mlflow.pyfunc.save_model(
        str(folder),
        loader_module=loader,
        code_paths=[str(STAGES)],
        input_example=pd.DataFrame(some),
        signature=_signature(kind, some, read_jsonl(examples / "train.jsonl"), is_baseline),
        pip_requirements=[],  # by default MLflow would load the model to find them
    )
    for path in files:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        put(path.resolve(), place)


def _signature(
    kind: Kind, inputs: Sequence[Json], labelled: Sequence[Row], is_baseline: bool
) -> "ModelSignature":
    """Returns the input and output columns of a model. The output columns are inferred from
    labelled rows, so that no model is loaded."""
    import pandas as pd
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Map

    answers = [kind.predicted_columns(row, kind.answer(row)) for row in labelled[:EXAMPLE_ROWS]]
    known = infer_signature(pd.DataFrame(inputs), pd.DataFrame(answers))
    sure = (
        ColSpec(DataType.double, "probability", required=False)
        if is_baseline
        else ColSpec(Map(DataType.double), "scores", required=False)
    )
    return ModelSignature(known.inputs, Schema([*known.outputs.inputs, sure]))
