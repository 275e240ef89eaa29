"""The environment that workers give to the processes of their units."""

import json
import subprocess
import sys

from stages.core.study_file import read_yaml
from stages.core.training_environment import training_environment
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
