import os
import subprocess
from pathlib import Path

import pytest

from stages.core.params import Params
from tests import warm_python
from tests.tracking.tracked_study import client

PROJECT = Path(__file__).parents[2]


@pytest.mark.slow
def test_exclusive_lets_two_processes_create_the_store_at_once(params: Params) -> None:
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
    names = [experiment.name for experiment in client().search_experiments()]
    assert sorted(names) == ["Default", "smoke"]
