"""The best model of each task is registered once, with its files; old versions do not pile up."""

import json
import os
import shutil
from pathlib import Path

import pytest
from mlflow.entities.model_registry import ModelVersion

from stages.core.params import Params
from stages.tracking import store
from stages.tracking.registry import Registry
from stages.tracking.view import reconcile
from tests.tracking.tracked_study import (
    client,
    current,
    id_of,
    name_of,
    shown,
    write_evaluation,
    write_report,
)

pytestmark = pytest.mark.slow

NAME = "smoke-tag"
LOADER = "a.module"  # nothing is loaded here


def register(params: Params) -> None:
    assert reconcile(params, loader=LOADER)


def best(name: str = NAME) -> ModelVersion:
    return client().get_model_version_by_alias(name, "best")


def versions() -> list[int]:
    return sorted(int(each.version) for each in client().search_model_versions(f"name='{NAME}'"))


def files(version: ModelVersion) -> Path:
    """Where they are."""
    place = store.local(version.source or "")
    assert place
    return place / "data"


def weights(version: ModelVersion) -> str:
    (kept,) = (files(version) / "finetuned").rglob("*.safetensors")
    return kept.read_text()


def let_lead(run: str, by: float = 0.1) -> None:
    """On the task tag, by its first seed."""
    shifts = {"encoder_mlm": by, "decoder_causal": 0.0}
    write_evaluation("tag", shift=shifts[run])
    write_report(f"{run} leads.")


def test_the_best_of_each_task_has_the_alias(params: Params) -> None:
    let_lead("encoder_mlm")
    register(params)
    version = best()
    assert weights(version) == "encoder_mlm tag 1"
    tags = {"run": "encoder_mlm", "method": "full", "label_budget": "50", "metric": "macro_f1"}
    tags |= {"score": "0.465", "score_low": "0.365", "score_high": "0.665"}
    tags |= {"pretrain_seed": "1", "finetune_seed": "1"}
    assert version.tags.items() >= tags.items()
    assert version.run_id == id_of(current()["encoder_mlm full tag 50"])
    assert "`encoder_mlm` with `full`, 50 labels: 46.5 macro_f1 (36.5 to 66.5)" in (
        version.description or ""
    )
    assert client().get_logged_model(version.tags["model_id"]).status == "READY"
    assert weights(best("smoke-section")).startswith("encoder_mlm section")  # the first of equals
    assert client().get_registered_model(NAME).tags == {"study": "smoke", "task": "tag"}


def test_it_has_the_files_of_the_study_without_a_second_copy(params: Params) -> None:
    register(params)
    folder = files(best())
    kept = {path.relative_to(folder.parent) for path in folder.rglob("*") if path.is_file()}
    assert {path.as_posix() for path in kept} == {
        "data/finetuned/tag/encoder_mlm/weights/full-50-1.safetensors",
        "data/pretrained/encoder_mlm/metrics.json",
        "data/pretrained/encoder_mlm/run.json",
        "data/tasks/tag/examples/task.json",
        "data/tasks/tag/examples/train.jsonl",
    }
    assert all(path.samefile(folder.parent / path) for path in kept)
    described = (folder.parent / "MLmodel").read_text()
    assert f"loader_module: {LOADER}" in described and '"name": "text"' in described
    example = json.loads((folder.parent / "input_example.json").read_text())
    assert example == {"columns": ["text"], "data": [["tag test"]]}


def test_on_another_disk_the_files_are_copied(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("Invalid cross-device link")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refused)
        register(params)
    kept = files(best()) / "pretrained/encoder_mlm/run.json"
    original = Path("data/pretrained/encoder_mlm/run.json")
    assert kept.read_bytes() == original.read_bytes() and not kept.samefile(original)


def test_nothing_is_registered_twice(params: Params) -> None:
    register(params)
    before = {path for path in Path("mlruns/models").iterdir()}
    register(params)
    assert versions() == [1] and {path for path in Path("mlruns/models").iterdir()} == before


def test_the_alias_moves_and_old_versions_do_not_pile_up(params: Params) -> None:
    let_lead("encoder_mlm")
    register(params)
    first = best()
    let_lead("encoder_mlm", by=-0.1)
    register(params)
    assert weights(best()) == "decoder_causal tag 1" and versions() == [1, 2]
    assert weights(first) == "encoder_mlm tag 1"  # it can be gone back to
    for by in (0.2, 0.3):
        let_lead("encoder_mlm", by=by)
        register(params)
    assert best().tags["score"] == "0.565" and versions() == [3, 4]
    assert not files(first).exists()
    models = [path for path in Path("mlruns/models").iterdir()]
    assert len(models) == 3  # two of tag, one of section
    assert len(client().search_logged_models([current()["comparison"].info.experiment_id])) == 3

    let_lead("encoder_mlm", by=0.2)  # as DVC's cache brings it back
    register(params)
    assert int(best().version) == 3 and versions() == [3, 4]


def test_a_moved_project_has_its_own_files(params: Params, tmp_path: Path) -> None:
    register(params)
    here = Path.cwd()
    moved = shutil.copytree(here, tmp_path / "moved")
    shutil.rmtree(here)
    os.chdir(moved)
    register(params)
    assert versions() == [1] and weights(best()) == "encoder_mlm tag 1"
    assert files(best()).is_relative_to(moved)
    place = client().get_model_version_download_uri(NAME, best().version)
    assert place.startswith(moved.as_uri())


def test_a_copy_without_the_files_gets_them_again(params: Params) -> None:
    register(params)
    shutil.rmtree("mlruns")
    register(params)
    assert versions() == [1] and weights(best()) == "encoder_mlm tag 1"


def test_without_kept_weights_nothing_is_the_best(params: Params) -> None:
    """Rather than the second best; and not before the report has seen the trials."""
    register(params)
    write_evaluation("tag", shift=0.1)
    register(params)
    assert best().tags["score"] == "0.415"  # of the report
    write_report("The encoder leads.")
    shutil.rmtree("data/finetuned/tag/encoder_mlm/weights")
    register(params)
    assert client().get_registered_model(NAME).aliases == {}
    write_evaluation("tag", shift=0.1)
    register(params)
    assert best().tags["score"] == "0.465"


def test_a_task_that_params_no_longer_lists_has_no_best(params: Params) -> None:
    register(params)
    tasks = {key: task for key, task in params.tasks.items() if key != "tag"}
    reconcile(params.model_copy(update={"tasks": tasks}), loader=LOADER)
    assert client().get_registered_model(NAME).aliases == {}


def test_what_an_interruption_leaves_is_removed(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(MlflowClient, "create_model_version", interrupt)
        patched.setattr(Registry, "_remove", interrupt)  # as if it were killed
        register(params)
    assert len([*Path("mlruns/models").iterdir()]) == 1
    register(params)
    assert versions() == [1] and len([*Path("mlruns/models").iterdir()]) == 2


def test_a_failure_is_one_warning_and_the_runs_are_there(
    params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no\nroom")

    monkeypatch.setattr(MlflowClient, "create_model_version", fail)
    register(params)
    assert not [*Path("mlruns/models").iterdir()]  # nothing is left that would pile up
    said = capsys.readouterr().err
    assert said.startswith("warning: MLflow") and said.count("\n") == 1 and "no room" in said
    assert "comparison" in {name_of(run) for run in shown()}
