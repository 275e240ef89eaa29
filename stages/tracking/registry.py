"""MLflow's model registry: the fine-tuned run or baseline that the report puts first on each task,
under the alias ``best``.

A version belongs to the run for which it was made. A later run with equal files and scores gets no
version of its own: the earlier version keeps the id of the superseded run. The files of a version
are hard links to the study's files where the disk allows links, which is safe: DVC and the stages
replace files and never write into one. Only the best version and the latest other version are kept.
Versions whose files are elsewhere, because the project was moved, are deleted.
"""

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stages.core import paths
from stages.core.artifacts import sha256
from stages.core.keys import CellKey, TrialKey
from stages.evaluation.metrics import scale_of
from stages.evaluation.records import read_texts
from stages.tracking import store
from stages.tracking.model_folder import files_of, seeds_of, write_model
from stages.tracking.notes import seeds_in_words
from stages.tracking.records import DIGEST, RunRecord, trial_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALIAS = "best"
MAX_NAMES = 1_000  # of registered models in one answer of MLflow
SCORES = ("score", "score_low", "score_high")
ABOUT = ("run", "task", "method", "label_budget", "metric", "seeds")
NOTE = """\
What the report of the study `{study}` puts first on the task `{task}`, with the most labels: a \
fine-tuned run, with the weights of one trial, or a classical baseline. The version says which.

    import mlflow
    mlflow.set_tracking_uri("http://127.0.0.1:5000")  # or wherever this page is served
    model = mlflow.pyfunc.load_model("models:/{name}@best")
    model.predict(model.input_example)  # a data frame with the same columns

The answer has the columns that `python -m stages.commands.predict` writes. The model brings the \
code of the project; it needs the packages of the project's requirements.lock."""


def register(
    client: "MlflowClient",
    run_ids: Mapping[str, str],
    study: str,
    tasks: Iterable[str],
    records: Sequence[RunRecord],
    loader: str,
) -> None:
    """Registers the best model of each task of a study and gives it the alias.

    ``run_ids`` are MLflow's ids of runs, by the names of the records. ``loader`` is the module with
    which ``mlflow.pyfunc`` loads models.
    """
    ours = f"tags.study = '{study}'"
    models = client.search_registered_models(ours, max_results=MAX_NAMES)
    names = {model.name for model in models}
    for task in tasks:
        name = f"{study}-{task}"  # no name of a study has a dash
        best = best_cell(records, task)
        if best and (name in names or files_of(_cell(best))):
            if name not in names:
                note = NOTE.format(study=study, task=task, name=name)
                client.create_registered_model(name, {"study": study, "task": task}, note)
            _update(client, name, run_ids[best.name], best, loader)
        names.discard(name)
    for name in names:  # of tasks that params.yaml no longer lists
        client.delete_registered_model_alias(name, ALIAS)


def best_cell(records: Sequence[RunRecord], task: str) -> RunRecord | None:
    """Returns the record of the cell that the report puts first on the task with the most labels;
    None if the report has not seen all trials of the task."""
    cells = [r for r in records if r.kind == "trials" and r.tags["task"] == task]
    if any("seeds" not in cell.tags for cell in cells):
        return None
    # Rows with the most labels come first.
    answers = read_texts(paths.REPORTS / "answer.csv")
    answer = next((row for row in answers if row["task"] == task), {})
    same = ("run", "method", "label_budget")
    return next((c for c in cells if all(c.tags[k] == answer.get(k) for k in same)), None)


