"""Run the study of params.yaml, what changed of it.

With one job this is `dvc repro`. With more, what is ready runs side by side: stages, the seeds of a
run, and trials. Results and dvc.lock are the same then, times apart. A worker that dies costs what
it was doing, which is tried again, twice at most. What is interrupted goes on with the next call.
`--jobs auto` is a job for each GPU, or for each compute.threads of the cores there are.

Another study than that of params.yaml is checked first, and then takes its place.
"""

import argparse
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stages.commands._written_study import refuse_faults, refuse_loss, write
from stages.commands.heal import heal
from stages.core.parallel import cores, visible_gpus
from stages.core.params import Params
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH, load
from stages.planning.pending import ROOT, pending

if TYPE_CHECKING:
    from stages.scheduling.clusters import Client

REPRO = [sys.executable, "-m", "dvc", "repro"]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m stages.commands.repro",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--jobs",
        type=_jobs,
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
        metavar="SYSTEM",
        help="run the workers as jobs of a batch system: slurm, pbs, sge, lsf, oar, moab or "
        "htcondor, with the settings that Dask has for it",
    )
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="use the workers of a Dask scheduler that runs"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        exit_on_mistake(lambda: _main(options))
    except KeyboardInterrupt:
        print("\ninterrupted; the next `make repro` goes on from here", file=sys.stderr)
        raise SystemExit(130) from None


def _jobs(text: str) -> int | None:
    """Returns a number of jobs, or None for auto."""
    if text == "auto":
        return None
    try:
        jobs = int(text)
    except ValueError:
        jobs = 0
    if jobs < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number from 1")
    return jobs


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _main(options: argparse.Namespace) -> NoReturn:
    if options.cluster and options.jobs is None:
        raise ValueError("--jobs: auto counts this machine's cores; give a number for a cluster")
    if options.study:
        _take(options.study)
    load()  # before DVC reads the file, which has no limits
    heal()
    if options.jobs is None and not options.scheduler:
        options.jobs = _most_jobs(load())
    if options.jobs != 1 or options.cluster or options.scheduler:
        _side_by_side(options)
    # DVC runs what is left, or says that all is up to date. It replaces this process, so that a
    # signal reaches it alone.
    sys.stdout.flush()
    os.execv(REPRO[0], REPRO)


def _take(study: Path) -> None:
    """Puts a study in the place of params.yaml.

    Raises ValueError if it is refused, or if the study of params.yaml would be lost.
    """
    try:
        text = study.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--study: {study} cannot be read: {error}") from None
    refuse_faults(text, str(study))
    if PATH.exists() and PATH.read_text(encoding="utf-8") == text:
        return
    refuse_loss(PATH, "or remove it")
    write(PATH, text)


def _side_by_side(options: argparse.Namespace) -> None:
    """Runs the pending stages on several workers.

    Raises ValueError if units failed and SystemExit if params.yaml has faults.
    """
    if code := subprocess.run([*REPRO, "--quiet", "--single-item", ROOT]).returncode:
        raise SystemExit(code)
    params = load()
    stages = pending(params)
    if not stages:
        return
    workers = _workers(options, params)
    from stages.scheduling import lock_order
    from stages.scheduling.schedule import complete
    from stages.scheduling.units import units

    with lock_order.of_one_run([*stages]), workers as client:
        todo = units(params, stages)
        complete(client, todo, lambda: units(params, pending(params)), mend=heal)


def _most_jobs(params: Params) -> int:
    """Returns the largest number of jobs that share neither a GPU nor a core."""
    if params.compute.device != "cpu" and (gpus := visible_gpus()):
        return len(gpus) if params.distributed.devices == 1 else 1  # a worker sees one GPU
    return max(cores() // params.compute.threads, 1)


def _workers(options: argparse.Namespace, params: Params) -> "AbstractContextManager[Client]":
    try:
        from stages.scheduling import clusters
    except ModuleNotFoundError as error:
        raise ValueError(
            f"several jobs need the package {error.name}; `make setup` installs it"
        ) from None
    if options.scheduler:
        return clusters.running(options.scheduler)
    if options.cluster:
        return clusters.batch(options.cluster, options.jobs)
    available, threads = cores(), params.compute.threads
    if options.jobs > available:
        raise ValueError(f"--jobs: {options.jobs} is above the number of cores here, {available}")
    if options.jobs * threads > available and not visible_gpus():
        print(
            f"note: {options.jobs} jobs of {threads} threads (compute.threads) share {available} "
            f"cores; compute.threads: {max(available // options.jobs, 1)} would give each its own",
            file=sys.stderr,
        )
    return clusters.local(options.jobs)


if __name__ == "__main__":
    main()
