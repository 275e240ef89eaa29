"""The processes that workers start for their units."""

import json
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import pytest

from stages.core.parallel import training_environment
from stages.core.study_file import read_yaml
from stages.scheduling.worker import in_fork
from tests.project import ROOT

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def test_training_environment_is_that_of_a_stage_that_trains(monkeypatch) -> None:
    """Memory is kept and threads wait as dvc.yaml says, in a stage and in a worker's trials."""
    monkeypatch.chdir(ROOT)
    [command] = [var["torch"] for var in read_yaml(ROOT / "dvc.yaml")["vars"] if "torch" in var]
    words = command.removeprefix("exec ").removesuffix("python -m").split()
    shown = subprocess.run([*words, sys.executable, "-c", SHOW], capture_output=True, check=True)
    variables = training_environment()
    assert len(variables) >= 4 and "MALLOC_TRIM_THRESHOLD_" in variables
    assert variables.items() <= json.loads(shown.stdout).items()


@pytest.mark.slow
def test_in_fork_has_the_result_or_the_end_of_its_function() -> None:
    assert in_fork(sorted, "cab") == ["a", "b", "c"]
    with pytest.raises(SystemExit):
        in_fork(sys.exit, 2)
    with pytest.raises(BrokenProcessPool):
        in_fork(exec, "import os; os.kill(os.getpid(), 9)")
