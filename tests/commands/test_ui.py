import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
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


def test_without_results_it_says_what_to_run(folder: Path) -> None:
    done = subprocess.run(UI, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: there is nothing to show yet; run `dvc repro`\n"
    assert not (folder / "mlflow.db").exists()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen, str]]:
    """That of a study with one run, and what it says that the study's address is."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(PROJECT / "studies" / "smoke.yaml", folder / "params.yaml")
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
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    address = next(word for word in process.stdout.readline().split() if word.startswith("http"))
    assert address.startswith(f"http://127.0.0.1:{port}/#/experiments/1/runs")
    yield process, address
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def test_it_serves_the_results(server: tuple[subprocess.Popen, str]) -> None:
    port = int(server[1].split("/")[2].partition(":")[2])
    found = search_runs(port, patience_s=120)
    assert [run["info"]["run_name"] for run in found] == ["encoder_mlm"]


def test_a_browser_shows_the_runs_and_what_they_are(
    server: tuple[subprocess.Popen, str], browser: list[str]
) -> None:
    command = [*browser, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    command += ["--window-size=2400,900", "--virtual-time-budget=30000", "--dump-dom", server[1]]
    page = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
    cells = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL).split()
    assert {"encoder_mlm", "architecture", "encoder", "size", "2x64", "corpus"} <= set(cells)


def test_it_ends_when_it_is_interrupted(server: tuple[subprocess.Popen, str]) -> None:
    process, _ = server
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
    assert process.wait(60) == 0


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
