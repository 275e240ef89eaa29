"""MLflow's model registry: the best fine-tuned model of each task, under the alias ``best``.

A version belongs to the run of its trials. It has the files that predicting needs, as hard links to
those of the study where the disk allows that: DVC and the stages replace files and never write into
one. Of the versions that are not the best, the latest is kept.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.core.keys import RunKey
from stages.core.params import Params
from stages.evaluation.metrics import merit
from stages.evaluation.records import budget_order
from stages.kinds._kind import KINDS
from stages.tracking import store
from stages.tracking.records import RunRecord, rows

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALIAS = "best"
MAX_NAMES = 1_000  # of registered models in one answer of MLflow
EXAMPLE_ROWS = 2
SCORES = ("score", "score_low", "score_high")
ABOUT = ("run", "task", "method", "label_budget", "metric", "seeds")
NOTE = """\
The best of all fine-tuned runs of the study `{study}` on the task `{task}`, with the most labels; \
the weights are those of one trial. A classical baseline may be better: the version says.

    import mlflow, pandas
    model = mlflow.pyfunc.load_model("models:/{name}@best")
    model.predict(pandas.DataFrame(...))

The answer has the columns that `python -m stages.commands.predict` writes. The model runs the \
code of the project, which is in no package index: in the project's folder, or with it on \
PYTHONPATH, and with the packages of its requirements.lock."""


def register(
    client: "MlflowClient",
    run_ids: Mapping[str, str],
    params: Params,
    records: Sequence[RunRecord],
    loader: str,
) -> None:
    """Registers the best model of each task and gives it the alias.

    ``run_ids`` are MLflow's, by the names of the records; ``loader`` is the module that
    ``mlflow.pyfunc`` loads models with.
    """
    ours = f"tags.study = '{params.study}'"
    models = client.search_registered_models(ours, max_results=MAX_NAMES)
    names = {model.name for model in models}
    for task in params.tasks:
        name = f"{params.study}-{task}"  # no name of a study has a dash
        best = best_cell(params, records, task)
        if best and (name in names or _files(best)):
            if name not in names:
                note = NOTE.format(study=params.study, task=task, name=name)
                client.create_registered_model(name, {"study": params.study, "task": task}, note)
            _update(client, name, run_ids[best.name], best, loader)
        names.discard(name)
    for name in names:  # of tasks that params.yaml no longer lists
        client.delete_registered_model_alias(name, ALIAS)


def best_cell(params: Params, records: Sequence[RunRecord], task: str) -> RunRecord | None:
    """The run and method with the best mean at the most labels; None if the report has not seen
    all trials of the task."""
    cells = [
        record
        for record in records
        if record.kind == "trials"
        and record.tags["task"] == task
        and record.tags["run"] in params.runs
    ]
    if not cells or any("seeds" not in cell.tags for cell in cells):
        return None
    most = max((cell.tags["label_budget"] for cell in cells), key=budget_order)
    rivals = [cell for cell in cells if cell.tags["label_budget"] == most]
    return max(rivals, key=lambda cell: merit(cell.tags["metric"], _scores(cell)["score"]))


def _update(client: "MlflowClient", name: str, run_id: str, best: RunRecord, loader: str) -> None:
    """Gives the version of a run the alias, and creates it if it does not exist."""
    files = _files(best)
    versions = client.search_model_versions(f"name = '{name}'")
    own = next((version for version in versions if version.run_id == run_id), None)
    if own is None and files:
        source = _save(client, name, run_id, best, files, loader)
        tags, note = _tags(best, files[0]), _verdict(best.tags)
        own = client.create_model_version(name, source, run_id, tags=tags, description=note)
    if own is None:  # no weights were kept: another version would be taken for the best
        client.delete_registered_model_alias(name, ALIAS)
        return
    client.set_registered_model_alias(name, ALIAS, str(own.version))
    others = [version for version in versions if version.run_id != run_id]
    for version in sorted(others, key=lambda version: -int(version.version))[1:]:
        client.delete_model_version(name, str(version.version))
        shutil.rmtree(_folder(name, version.run_id), ignore_errors=True)


def _files(best: RunRecord) -> list[Path]:
    """Returns the files that predicting needs: first the weights of the trial with the lowest
    seeds, then the others; empty if some do not exist."""
    task, tags = best.tags["task"], best.tags
    folder = paths.FINETUNED / task / tags["run"] / "weights"
    kept = sorted(folder.glob(f"{tags['method']}-{tags['label_budget']}-*.safetensors"), key=_seeds)
    examples = [paths.examples(task) / name for name in ("task.json", "train.jsonl")]
    if not kept or not all(path.exists() for path in examples):
        return []
    checkpoint = paths.pretrained(RunKey(tags["run"], _seeds(kept[0])[0]))
    if not checkpoint.is_dir():
        return []
    return [kept[0], *sorted(path for path in checkpoint.rglob("*") if path.is_file()), *examples]


def _seeds(weights: Path) -> tuple[int, int]:
    """Returns the pretraining seed and the fine-tuning seed, with which the name of a kept trial
    ends."""
    *_, pretrain_seed, finetune_seed = weights.stem.split("-")
    return int(pretrain_seed), int(finetune_seed)


def _scores(cell: RunRecord) -> dict[str, float]:
    return {key: value for key, value, _ in cell.points if key in SCORES}


def _tags(best: RunRecord, weights: Path) -> dict[str, str]:
    """Returns the tags of a version: its score with the interval, and the seeds of its weights."""
    seeds = dict(zip(("pretrain_seed", "finetune_seed"), map(str, _seeds(weights)), strict=True))
    scores = {key: f"{value:.6g}" for key, value in _scores(best).items()}
    return {key: best.tags[key] for key in ABOUT} | seeds | scores


def _verdict(tags: Mapping[str, str]) -> str:
    """The sentences of the report on a task, which may say that a baseline is better."""
    return "\n\n".join(
        f"The report: {row['use']} {row['against']} {row['runs']}"
        for row in rows(paths.REPORTS / "answer.csv")
        if (row["task"], row["label_budget"]) == (tags["task"], tags["label_budget"])
    )


def _folder(name: str, run_id: str) -> Path:
    return store.ARTIFACTS / "registry" / name / run_id


def _save(
    client: "MlflowClient",
    name: str,
    run_id: str,
    best: RunRecord,
    files: Sequence[Path],
    loader: str,
) -> str:
    """Saves the model with its files and returns its address."""
    if store.artifacts() is None:
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder, "model"), best, files, loader)
            client.log_artifacts(run_id, folder)
        return f"{client.get_run(run_id).info.artifact_uri}/model"
    folder = _folder(name, run_id)
    shutil.rmtree(folder, ignore_errors=True)  # of an interruption
    _write(folder, best, files, loader)
    return folder.resolve().as_uri()


def _write(folder: Path, best: RunRecord, files: Sequence[Path], loader: str) -> None:
    """Writes a model of MLflow, with the study's files in their places."""
    import mlflow.pyfunc
    import pandas as pd

    examples = paths.examples(best.tags["task"])
    kind = KINDS[read_json(examples / "task.json")["kind"]]
    some = [kind.inputs_of(row) for row in read_jsonl(examples / "test.jsonl")[:EXAMPLE_ROWS]]
    mlflow.pyfunc.save_model(
        str(folder),
        loader_module=loader,
        input_example=pd.DataFrame(some),
        pip_requirements=[],  # without it, MLflow loads the model to find out
    )
    for path in files:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path.resolve(), place)
        except OSError:  # another disk
            shutil.copyfile(path, place)
