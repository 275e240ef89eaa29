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
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
UI = [sys.executable, "-m", "stages.commands.ui"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(PROJECT)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project in which nothing has run."""
    shutil.copy(PROJECT / "studies" / "smoke.yaml", tmp_path / "params.yaml")
    return tmp_path


def test_without_results_it_says_what_to_run(folder: Path) -> None:
    done = subprocess.run(UI, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: there is nothing to show yet; run `dvc repro`\n"
    assert not (folder / "mlflow.db").exists()


def test_it_serves_the_results_until_interrupted(folder: Path) -> None:
    run = folder / "data" / "pretrained" / "encoder_mlm"
    run.mkdir(parents=True)
    about = {"architecture": "encoder", "d_model": 64, "num_layers": 2, "corpus": "none"}
    about |= {"settings": {"seed": 1}, "fingerprint": "a"}
    (run / "run.json").write_text(json.dumps(about))
    (run / "metrics.json").write_text("{}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    command = [*UI, "--port", str(port)]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
        )
    try:
        found = search_runs(port, patience_s=120)
        assert [run["info"]["run_name"] for run in found] == ["encoder_mlm"]
    finally:
        os.killpg(server.pid, signal.SIGINT)  # as Ctrl-C does
    assert server.wait(60) == 0
    assert f"http://127.0.0.1:{port}/#/experiments/1/runs" in (folder / "log").read_text()


def search_runs(port: int, *, patience_s: float) -> list[dict]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search",
        json.dumps({"experiment_ids": ["1"]}).encode(),
        {"Content-Type": "application/json"},
    )
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)["runs"]
        except urllib.error.URLError:
            if time.monotonic() - began > patience_s:
                raise
            time.sleep(0.2)
