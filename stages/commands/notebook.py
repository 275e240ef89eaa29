"""Run a study from Python, as in a notebook, and get its tables as pandas.

from stages.commands.notebook import run_study

tables = run_study("studies/smoke.yaml")
tables.scores.sort_values("mean")
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from stages.core import paths
from stages.core.artifacts import Json
from stages.core.components import STAGES
from stages.core.ending import die_with_parent

if TYPE_CHECKING:
    import pandas as pd

PROJECT = STAGES.parent
MISTAKE = 2  # the exit status of a mistake


@dataclass(frozen=True)
class Tables:
    """The tables of a report. Scores and differences are fractions, not points."""

    page: Path  # the report to open in a browser
    answer: "pd.DataFrame"  # for each task and number of labels: what to use, and how sure that is
    scores: "pd.DataFrame"  # task, model, method, label_budget; mean, low, high
    effects: "pd.DataFrame"  # what mattered: the mean over all matched pairs, and how sure that is
    contrasts: "pd.DataFrame"  # two models on one task, and what else differs between them
    trials: "pd.DataFrame"  # a row for each model, seeds, task, method and label budget
    costs: "pd.DataFrame"  # the time and memory of each trial and its pretraining
    estimates: "pd.DataFrame"  # which model suits a task, estimated without training it


def run_study(study: str | Path | Json, *, jobs: int = 1) -> Tables:
    """Runs the pending stages of a study, as ``make repro`` does, and returns its report.

    ``study`` is a file such as ``studies/smoke.yaml``, or a dict with the content of such a file.
    It replaces ``params.yaml`` in the project of this module. What the stages print is shown as it
    comes, since a notebook does not show what another process prints.

    Raises ValueError with every mistake in the study, or if it would overwrite the only copy of
    a ``params.yaml``. Raises RuntimeError if a stage failed; with several jobs, a ValueError that
    names what failed.
    """
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        if isinstance(study, Mapping):
            path = Path(folder, "study.yaml")
            YAML().dump(dict(study), path)  # keeps the order of keys: of models and tasks
            study = path
        # The commands of stages in dvc.yaml call `python`, which must be this one.
        search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        command = [sys.executable, "-m", "stages.commands.repro", "--jobs", str(jobs)]
        process = subprocess.Popen(
            [*command, "--study", str(Path(study).resolve())],
            cwd=PROJECT,
            env=os.environ | {"PATH": search},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # an interrupt of the notebook is passed on, only once
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        assert process.stdout
        output = ""
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                output += line
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            raise
        finally:
            process.communicate()  # reads the rest, since a process that cannot write never ends
    if process.returncode == MISTAKE:
        raise ValueError("error: ".join(re.split("^error: ", output, flags=re.M)[1:]) or output)
    if process.returncode:
        raise RuntimeError(f"the study failed (exit status {process.returncode}); see above")
    # Only an empty field is missing: "none" and "NA" are names.
    reports = PROJECT / paths.REPORTS
    tables = {
        field.name: pd.read_csv(reports / f"{field.name}.csv", keep_default_na=False, na_values="")
        for field in fields(Tables)
        if field.name != "page"
    }
    return Tables(page=reports / "index.html", **tables)
