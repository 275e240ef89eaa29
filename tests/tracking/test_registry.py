"""The best model of each task is registered once, with its files; old versions do not pile up."""

import json
import os
import shutil
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from stages.core.params import Params
from stages.tracking import records, registry, study, trials
from stages.tracking.view import reconcile
from tests.tracking.tracked_study import (
    client,
    current,
    id_of,
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
    return sorted(int(v.version) for v in client().search_model_versions(f"name='{NAME}'"))


def files(version: ModelVersion) -> Path:
    return Path(mlflow.artifacts.download_artifacts(version.source or ""), "data")


def weights(version: ModelVersion) -> str:
    (kept,) = (files(version) / "finetuned").rglob("*.safetensors")
    return kept.read_text()


def let_lead(run: str, by: float = 0.1) -> None:
    """Shifts the first seed's score on ``tag``."""
    shifts = {"encoder_mlm": by, "decoder_causal": 0.0}
    write_evaluation("tag", shift=shifts[run])
    write_report(f"{run} leads.")


def test_register_gives_the_best_of_each_task_the_alias(params: Params) -> None:
    let_lead("encoder_mlm")
    register(params)
    version = best()
    assert weights(version) == "encoder_mlm tag 1"
    tags = {"run": "encoder_mlm", "method": "full", "label_budget": "50", "metric": "macro_f1"}
    tags |= {"mean_score": "0.465", "mean_score_low": "0.365", "mean_score_high": "0.665"}
    tags |= {"pretrain_seed": "1", "finetune_seed": "1", "score_of_this_trial": "0.51"}
    assert version.tags.items() >= tags.items()
    assert version.run_id == id_of(current()["encoder_mlm full tag 50"])
    own, report = (version.description or "").split("\n\n")
    assert own == (
        "This is the trial with pretraining seed 1 and fine-tuning seed 1; it scored 51.0 points. "
        "The mean over all seeds is 46.5 points."
    )
    assert report == "The report: Use encoder_mlm. It leads. One run."
    assert weights(best("smoke-section")).startswith("encoder_mlm section")  # the first of equals
    assert client().get_registered_model(NAME).tags == {"study": "smoke", "task": "tag"}


def test_register_gives_a_baseline_the_alias_if_the_report_puts_it_first(params: Params) -> None:
    """Its interval is unknown here."""
    write_report("The baseline leads.", best=("tfidf", "classical"))
    register(params)
    version = best()
    assert version.run_id == id_of(current()["tfidf classical tag 50"])
    own, report = (version.description or "").split("\n\n")
    assert own.startswith("This is the trial with the labelled rows of seeds 1 and 1; it scored")
    assert report == "The report: Use tfidf. It leads. One run."
    tags = {"run": "tfidf", "method": "classical", "mean_score": "0.415", "pretrain_seed": "1"}
    assert version.tags.items() >= (tags | {"finetune_seed": "1"}).items()
    folder = files(version)
    assert {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } == {
        "baselines/tag/kept/tfidf-50-1-1.json",
        "tasks/tag/examples/task.json",
        "tasks/tag/examples/train.jsonl",
        "tasks/tag/examples/validation.jsonl",
    }
    let_lead("encoder_mlm")
    register(params)
    assert best().tags["run"] == "encoder_mlm" and versions() == [1, 2]


def test_register_links_the_files_of_the_study_without_a_second_copy(params: Params) -> None:
    register(params)
    folder = files(best())
    kept = {path.relative_to(folder.parent) for path in folder.rglob("*") if path.is_file()}
    assert {path.as_posix() for path in kept} == {
        "data/finetuned/tag/encoder_mlm/weights/full-50-1-1.safetensors",
        "data/pretrained/encoder_mlm/1/metrics.json",
        "data/pretrained/encoder_mlm/1/run.json",
        "data/tasks/tag/examples/task.json",
        "data/tasks/tag/examples/train.jsonl",
    }
    assert all(path.samefile(folder.parent / path) for path in kept)
    signature = mlflow.models.get_model_info(str(folder.parent)).signature
    assert signature and signature.inputs and signature.outputs
    assert signature.inputs.input_names() == ["text"]
    assert signature.outputs.input_names() == ["label", "scores"]
    assert signature.outputs.required_input_names() == ["label"]
    assert f"loader_module: {LOADER}" in (folder.parent / "MLmodel").read_text()
    example = json.loads((folder.parent / "input_example.json").read_text())
    assert example == {"columns": ["text"], "data": [["tag test"]]}


def test_register_copies_the_files_to_another_disk(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("Invalid cross-device link")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refused)
        register(params)
    kept = files(best()) / "pretrained/encoder_mlm/1/run.json"
    original = Path("data/pretrained/encoder_mlm/1/run.json")
    assert kept.read_bytes() == original.read_bytes() and not kept.samefile(original)


def test_register_reads_no_file_of_a_version_that_its_run_identifies(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hash of all weights at each report would take seconds."""
    register(params)
    hashed: list[Path] = []
    monkeypatch.setattr(registry, "sha256", lambda *paths: hashed.extend(paths) or "a" * 64)
    register(params)
    assert versions() == [1] and not hashed
    let_lead("encoder_mlm", by=0.2)
    register(params)
    assert versions() == [1, 2] and hashed


def test_register_leaves_out_a_score_that_the_report_does_not_have(params: Params) -> None:
    folder = Path("data/finetuned/tag/encoder_mlm/weights")
    (folder / "full-50-1-0.safetensors").write_text("of a seed that was removed")
    register(params)
    version = best()
    assert version.tags["finetune_seed"] == "0" and "score_of_this_trial" not in version.tags
    about = (version.description or "").split("\n\n")[0]
    assert "fine-tuning seed 0. The mean over all seeds is 41.5 points." in about


def saved(task: str = "tag") -> list[Path]:
    """The folders of the versions of a task."""
    return [*Path("mlruns/registry", f"smoke-{task}").iterdir()]


def test_register_moves_the_alias_and_keeps_one_older_version(params: Params) -> None:
    let_lead("encoder_mlm")
    register(params)
    register(params)
    first = best()
    assert versions() == [1] and len(saved()) == len(saved("section")) == 1
    let_lead("encoder_mlm", by=-0.1)
    register(params)
    assert weights(best()) == "decoder_causal tag 1" and versions() == [1, 2]
    assert weights(first) == "encoder_mlm tag 1"  # kept to go back to
    for by in (0.2, 0.3):
        let_lead("encoder_mlm", by=by)
        register(params)
    assert best().tags["mean_score"] == "0.565" and versions() == [3, 4]
    assert "before: mean_score, mean_score_low," in (best().description or "")
    assert len(saved()) == 2 and len(saved("section")) == 1

    let_lead("encoder_mlm", by=0.2)  # as restored from DVC's cache
    register(params)
    assert int(best().version) == 3 and versions() == [3, 4]


def test_register_has_one_version_of_equal_files_and_scores(
    params: Params, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A new form of records makes new runs; a moved project has its files elsewhere."""
    with monkeypatch.context() as older:
        for module in (records, study, trials):
            older.setattr(module, "FORM", "1")
        register(params)
    first = best().run_id
    register(params)
    assert best().run_id == first != id_of(current()["encoder_mlm full tag 50"])
    assert versions() == [1] and len(saved()) == 1

    moved = shutil.copytree(Path.cwd(), tmp_path / "moved")
    os.chdir(moved)
    register(params)
    assert versions() == [2] and len(saved()) == 1
    assert (best().source or "").startswith(moved.as_uri())


def test_register_takes_no_second_best_where_weights_were_not_kept(params: Params) -> None:
    register(params)
    write_evaluation("tag", shift=0.1)
    register(params)
    assert best().tags["mean_score"] == "0.415"  # the report has not seen the new trials
    write_report("The encoder leads.")
    shutil.rmtree("data/finetuned/tag/encoder_mlm/weights")
    register(params)
    assert client().get_registered_model(NAME).aliases == {}
    write_evaluation("tag", shift=0.1)
    register(params)
    assert best().tags["mean_score"] == "0.465"


def test_register_takes_the_alias_from_a_task_that_params_no_longer_list(params: Params) -> None:
    register(params)
    tasks = {key: task for key, task in params.tasks.items() if key != "tag"}
    reconcile(params.model_copy(update={"tasks": tasks}), loader=LOADER)
    assert client().get_registered_model(NAME).aliases == {}


def test_register_replaces_what_an_interruption_leaves(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(MlflowClient, "create_model_version", interrupt)
        register(params)
    register(params)
    assert versions() == [1] and len(saved()) == 1 and weights(best()) == "encoder_mlm tag 1"


def test_register_fails_with_one_warning_after_the_runs_are_shown(
    params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no\nroom")

    monkeypatch.setattr(MlflowClient, "create_model_version", fail)
    register(params)
    message = capsys.readouterr().err
    assert message.startswith("warning: MLflow") and message.count("\n") == 1
    assert "no room" in message and "comparison" in current()


def test_register_copies_the_files_to_a_store_of_another_address(
    params: Params, another_store: str
) -> None:
    os.environ["MLFLOW_TRACKING_URI"] = another_store
    register(params)
    version = best()
    assert weights(version) == "encoder_mlm tag 1"
    assert files(version).parent.parent.parent.name == version.run_id
