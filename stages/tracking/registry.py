"""MLflow's model registry: of each task the best fine-tuned model, under the alias ``best``.

A version has the files that predicting takes, as hard links to those of the study where the disk
allows that: DVC and the stages replace files and never write into one. When another model becomes
the best, a new version gets the alias. Of the versions before it one is kept.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING

from stages.core import paths
from stages.core.params import Params
from stages.kinds._inputs import WORDS
from stages.kinds._kind import KINDS
from stages.tracking import store
from stages.tracking.best_models import BestModel
from stages.tracking.records import RunRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel
    from mlflow.models import ModelSignature

ALIAS = "best"
KEPT_VERSIONS = 2  # of each task: the best one, and the one before it
MAX_NAMES = 1_000  # of registered models in one answer of MLflow
# Named here, or MLflow would load the model to find out, and might ask the network.
PACKAGES = ("mlflow", "numpy", "pandas", "safetensors", "sentencepiece", "tokenizers", "torch")
PACKAGES += ("transformers",)
SHOWN = {str: 40, list: 5}  # letters of a text, words or choices, in an example
NOTE = """\
The best of all fine-tuned runs of the study `{study}` on the task `{task}`, with the most labels; \
the weights are those of one trial. A classical baseline may be better: the version says.

    import mlflow, pandas
    model = mlflow.pyfunc.load_model("models:/{name}@best")
    model.predict(pandas.DataFrame({example}))

The answer has the columns that `python -m stages.commands.predict` writes. The model runs the \
code of the project, which is in no package index: in the project's folder, or with it on \
PYTHONPATH, and with the packages of its requirements.lock."""


