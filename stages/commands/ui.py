"""Show the study in MLflow: bring MLflow up to date with the files, then serve it to the browser.

It serves until Ctrl-C, SIGTERM or the end of its terminal, and leaves no server behind.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from typing import NoReturn

from stages.commands._shared import parser_of
from stages.core.ending import die_with_parent, end_by_signals
from stages.core.process import exit_on_mistake
from stages.core.study_file import load
from stages.tracking import store
from stages.tracking.records import recorded
from stages.tracking.view import reconcile

STOP_S = 5.0


def main() -> None:
    parser = parser_of("ui", __doc__)
    parser.add_argument("--port", type=int, default=5000, help="on 127.0.0.1 (default: 5000)")
    port = parser.parse_args().port
    params = load()
    if not store.DATABASE.exists() and not any(recorded(params)):
        raise ValueError("there is nothing to show yet; run `make repro`")
    is_remote = store.address().startswith("http")
    if not is_remote:
        _refuse_used(port)
    end_by_signals(exit_of)
    pages = reconcile(params)
    address = store.without_password(store.address()) if is_remote else f"http://127.0.0.1:{port}"
    print(f"The study in MLflow: {address}")
    for title, page in pages.items():
        print(f"  {title:11} {address}/{page}")
    if not is_remote:
        print("Served until Ctrl-C.", flush=True)
        server = f"mlflow ui --host 127.0.0.1 --port {port} --workers 1 --uvicorn-opts"
        # A line for each request would scroll the links away.
        serve([sys.executable, "-m", *server.split(), "--log-level warning"])


def exit_of(number: int) -> SystemExit:
    """Returns the SystemExit for a signal: status 0 after Ctrl-C, else 128 plus its number."""
    return SystemExit(0 if number == signal.SIGINT else 128 + number)


def _refuse_used(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise ValueError(f"--port: {port} cannot be used ({error}); name another") from None


def serve(command: list[str]) -> NoReturn:
    """Runs a server until this process ends, and then stops the server and its children.

    Raises ValueError if the server ends first.
    """
    settings = {
        # The server's background jobs evaluate with language models, which is not used here.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        # The address may have a password, and every user can read the command line.
        "MLFLOW_BACKEND_STORE_URI": store.address(),
    }
    # The server has a process group of its own, so that a signal reaches its children as well.
    server = subprocess.Popen(
        command,
        env=os.environ | settings,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    try:
        status = server.wait()
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(server.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                server.wait(STOP_S)
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    # MLflow's own status is 0 even where its server could not start.
    raise ValueError(f"the server of MLflow has ended by itself (status {status}); see above why")


if __name__ == "__main__":
    exit_on_mistake(main)
