"""Commands that show or write something of a study: inputs, plan, summary, components and ui."""

import csv
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from rich.console import Console
from ruamel.yaml import YAML

from stages.budgets.budget import matched
from stages.commands import components, inputs, summary
from stages.core import paths
from stages.core.artifacts import read_jsonl, write_json
from stages.core.params import Params
from stages.core.study_file import typed
from tests.labelled_words import write_tasks
from tests.smoke import ROOT, SMOKE, short_smoke_with

PAGE = ROOT / "docs" / "tasks_and_methods.md"
UI = [sys.executable, "-m", "stages.commands.ui"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_filled_pages_show_every_table_as_it_is_generated() -> None:
    """`python -m stages.commands.components --write docs/*.md` updates them."""
    for page in sorted(PAGE.parent.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert components.filled(text) == text, page
    marks = re.findall(r"<!-- generated: (\w+) -->", PAGE.read_text(encoding="utf-8"))
    assert sorted(marks) == sorted(components.FOLDERS)


@pytest.mark.parametrize(("task", "column"), [("type", "text"), ("tag", "words")])
def test_inputs_writes_each_input_once_and_no_label(task: str, column: str, run) -> None:
    write_tasks()
    values = [row[column] for row in read_jsonl(paths.examples(task) / "test.jsonl")]
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    status, out, err = run("inputs", task)
    assert status == 0 and signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL  # for `| head`
    cells = [row[column] for row in csv.DictReader(out.splitlines())]
    written = cells if task == "type" else [json.loads(cell) for cell in cells]
    assert len(values) == 8 and written == values[:4]  # test has each value twice
    labels = {"type": "fruit, tool", "tag": "B-TOOL, O"}[task]
    assert err.startswith(f"4 inputs of {task}; add the column prediction (of {labels})")
    inputs.run(task, Path("some.jsonl"))
    assert read_jsonl(Path("some.jsonl")) == [{column: value} for value in values[:4]]
    for name in ("some.jsonl", "new.xlsx"):
        with pytest.raises(ValueError, match=f"--out: {name}"):
            inputs.run("type", Path(name))


@pytest.mark.parametrize(("budget", "equal_steps"), [("tokens", True), ("flops", False)])
def test_plan_resolved_prints_every_setting_under_the_matched_budget(
    budget: str, equal_steps: bool, run
) -> None:
    shutil.copyfile(ROOT / "requirements.lock", "requirements.lock")
    raw = short_smoke_with({"pretrain.matched": budget, "pretrain.seeds": [1, 2]})
    with Path("params.yaml").open("w") as file:
        YAML().dump(raw, file)
    study = Params(**YAML(typ="safe").load(run("plan", "--resolved").out))
    assert study == matched(typed(raw))
    decoder = study.models["decoder_causal"]
    assert decoder.seeds == [1, 2] and "num_heads" in decoder.architecture
    assert (decoder.training.num_steps == 40) is equal_steps
    raw["pretrain"]["reference"] = "bert"
    with Path("params.yaml").open("w") as file:
        YAML().dump(raw, file)
    assert run("plan").err.startswith("error: pretrain.reference: unknown 'bert'")


@pytest.mark.parametrize("study", ["tickets", "mails"])
def test_summary_prints_the_answer_and_names_its_study_if_params_are_of_another(study) -> None:
    paths.REPORTS.mkdir()
    answer = "Which model?\n\nFine-tune minilm: [it] leads.\n\nModel   Mean\nminilm  56.5\n"
    (paths.REPORTS / "answer.txt").write_text(answer, encoding="utf-8")
    (paths.REPORTS / "trials.csv").write_text("study\ntickets\n")
    Path("params.yaml").write_text(f"study: {study}\n")
    summary.show(Console(file=(screen := io.StringIO()), width=20))
    assert screen.getvalue().startswith(answer)
    rest = " ".join(screen.getvalue().removeprefix(answer).split())
    other = "This is the study tickets; params.yaml is mails."
    assert rest == ("" if study == "tickets" else other)


@pytest.mark.slow
def test_ui_serves_the_results_until_sigterm_or_says_what_it_lacks() -> None:
    shutil.copy(SMOKE, "params.yaml")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def refusal(*arguments: str) -> str:
        done = subprocess.run([*UI, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 2
        return done.stderr

    assert refusal() == "error: there is nothing to show yet; run `make repro`\n"
    folder = Path("data/pretrained/encoder_mlm/1")
    folder.mkdir(parents=True)
    about = {"architecture": "encoder", "d_model": 64, "num_layers": 2, "corpus": "none"}
    write_json(folder / "run.json", about | {"settings": {"seed": 1}, "fingerprint": "a"})
    write_json(folder / "metrics.json", {})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refusal("--port", port).startswith("error: --port: ")
    served, command = f"http://127.0.0.1:{port}", [*UI, "--port", port]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == f"The study in MLflow: {served}\n"
            title, address = process.stdout.readline().split()
            assert title == "Models" and address.startswith(f"{served}/#/experiments/1/runs")
            runs = MlflowClient(served).search_runs(["1"])  # waits for the server
            assert [run.info.run_name for run in runs] == ["pretrain encoder_mlm, seed 1"]
        finally:
            process.terminate()  # SIGKILL would leave a child of MLflow's server running
        assert process.wait(60) == 128 + signal.SIGTERM
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", int(port))) != 0