class Registry:
    """That of an experiment; ``loader`` is the module that ``mlflow.pyfunc`` loads models with."""

    def __init__(
        self, client: "MlflowClient", experiment_id: str, params: Params, loader: str
    ) -> None:
        self._client, self._experiment_id = client, experiment_id
        self._params, self._loader = params, loader
        self._known = {
            model.name: model
            for model in self._client.search_registered_models(
                f"tags.study = '{params.study}'", max_results=MAX_NAMES
            )
        }

    def update(self, records: Sequence[RunRecord], run_ids: Mapping[str, str]) -> None:
        """Register what is the best now and not registered yet, and give it the alias; ``run_ids``
        are those of the records, by their fingerprints."""
        for task in self._params.tasks:
            best = BestModel.of(self._params, records, task)
            if best is not None:
                self._show(best, run_ids[best.record.fingerprint])
        listed = {f"{self._params.study}-{task}" for task in self._params.tasks}
        for name, model in self._known.items():
            if name not in listed and ALIAS in model.aliases:
                self._client.delete_registered_model_alias(name, ALIAS)

    def _show(self, best: BestModel, run_id: str) -> None:
        model = self._known.get(best.name)
        if model is None and not best.files:
            return
        if model is None:
            model = self._registered(best)
        versions = self._client.search_model_versions(f"name = '{best.name}'")
        found = [each for each in versions if each.tags.get("fingerprint") == best.fingerprint]
        if not found and best.files:
            found = [self._created(best, run_id)]
            versions = [*versions, *found]
        elif found and best.files and self._is_empty(found[0]):  # the files were not copied
            self._fill(self._client.get_logged_model(found[0].tags["model_id"]), best)
        before = model.aliases.get(ALIAS)
        if not found:  # the best one was not kept: another would be taken for it
            if before is not None:
                self._client.delete_registered_model_alias(best.name, ALIAS)
            return
        if str(before) != str(found[0].version):
            self._client.set_registered_model_alias(best.name, ALIAS, str(found[0].version))
            self._remove_others(best.name, found[0], versions)

    def _registered(self, best: BestModel) -> "RegisteredModel":
        """A new model without a version."""
        study, task = self._params.study, best.task
        inputs = best.example[0].items()
        example = {key: [value[: SHOWN[type(value)]]] for key, value in inputs}
        note = NOTE.format(study=study, task=task, name=best.name, example=example)
        tags = {"study": study, "task": task}
        return self._client.create_registered_model(best.name, tags, note)

    def _created(self, best: BestModel, run_id: str) -> "ModelVersion":
        """A new version, with its files."""
        model = self._client.create_logged_model(
            self._experiment_id,
            name=best.name,
            source_run_id=run_id,
            tags=best.tags,
            model_type=best.columns.kind,
        )
        try:
            return self._filled(model, best, run_id)
        except BaseException:
            self._remove(model)  # a failure that comes each time must not fill the disk
            raise

    def _filled(self, model: "LoggedModel", best: BestModel, run_id: str) -> "ModelVersion":
        from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric

        self._fill(model, best)
        self._client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        self._client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
        numbers = [
            Metric(key, value, 0, 0, model_id=model.model_id) for key, value in best.numbers.items()
        ]
        self._client.log_batch(run_id, numbers)
        found = self._client.create_model_version(
            best.name,
            model.artifact_location,  # `models:/...` would be looked up in MLflow's default store
            run_id,
            tags=best.tags | {"fingerprint": best.fingerprint, "model_id": model.model_id},
            description=best.note,
            model_id=model.model_id,
        )
        registered = [{"name": best.name, "version": found.version}]
        tags = {"mlflow.modelVersions": json.dumps(registered)}  # by which its page links there
        self._client.set_logged_model_tags(model.model_id, tags)
        return found

    def _is_empty(self, version: "ModelVersion") -> bool:
        place = store.local(version.source or "")
        return place is not None and not place.exists()

    def _fill(self, model: "LoggedModel", best: BestModel) -> None:
        """Give a model its files, all at once."""
        with tempfile.TemporaryDirectory(dir=paths.SCRATCH) as folder:
            whole, place = Path(folder, "model"), store.local(model.artifact_location)
            self._write(whole, model, best)
            if place is None:
                self._client.log_model_artifacts(model.model_id, str(whole))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(whole, place)  # which keeps hard links

    def _write(self, folder: Path, model: "LoggedModel", best: BestModel) -> None:
        """The model as MLflow has it: MLmodel and so on, and beside them the files of the study in
        their places."""
        import mlflow.pyfunc
        import pandas as pd
        from mlflow.models import Model

        described = Model(
            run_id=model.source_run_id, model_uuid=model.model_id, model_id=model.model_id
        )
        mlflow.pyfunc.save_model(
            str(folder),
            loader_module=self._loader,
            mlflow_model=described,
            signature=_signature(best),
            input_example=pd.DataFrame(best.example),
            pip_requirements=[f"{name}=={installed(name).split('+')[0]}" for name in PACKAGES],
        )
        for path in best.files:
            _link(path, folder / path)
        described.model_size_bytes = sum(path.stat().st_size for path in best.files)
        described.save(str(folder / "MLmodel"))

    def _remove_others(
        self, name: str, best: "ModelVersion", versions: "Iterable[ModelVersion]"
    ) -> None:
        """All versions but the best and the latest others; and what an interruption left."""
        older = sorted((v for v in versions if v is not best), key=lambda v: -int(v.version))
        kept = [best, *older[: KEPT_VERSIONS - 1]]
        for each in older[KEPT_VERSIONS - 1 :]:
            self._client.delete_model_version(name, str(each.version))
        models = self._client.search_logged_models([self._experiment_id], f"name = '{name}'")
        for model in models:
            if model.model_id not in [each.tags.get("model_id") for each in kept]:
                self._remove(model)

    def _remove(self, model: "LoggedModel") -> None:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        place = store.local(model.artifact_location)
        if place is None:
            get_artifact_repository(model.artifact_location).delete_artifacts()
        else:
            shutil.rmtree(place.parent, ignore_errors=True)
        self._client.delete_logged_model(model.model_id)


def _link(path: Path, place: Path) -> None:
    """The same file in another place; on another disk, a copy."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path.resolve(), place)
    except OSError:
        shutil.copyfile(path, place)


def _signature(best: BestModel) -> "ModelSignature":
    """Of the inputs; the outputs are those of the task's kind."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array

    columns = best.columns
    lists = {WORDS, *KINDS[columns.kind].lists}
    return ModelSignature(
        Schema(
            [
                ColSpec(
                    Array(DataType.string) if key in lists else DataType.string,
                    key,
                    required=key in columns.inputs,
                )
                for key in (*columns.inputs, *columns.optional)
            ]
        )
    )
