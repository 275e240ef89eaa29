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
from ruamel.yaml.representer import RepresenterError

from stages.core import paths
from stages.core.artifacts import Json
from stages.core.components import STAGES
from stages.core.ending import die_with_parent

if TYPE_CHECKING:
    import pandas as pd

PROJECT = STAGES.parent
# What DVC prints besides the names of stages that run.
NOISE = re.compile(
    r"> |(Generating|Updating) lock|WARNING: .* is empty|Stage .* skipping|\s*$"
    r"|To (track|enable) |\t(git add|dvc config) |Use `dvc push`"
)
MISTAKE = 2  # the exit status of a mistake


@dataclass(frozen=True)
class Tables:
    """The tables of a report. Scores and differences are fractions, not points."""

    page: Path  # the report to open in a browser
    answer: "pd.DataFrame"  # for each task and number of labels: what to use, and how sure that is
    scores: "pd.DataFrame"  # task, run, method, label_budget; mean, low, high
    effects: "pd.DataFrame"  # what mattered: the mean over all matched pairs, and how sure that is
    contrasts: "pd.DataFrame"  # two models on one task, and what else differs between them
    trials: "pd.DataFrame"  # a row for each run, seeds, task, method and label budget
    costs: "pd.DataFrame"  # the time and memory of each trial and its pretraining
    estimates: "pd.DataFrame"  # which run suits a task, estimated without training it


def run_study(study: str | Path | Json, *, jobs: int = 1) -> Tables:
    """Runs the pending stages of a study, as ``make repro`` does, and returns its report.

    ``study`` is a file such as ``studies/smoke.yaml``, or a dict with the content of such a file.
    It replaces ``params.yaml`` in the project of this module. The names of stages are printed as
    they run.

    Raises ValueError with every mistake in the study, or if it would overwrite the only copy of
    a ``params.yaml``. Raises RuntimeError if a stage failed; with several jobs, a ValueError that
    names what failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(study, Mapping):
            path = Path(folder, "study.yaml")
            try:
                YAML().dump(dict(study), path)  # keeps the order of keys: of runs and tasks
            except RepresenterError as error:
                raise ValueError(f"the study holds what no YAML file can: {error}") from None
            study = path
        status, output = _run("--study", str(Path(study).resolve()), "--jobs", str(jobs))
    if status == MISTAKE:
        raise ValueError("error: ".join(re.split("^error: ", output, flags=re.M)[1:]) or output)
    if status:
        raise RuntimeError(f"the study did not finish (exit status {status}); see above")
    import pandas as pd

    # Only an empty field is missing: "none" and "NA" are names.
    reports = PROJECT / paths.REPORTS
    tables = {
        field.name: pd.read_csv(reports / f"{field.name}.csv", keep_default_na=False, na_values="")
        for field in fields(Tables)
        if field.name != "page"
    }
    return Tables(page=reports / "index.html", **tables)


def _run(*arguments: str) -> tuple[int, str]:
    """Runs ``stages.commands.repro`` and prints its output as it comes, since a notebook does not
    show what another process prints. Returns the exit status and the output."""
    # The commands of stages in dvc.yaml call `python`, which must be this one.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "stages.commands.repro", *arguments],
        cwd=PROJECT,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # an interrupt of the notebook is passed on below, only once
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    assert process.stdout
    output: list[str] = []
    try:
        for line in process.stdout:
            if not NOISE.match(line):
                print(line, end="", flush=True)
            output.append(line)
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        raise
    finally:
        process.communicate()  # reads the rest, since a process that cannot write never ends
    return process.returncode, "".join(output)
