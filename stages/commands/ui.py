"""Show the study in MLflow: bring it up to date with the files, then serve it to the browser."""

import argparse
import os
import subprocess
import sys

from stages.core.params import load
from stages.core.process import exit_on_mistake
from stages.tracking import store
from stages.tracking.records import recorded
from stages.tracking.view import reconcile


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m stages.commands.ui", description=__doc__)
    parser.add_argument("--port", type=int, default=5000, help="on 127.0.0.1 (default: 5000)")
    port = parser.parse_args().port

    params = load()
    if not recorded(params) and not store.DATABASE.exists():
        raise ValueError("there is nothing to show yet; run `dvc repro`")
    page = reconcile(params)
    if store.address().startswith("http"):
        print(f"The study is at {store.address()}/{page}")
    else:
        serve(port, page)


def serve(port: int, page: str) -> None:
    """Run MLflow's server until Ctrl-C."""
    print(f"The study is at http://127.0.0.1:{port}/{page} until Ctrl-C", flush=True)
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store.address()]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    # Its background jobs let language models judge: processes that nobody needs here.
    settings = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    server = subprocess.Popen(command, env=settings)
    try:
        raise SystemExit(server.wait())
    except KeyboardInterrupt:
        server.wait()  # Ctrl-C reached it as well


if __name__ == "__main__":
    exit_on_mistake(main)
