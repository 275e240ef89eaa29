import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
UI = [sys.executable, "-m", "stages.commands.ui"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(PROJECT)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project in which nothing has run."""
    shutil.copy(PROJECT / "studies" / "smoke.yaml", tmp_path / "params.yaml")
    return tmp_path


def test_ui_says_what_it_lacks(folder: Path) -> None:
    def refusal(*arguments: str) -> str:
        command = [*UI, *arguments]
        done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 2
        return done.stderr

    assert refusal() == "error: there is nothing to show yet; run `make repro`\n"
    (folder / "mlflow.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert refusal("--port", str(taken.getsockname()[1])).startswith("error: --port: ")


def test_ui_serves_the_results_until_sigterm(folder: Path) -> None:
    run = folder / "data" / "pretrained" / "encoder_mlm" / "1"
    run.mkdir(parents=True)
    about = {"architecture": "encoder", "d_model": 64, "num_layers": 2, "corpus": "none"}
    about |= {"settings": {"seed": 1}, "fingerprint": "a"}
    (run / "run.json").write_text(json.dumps(about))
    (run / "metrics.json").write_text("{}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*UI, "--port", str(port)]
    with subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == f"The study in MLflow: http://127.0.0.1:{port}\n"
            title, address = process.stdout.readline().split()
            assert title == "Models"
            assert address.startswith(f"http://127.0.0.1:{port}/#/experiments/1/runs")
            names = {run["info"]["run_name"] for run in search_runs(port)}
            assert names == {"pretrain encoder_mlm, seed 1"}
        finally:
            process.terminate()  # SIGKILL would leave a child of MLflow's server running
        assert process.wait(60) == 128 + signal.SIGTERM
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0


def search_runs(port: int) -> list[dict]:
    """Asks the server for its runs, as soon as it answers."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search",
        json.dumps({"experiment_ids": ["1"]}).encode(),
        {"Content-Type": "application/json"},
    )
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return json.load(response)["runs"]
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
