import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from stages.core.params import Params
from stages.tracking import store
from tests import warm_python

PROJECT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_processes_may_create_the_store_at_once(params: Params) -> None:
    Path("mlflow.db").unlink()
    code = (
        "from stages.tracking.store import exclusive\n"
        "from stages.tracking.view import View\n"
        "with exclusive(): View('smoke')"
    )
    unmeasured = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    environment = unmeasured | {"PYTHONPATH": str(PROJECT)}
    python = warm_python.commands() / "python"
    both = [subprocess.Popen([python, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait(180) for process in both] == [0, 0]
    with closing(sqlite3.connect(store.DATABASE)) as database:
        names = database.execute("SELECT name FROM experiments").fetchall()
    assert sorted(names) == [("Default",), ("smoke",)]
