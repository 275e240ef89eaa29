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

from stages.core import paths
from stages.core.artifacts import Json, read_json
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
MISTAKE, ERROR = 2, "error: "  # the exit status of a mistake, and how its message begins


@dataclass(frozen=True)
class Tables:
    """The tables of a report. Scores and differences are fractions, not points."""

    page: Path  # the report to open in a browser
    answer: "pd.DataFrame"  # for each task and number of labels: what to use, and how sure that is
    scores: "pd.DataFrame"  # task, run, method, label_budget; mean, low, high and what they cover
    contrasts: "pd.DataFrame"  # what differs between two runs, how sure that is, and confounds
    trials: "pd.DataFrame"  # a row for each run, seeds, task, method and label budget
    costs: "pd.DataFrame"  # the time, memory and energy of each trial and its pretraining
    corpora: "pd.DataFrame"  # how like each corpus is to each task
    estimates: "pd.DataFrame"  # which run suits a task, estimated without training it
    agreement: "pd.DataFrame"  # how well estimates and heuristics ranked the runs
    carry_over: "pd.DataFrame"  # how often two runs keep the order that a small experiment gave
    labels_needed: "pd.DataFrame"  # from which number of labels on a run is ahead of a baseline


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
        path = _written(study, Path(folder)) if isinstance(study, Mapping) else Path(study)
        status, output = _run("--study", str(path.resolve()), "--jobs", str(jobs))
    if status == MISTAKE:
        raise ValueError(_mistakes(output))
    if status:
        raise RuntimeError(f"the study did not finish (exit status {status}); see above")
    return _tables(PROJECT / paths.REPORTS)


def _written(study: Json, folder: Path) -> Path:
    """Writes a study as a file; raises ValueError for values that YAML cannot hold."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import RepresenterError

    path = folder / "study.yaml"
    try:
        with path.open("w", encoding="utf-8") as file:
            # Keeps the order of keys, which is the order of runs and tasks in tables.
            YAML().dump(dict(study), file)
    except RepresenterError as error:
        raise ValueError(f"the study holds what no YAML file can: {error}") from None
    return path


def _run(*arguments: str) -> tuple[int, str]:
    """Runs ``stages.commands.repro`` and prints its output as it comes, since a notebook does not
    show what another process prints. Returns the exit status and the output."""
    command = [sys.executable, "-m", "stages.commands.repro", *arguments]
    # The commands of stages in dvc.yaml call `python`, which must be this one.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    process = subprocess.Popen(
        command,
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


def _mistakes(output: str) -> str:
    """Returns the output from the first line that reports a mistake."""
    lines = output.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith(ERROR)), 0)
    return "\n".join(lines[first:]).removeprefix(ERROR)


def _tables(reports: Path) -> Tables:
    names = [field.name for field in fields(Tables) if field.name not in ("page", "scores")]
    return Tables(
        page=reports / "index.html",
        scores=_scores(read_json(reports / "metrics.json")),
        **{name: _table(reports / f"{name}.csv") for name in names},
    )


def _scores(metrics: Json) -> "pd.DataFrame":
    """Returns a row for each task, run, method and label budget."""
    import pandas as pd

    return pd.DataFrame(
        {"task": task, "run": run, "method": method, "label_budget": budget} | cell
        for task, runs in metrics.items()
        for run, methods in runs.items()
        for method, budgets in methods.items()
        for budget, cell in budgets.items()
    )


def _table(path: Path) -> "pd.DataFrame":
    import pandas as pd

    # Only an empty field is missing: "none" and "NA" are names.
    return pd.read_csv(path, keep_default_na=False, na_values=[""])
