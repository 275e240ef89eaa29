"""A model that MLflow loads predicts as the command does, from its own files alone."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import mlflow
import numpy as np
import pandas as pd
import pytest

from stages import finetune, pretrain
from stages.commands import predict
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.params import Params
from stages.evaluation import records
from stages.evaluation.metrics import macro_f1
from stages.exporting import mlflow_model
from stages.tracking.view import reconcile
from tests.small_study import SCRATCH, run_stage, write_inputs, write_study
from tests.smoke import alone
from tests.tracking.tracked_study import write_report, write_table

pytestmark = pytest.mark.slow


BEST = {"section": ("public", "full"), "tag": (SCRATCH, "linear_probe")}


class Registered(NamedTuple):
    """A study whose best models are registered: a fine-tuned public checkpoint, and a linear
    probe of a run from scratch."""

    folder: Path
    params: Params


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Registered:
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", "")
        params = write_study(folder, lr=1e-2)
        write_inputs(params)
        for task, (run, method) in BEST.items():
            run_stage(params, pretrain, run)
            write_labels(task)
            run_stage(alone(params, run), finetune, task)
            write_scores(task, run, method)
        write_report("The encoder leads.")
        assert reconcile(params, loader=mlflow_model.__name__)
    return Registered(folder, params)


def write_labels(task: str) -> None:
    """Writes labels for scoring, which ``write_study`` leaves out."""
    examples = Path("data/tasks", task, "examples")
    rows = read_jsonl(examples / "test.jsonl")
    answers = [{"tags": ["O" for _ in row.get("words", [])], "label": "calm"} for row in rows]
    labels = [{"id": row["id"], **each} for row, each in zip(rows, answers, strict=True)]
    write_jsonl(examples.parent / "test_labels.jsonl", labels)
    about = read_json(examples / "task.json")
    write_json(examples / "task.json", about | {"num_examples": {"test": len(rows)}})


def write_scores(task: str, run: str, best: str) -> None:
    """Writes scores that make one method best."""
    rows = records.read(Path("data/finetuned", task, run, "trials.csv"), records.TrialRecord)
    scores = {"metric": "accuracy", "other_metric": "accuracy", "other_value": 0.5}
    scored = [asdict(row) | scores | {"value": 0.5 + (row.method == best) / 4} for row in rows]
    write_table(Path("data/evaluated", task, "trials.csv"), scored)


@pytest.fixture
def elsewhere(registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder, without any file of the study."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{registered.folder / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("task", BEST)
def test_model_predicts_byte_for_byte_what_the_command_does(
    registered: Registered,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    task: str,
) -> None:
    model = mlflow.pyfunc.load_model(f"models:/smoke-{task}@best")
    rows = read_jsonl(registered.folder / "data/tasks" / task / "examples/test.jsonl")
    frame = pd.DataFrame(rows).drop(columns="id")
    frame.index = pd.Index([row["id"] for row in rows])
    predicted = model.predict(frame)
    assert [*predicted.index] == [*frame.index]
    shown = zip(predicted.index, predicted.to_dict("records"), strict=True)
    lines = [json.dumps({"id": id} | row, ensure_ascii=False) for id, row in shown]

    write_jsonl(elsewhere / "new.jsonl", rows)
    monkeypatch.chdir(registered.folder)
    run, method = BEST[task]
    which = [run, task, str(elsewhere / "new.jsonl"), "--method", method, "--finetune-seed", "1"]
    monkeypatch.setattr(sys, "argv", ["predict", *which])
    predict.main()
    assert capsys.readouterr().out.splitlines() == lines and len(lines) == 60
    shapes = {json.dumps(row.get("label", row.get("tags"))) for row in predicted.to_dict("records")}
    assert len(shapes) > 1


def test_model_predicts_its_own_example(elsewhere: Path) -> None:
    for task in BEST:
        model = mlflow.pyfunc.load_model(f"models:/smoke-{task}@best")
        assert model.input_example is not None
        assert len(model.predict(model.input_example)) == len(model.input_example) == 2


def test_model_is_served_over_http(elsewhere: Path) -> None:
    """`mlflow models serve` answers with what the model predicts here."""
    frame = pd.DataFrame({"text": ["call it", "number of workers"]})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = "-m mlflow models serve --model-uri models:/smoke-section@best --env-manager local"
    process = subprocess.Popen(
        [sys.executable, *command.split(), "--port", str(port)], start_new_session=True
    )
    body = json.dumps({"dataframe_records": frame.to_dict("records")}).encode()
    address, json_type = f"http://127.0.0.1:{port}/invocations", "application/json"
    request = urllib.request.Request(address, body, {"Content-Type": json_type})
    try:
        answer = answer_of(request, patience_s=120)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    predicted = mlflow.pyfunc.load_model("models:/smoke-section@best").predict(frame)
    assert answer == {"predictions": predicted.to_dict("records")}


def answer_of(request: urllib.request.Request, *, patience_s: float) -> dict:
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.URLError:
            if time.monotonic() - began > patience_s:
                raise
            time.sleep(0.2)


def test_evaluate_of_mlflow_computes_the_metric_of_the_study(
    registered: Registered, elsewhere: Path
) -> None:
    """Macro averages agree for three labels or more, if the rows have every predicted label."""
    rows = read_jsonl(registered.folder / "data/tasks/section/examples/test.jsonl")
    frame = pd.DataFrame(rows)
    model = mlflow.pyfunc.load_model("models:/smoke-section@best")
    frame["predicted"] = model.predict(frame[["text"]])["label"]
    frame["label"] = ["third", *frame["predicted"][:-1]]
    mlflow.set_experiment("smoke")
    result = mlflow.models.evaluate(
        data=frame,
        targets="label",
        predictions="predicted",
        model_type="classifier",
        evaluator_config={"average": "macro"},
    )
    expected = macro_f1([*frame["label"]], [*frame["predicted"]])
    assert result.metrics["f1_score"] == pytest.approx(expected) and 0 < expected < 1


@pytest.mark.parametrize(
    ("cell", "message"),
    [(None, "row 1: text is missing"), (" ", "row 1: text is empty")],
)
def test_model_refuses_a_cell_that_is_no_input(
    elsewhere: Path, cell: str | None, message: str
) -> None:
    model = mlflow.pyfunc.load_model("models:/smoke-section@best")
    with pytest.raises(ValueError, match=message):
        model.predict(pd.DataFrame({"text": ["fine", cell]}))


def test_model_takes_arrays_and_leaves_out_missing_optional_inputs(elsewhere: Path) -> None:
    model = mlflow.pyfunc.load_model("models:/smoke-tag@best")
    words = ["The", "class", "Ωmega"]
    one, other = (
        model.predict(pd.DataFrame({"words": [value]})) for value in (words, np.array(words))
    )
    assert one.to_dict("records") == other.to_dict("records")
    section = mlflow.pyfunc.load_model("models:/smoke-section@best")
    alone = section.predict(pd.DataFrame({"text": ["call it"]}))
    without = section.predict(pd.DataFrame({"text": ["call it"], "text_pair": [None]}))
    assert alone.equals(without)


def test_model_of_a_moved_project_is_its_own(
    registered: Registered, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model loads although the original project is gone."""
    moved = Path(shutil.copytree(registered.folder, elsewhere / "moved"))
    monkeypatch.chdir(moved)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert reconcile(registered.params, loader=mlflow_model.__name__)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{moved / 'mlflow.db'}")
    hidden = registered.folder.rename(registered.folder.with_name("hidden"))
    try:
        model = mlflow.pyfunc.load_model("models:/smoke-section@best")
        assert len(model.predict(pd.DataFrame({"text": ["call it"]}))) == 1
    finally:
        hidden.rename(registered.folder)
