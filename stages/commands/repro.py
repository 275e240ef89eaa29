"""Run the stages of the study in params.yaml that have changed.

With one job this is `dvc repro`. With more jobs, stages, the seeds of a model, and trials run side
by side. Results and dvc.lock are the same, except for measured times. Scores on validation rows are
shown as they come. If a worker dies, only its current work is lost, and is tried again, twice at
most. After an interruption, the next call continues. `--jobs auto` starts a job for each GPU or,
without GPUs, as many jobs of compute.threads threads as the cores allow.

A study that `--study` names is checked first, and then replaces params.yaml.
"""

import argparse
import fcntl
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

from stages.commands._shared import parser_of
from stages.commands._written_study import refuse_faults, refuse_loss, write
from stages.commands.heal import heal, running_dvc
from stages.core.ending import die_with_parent, end_by_signals
from stages.core.parallel import cores, most_jobs
from stages.core.process import LOCKS, exit_on_mistake, refusal, write_holder
from stages.core.study_file import PATH, load, text_of
from stages.planning.pending import ROOT, pending

LOCK = LOCKS / "repro.lock"
REPRO = [sys.executable, "-m", "dvc", "repro"]
AUTO = 0  # jobs


def main() -> None:
    parser = parser_of("repro", __doc__)
    add = parser.add_argument
    add(
        "--jobs",
        type=auto_or_number,
        default=1,
        metavar="N",
        help="workers side by side, or auto (default 1)",
    )
    add("--study", type=Path, metavar="FILE", help=f"put this study in the place of {PATH} first")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--cluster", choices=["slurm"], help="run the workers as jobs of Slurm")
    add("--scheduler", metavar="ADDRESS", help="use the workers of a Dask scheduler that runs")
    options = parser.parse_args()
    if "MAKELEVEL" in os.environ:
        die_with_parent()  # a shell may end before this process (`nohup`), make may not
    end_by_signals(lambda number: KeyboardInterrupt())
    try:
        exit_on_mistake(lambda: _main(options))
    except KeyboardInterrupt:
        print("\ninterrupted; the next `make repro` goes on from here", file=sys.stderr)
        raise SystemExit(130) from None


def auto_or_number(text: str) -> int:
    return AUTO if text == "auto" else int(text)


def _main(options: argparse.Namespace) -> NoReturn:
    jobs, is_local = options.jobs, not (options.cluster or options.scheduler)
    if jobs < 0 or (is_local and jobs > cores()):
        raise ValueError(f"--jobs: must be auto or up to the number of cores here, {cores()}")
    if options.cluster and jobs == AUTO:
        raise ValueError("--jobs: auto counts this machine's cores; give a number for a cluster")
    _lock()
    if options.study:
        _take(options.study)
    compute = (params := load()).compute
    heal()
    # A stage of DVC runs trials side by side where a job has threads for several.
    shows_scores = jobs == AUTO and compute.threads <= compute.trial_threads
    jobs = jobs or most_jobs(compute, params.distributed)
    if jobs > 1 or not is_local or shows_scores:
        _resolve()
        params = load()
        if stages := pending(params):
            from stages.scheduling.schedule import complete, ordered_lock, workers
            from stages.scheduling.units import units

            where = options.cluster, options.scheduler
            with ordered_lock([*stages]), workers(jobs, *where) as client:
                complete(client, units(params, stages))
    # DVC runs what is left, or says that all is up to date. It replaces this process, so that
    # signals reach DVC alone.
    sys.stdout.flush()
    os.execv(REPRO[0], REPRO)


def _lock() -> None:
    """Locks this folder against other calls until this process ends, also while it runs DVC.

    Raises ValueError if another call runs.
    """
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(LOCK, os.O_RDWR | os.O_CREAT)  # stays open
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"another `make repro` runs in this folder: {refusal(LOCK)}") from None
    os.set_inheritable(file, True)  # by DVC, which replaces this process; not by children
    write_holder(LOCK)


def _take(study: Path) -> None:
    """Checks a study and copies it to params.yaml.

    Raises ValueError if the study has faults, or if the study in params.yaml would be lost.
    """
    try:
        text = text_of(study)
    except ValueError as error:
        raise ValueError(f"--study: {error}") from None
    refuse_faults(text, str(study))
    if not PATH.exists() or PATH.read_text(encoding="utf-8") != text:
        refuse_loss("or remove it")
    write(text)  # also where nothing differs: the file keeps this study, so the next may replace it


def _resolve() -> None:
    """Runs the root stage, and shows what DVC says only if it fails.

    Raises SystemExit if the stage fails, and ValueError if another DVC runs in this folder.
    """
    done = subprocess.run(
        [*REPRO, "--single-item", ROOT],
        capture_output=True,
        text=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    if done.returncode and (pid := running_dvc()):
        raise ValueError(f"process {pid} runs DVC in this folder; wait for it, or `kill {pid}`")
    sys.stderr.write(done.stdout * bool(done.returncode) + done.stderr)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
