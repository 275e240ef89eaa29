"""Writes a baseline as a model of MLflow, which predicts without the project."""

import shutil
from pathlib import Path

from stages.baselines import _kept
from stages.core import paths
from stages.core.artifacts import replacing, write_json
from stages.core.components import STAGES
from stages.core.keys import TrialKey
from stages.exporting import mlflow_model
from stages.exporting.card import model_card
from stages.exporting.export import RECORD, check_place
from stages.tracking.model_folder import write_model

LOAD = """\
import mlflow, pandas

model = mlflow.pyfunc.load_model("FOLDER")
model.predict(pandas.DataFrame(...))"""
NOTE = """\
`{record}` has its settings. Loading fits it again, in seconds, to the rows in `{examples}`;
`code/` has the code. It needs the packages of `requirements.lock`."""


def export_baseline(trial: TrialKey, out: Path, *, force: bool = False) -> str:
    """Writes the folder of a trial of a baseline; returns where it is and how to use it.

    Raises ValueError if the baseline can no longer be fitted as it was, or if ``out`` must not be
    written (``check_place``).
    """
    check_place(out, force=force)
    record, examples = _kept.path_of(trial), paths.examples(trial.task)
    _kept.refit(record, examples)
    files = [record, *(examples / name for name in _kept.FILES)]
    with replacing(out) as folder:
        write_model(folder, trial.task, files, mlflow_model.__name__, put=shutil.copyfile)
        shutil.copyfile(STAGES.parent / "requirements.lock", folder / "requirements.lock")
        about = trial._asdict() | {"record": str(record), "examples": str(examples)}
        card = model_card(
            trial, None, load=LOAD, note=NOTE.format(record=record, examples=examples)
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
        write_json(folder / RECORD, about)
    return (
        f"{trial.run}, fitted to {trial.task}, is in {out} as a model of MLflow with its code:\n"
        f"  model = mlflow.pyfunc.load_model({str(out)!r})\n"
        "In the project, `python -m stages.commands.predict` needs no export."
    )
