"""Show the study in MLflow: bring MLflow up to date with the files, then serve it to the browser.

It serves until Ctrl-C, SIGTERM or the end of its terminal.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial

from stages.commands._shared import parser_of
from stages.core.ending import die_with_parent, end_by_signals
from stages.core.process import exit_on_mistake
from stages.core.study_file import load
from stages.tracking import store
from stages.tracking.records import recorded
from stages.tracking.view import reconcile


def main() -> None:
    parser = parser_of("ui", __doc__)
    parser.add_argument("--port", type=int, default=5000, help="on 127.0.0.1 (default: 5000)")
    port = parser.parse_args().port
    params = load()
    if not store.DATABASE.exists() and not any(recorded(params)):
        raise ValueError("there is nothing to show yet; run `make repro`")
    is_remote = store.address().startswith("http")
    address = store.without_password(store.address()) if is_remote else f"http://127.0.0.1:{port}"
    if not is_remote:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            raise ValueError(f"--port: {port} cannot be used ({error}); name another") from None
    end_by_signals(lambda number: SystemExit(0 if number == signal.SIGINT else 128 + number))
    pages = reconcile(params)
    print(f"The study in MLflow: {address}")
    for title, page in pages.items():
        print(f"  {title:11} {address}/{page}")
    if is_remote:
        return
    print("Served until Ctrl-C.", flush=True)
    server = f"mlflow ui --host 127.0.0.1 --port {port} --workers 1 --uvicorn-opts"
    environment = {
        # The server's background jobs evaluate with language models, which is not used here.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        # The address may have a password, and every user can read the command line.
        "MLFLOW_BACKEND_STORE_URI": store.address(),
    }
    # It has a process group of its own, so that the signal at the end reaches its children as well.
    running = subprocess.Popen(
        # A line for each request would scroll the links away.
        [sys.executable, "-m", *server.split(), "--log-level warning"],
        env=os.environ | environment,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    try:
        status = running.wait()
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(running.pid, signal.SIGTERM)
        running.wait()
    # MLflow's own status is 0 even where its server could not start.
    raise ValueError(f"the server of MLflow has ended by itself (status {status}); see above why")


if __name__ == "__main__":
    exit_on_mistake(main)
