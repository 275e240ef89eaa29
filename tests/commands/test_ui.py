import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen, str]]:
    """Yields the server of a study with one run, and the address that it prints."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(PROJECT / "studies" / "smoke.yaml", folder / "params.yaml")
    run = folder / "data" / "pretrained" / "encoder_mlm" / "1"
    run.mkdir(parents=True)
    about = {"architecture": "encoder", "d_model": 64, "num_layers": 2, "corpus": "none"}
    about |= {"settings": {"seed": 1}, "fingerprint": "a"}
    (run / "run.json").write_text(json.dumps(about))
    (run / "metrics.json").write_text("{}")
    port = free_port()
    command = [*UI, "--port", port]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == f"The study in MLflow: http://127.0.0.1:{port}\n"
    title, address = process.stdout.readline().split()
    assert title == "Models"
    assert address.startswith(f"http://127.0.0.1:{port}/#/experiments/1/runs")
    try:
        search_runs(int(port), patience_s=120)  # the links are printed before the server answers
        yield process, address
    finally:
        process.terminate()  # SIGKILL would leave a child of MLflow's server running
        process.wait(60)


def test_ui_serves_the_results(server: tuple[subprocess.Popen, str]) -> None:
    port = int(server[1].split("/")[2].partition(":")[2])
    names = {run["info"]["run_name"] for run in search_runs(port)}
    assert names == {"pretrain encoder_mlm, seed 1"}


def test_ui_links_to_lists_of_one_kind(
    server: tuple[subprocess.Popen, str], browser: list[str]
) -> None:
    command = [*browser, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    command += ["--window-size=2400,900", "--virtual-time-budget=30000", "--dump-dom"]
    models, trials = server[1], server[1].replace("pretraining", "trial")
    pages = [
        subprocess.run([*command, page], capture_output=True, text=True, timeout=180, check=True)
        for page in (models, trials)
    ]
    shows = ["pretrain encoder_mlm, seed 1" in page.stdout for page in pages]
    assert shows == [True, False]


def test_ui_refuses_a_port_in_use(folder: Path) -> None:
    (folder / "mlflow.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*UI, "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: --port: ")


def test_ui_ends_its_server_at_sigterm(server: tuple[subprocess.Popen, str]) -> None:
    process, address = server
    port = int(address.split("/")[2].partition(":")[2])
    assert search_runs(port)
    os.kill(process.pid, signal.SIGTERM)  # no other process
    assert process.wait(60) == 128 + signal.SIGTERM
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0


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


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def is_running(pid: int) -> bool:
    """Returns whether a process runs; a zombie does not."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def search_runs(port: int, *, patience_s: float = 0) -> list[dict]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search",
        json.dumps({"experiment_ids": ["1"]}).encode(),
        {"Content-Type": "application/json"},
    )
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return json.load(response)["runs"]
        except OSError:
            if time.monotonic() - began > patience_s:
                raise
            time.sleep(0.2)