def _update(client: "MlflowClient", name: str, run_id: str, best: RunRecord, loader: str) -> None:
    """Gives the alias to the version that the run has, else to a version with equal files and
    scores, else to a new version. Of the other versions, only the latest is kept."""
    versions = client.search_model_versions(f"name = '{name}'")
    versions = sorted(versions, key=lambda version: -int(version.version))
    place = store.artifacts() or ""
    here = [version for version in versions if (version.source or "").startswith(place)]
    own = next((version for version in here if version.run_id == run_id), None)
    files = files_of(_cell(best)) if own is None else []
    tags = _tags(best, files) if files else {}
    if files:
        own = next((version for version in here if version.tags.items() >= tags.items()), None)
    if own is None and files:
        source = _save(client, name, run_id, best, files, loader)
        parts = [_about(tags), *(_changes(tags, v.tags) for v in here[:1]), _verdict(best.tags)]
        note = "\n\n".join(filter(None, parts))
        own = client.create_model_version(name, source, run_id, tags=tags, description=note)
    if own is None:  # no trial was kept: the alias would be of a version that is not the best
        client.delete_registered_model_alias(name, ALIAS)
        return
    client.set_registered_model_alias(name, ALIAS, str(own.version))
    older = [version for version in here if version.version != own.version]
    for version in [*older[1:], *(version for version in versions if version not in here)]:
        client.delete_model_version(name, str(version.version))
        shutil.rmtree(_folder(name, version.run_id), ignore_errors=True)


def _cell(record: RunRecord) -> CellKey:
    return CellKey(*(record.tags[field] for field in CellKey._fields))


def _scores(cell: RunRecord) -> dict[str, float]:
    return {key: value for key, value, _ in cell.points if key in SCORES}


def _tags(best: RunRecord, files: Sequence[Path]) -> dict[str, str]:
    """Returns the tags of a version: the mean score with its interval, the seeds of its trial, the
    score of the trial if the report has it, and the hash of the files."""
    pretrain_seed, finetune_seed = seeds_of(files[0])
    cell = _cell(best)
    trial = TrialKey(cell.run, pretrain_seed, *cell[1:], finetune_seed)
    trials = read_texts(paths.REPORTS / "trials.csv")
    scores = {f"mean_{key}": value for key, value in _scores(best).items()}
    own_score = next((float(row["value"]) for row in trials if trial_of(row) == trial), None)
    if own_score is not None:
        scores["score_of_this_trial"] = own_score
    seeds = {"pretrain_seed": str(pretrain_seed), "finetune_seed": str(finetune_seed)}
    shown = {key: f"{value:.6g}" for key, value in scores.items()}
    content = {"hash_of_files": sha256(*files)[:DIGEST]}
    return {key: best.tags[key] for key in ABOUT} | seeds | shown | content


def _about(tags: Mapping[str, str]) -> str:
    """Returns sentences with the score of a version's trial, if the tags have it, and the mean over
    all seeds, in the format of the report."""
    scale = scale_of(tags["metric"])
    own, mean = (
        f"{scale.shown(float(tags[key]))} {scale.unit}".rstrip() if key in tags else ""
        for key in ("score_of_this_trial", "mean_score")
    )
    scored = f"; it scored {own}" if own else ""
    return (
        f"This is the trial with {seeds_in_words(tags)}{scored}. The mean over all seeds is {mean}."
    )


def _changes(tags: Mapping[str, str], before: Mapping[str, str]) -> str:
    """Returns a sentence that lists the ``tags`` whose values have changed since ``before``, the
    tags of the previous version; "" if none has."""
    changed = [key for key, value in tags.items() if value != before.get(key, value)]
    return f"Changed since the version before: {', '.join(changed)}." if changed else ""


def _verdict(tags: Mapping[str, str]) -> str:
    """Returns the sentences of the report on a task."""
    return "\n\n".join(
        f"The report: {row['use']} {row['against']} {row['runs']}"
        for row in read_texts(paths.REPORTS / "answer.csv")
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
            write_model(Path(folder, "model"), best.tags["task"], files, loader)
            client.log_artifacts(run_id, folder)
        return f"{client.get_run(run_id).info.artifact_uri}/model"
    folder = _folder(name, run_id)
    shutil.rmtree(folder, ignore_errors=True)  # left by an interruption
    write_model(folder, best.tags["task"], files, loader)
    return folder.resolve().as_uri()
