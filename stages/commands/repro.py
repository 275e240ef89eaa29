"""Run the stages of the study in params.yaml that have changed.

With one job this is `dvc repro`. With more jobs, stages, the seeds of a run, and trials run side by
side. Results and dvc.lock are the same, except for measured times. Scores on validation rows are
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
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stages.commands._shared import parser_of
from stages.commands._written_study import refuse_faults, refuse_loss, write
from stages.commands.heal import heal, running_dvc
from stages.core.ending import die_with_parent, end_by_signals
from stages.core.parallel import cores, most_jobs, visible_gpus
from stages.core.process import LOCKS, exit_on_mistake, refusal, write_holder
from stages.core.study_file import PATH, load, text_of
from stages.planning.pending import ROOT, pending

if TYPE_CHECKING:
    from stages.scheduling.pool import Client

LOCK = LOCKS / "repro.lock"
REPRO = [sys.executable, "-m", "dvc", "repro"]
AUTO = 0  # jobs


def main() -> None:
    parser = parser_of("repro", __doc__)
    parser.add_argument(
        "--jobs",
        type=auto_or_number,
        default=1,
        metavar="N",
        help="workers side by side, or auto, as many as compute.threads and the machine allow "
        "(default 1)",
    )
    parser.add_argument(
        "--study", type=Path, metavar="FILE", help=f"put this study in the place of {PATH} first"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--cluster",
        choices=["slurm"],
        help="run the workers as jobs of Slurm, with the settings that Dask has for it",
    )
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="use the workers of a Dask scheduler that runs"
    )
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
    """Returns a number of jobs, or AUTO; raises ValueError for anything else."""
    jobs = AUTO if text == "auto" else int(text)
    if text != "auto" and jobs < 1:
        raise ValueError
    return jobs


def _main(options: argparse.Namespace) -> NoReturn:
    if options.cluster and options.jobs == AUTO:
        raise ValueError("--jobs: auto counts this machine's cores; give a number for a cluster")
    _lock()
    if options.study:
        _take(options.study)
    compute = (params := load()).compute
    heal()
    # A stage of DVC runs trials side by side where a job has threads for several.
    shows_scores = options.jobs == AUTO and compute.threads <= compute.trial_threads
    if options.jobs == AUTO:
        options.jobs = most_jobs(compute, params.distributed)
    if options.jobs > 1 or options.cluster or options.scheduler or shows_scores:
        _resolve()
        params = load()
        if stages := pending(params):
            from stages.scheduling.schedule import complete, ordered_lock
            from stages.scheduling.units import units

            with ordered_lock([*stages]), _workers(options, compute.threads) as client:
                todo = units(params, stages)
                complete(client, todo, lambda: units(params, pending(params)), mend=heal)
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
        refuse_loss(PATH, "or remove it")
        write(PATH, text)


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
        raise ValueError(
            f"process {pid} runs DVC in this folder; wait until it ends, or end it "
            f"(`kill {pid}`), and run this again"
        )
    sys.stderr.write(done.stdout * bool(done.returncode) + done.stderr)
    if done.returncode:
        raise SystemExit(done.returncode)


def _workers(options: argparse.Namespace, threads: int) -> "AbstractContextManager[Client]":
    from stages.scheduling import pool

    if options.scheduler:
        return pool.running(options.scheduler)
    if options.cluster:
        return pool.slurm(options.jobs)
    available = cores()
    if options.jobs > available:
        raise ValueError(f"--jobs: {options.jobs} is above the number of cores here, {available}")
    if options.jobs * threads > available and not visible_gpus():
        print(
            f"note: {options.jobs} jobs of {threads} threads (compute.threads) share {available} "
            f"cores; compute.threads: {max(available // options.jobs, 1)} would give each its own",
            file=sys.stderr,
        )
    return pool.local(options.jobs)


if __name__ == "__main__":
    main()
