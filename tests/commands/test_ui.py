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


def test_ui_says_what_to_run_without_results(folder: Path) -> None:
    done = subprocess.run(UI, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: there is nothing to show yet; run `make repro`\n"
    assert not (folder / "mlflow.db").exists()


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


def test_ui_refuses_a_port_in_use(folder: Path) -> None:
    (folder / "mlflow.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*UI, "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: --port: ")


# A server with a child; both ignore SIGTERM.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
os.write(1, f"{os.getpid()}\\n".encode())
time.sleep(600)
"""
SERVING = """
import sys
from stages.commands import ui
ui.STOP_S = 0.5
ui.end_by_signals(ui.exit_of)
ui.serve([sys.executable, "-c", sys.argv[1]])
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_serve_leaves_no_process_at_a_signal(number: signal.Signals, status: int) -> None:
    """SIGHUP comes when the terminal is closed."""
    command = [sys.executable, "-c", SERVING, STUBBORN]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    pids = [int(process.stdout.readline()) for _ in range(2)]
    process.send_signal(number)
    assert process.wait(60) == status
    assert not [pid for pid in pids if is_running(pid)]


def is_running(pid: int) -> bool:
    """Returns whether a process runs; a zombie does not."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


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
