"""Runs units on the workers of a scheduler, each as soon as the units that it needs are done."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from distributed import Client, KilledWorker, as_completed
from rich.console import Console

from stages.scheduling import worker
from stages.scheduling.progress import Progress
from stages.scheduling.worker import Result, Status, Unit

LOCK = Path("dvc.lock")
MAX_ATTEMPTS = 3  # attempts to run a unit that something kills
LINES_OF_LOG = 12


def complete(
    client: Client,
    units: Sequence[Unit],
    left: Callable[[], Sequence[Unit]],
    *,
    mend: Callable[[], None],
) -> None:
    """Runs units. If something kills some of them, runs the units that ``left`` then returns, and
    so on, at most MAX_ATTEMPTS times. ``mend`` removes the unfinished files after each attempt.

    Raises ValueError if units fail (they would fail again), or are killed in the last attempt.
    """
    killed = list[Unit]()
    for attempt in range(MAX_ATTEMPTS):
        units = left() if attempt else units
        with Progress(units, Console()) as progress:
            results = run_units(client, units, progress)
        mend()
        failed, killed = (
            [unit for unit in units if unit.name in results and results[unit.name].status == status]
            for status in (Status.FAILED, Status.KILLED)
        )
        for unit in failed:
            lines = unit.end_of_log().strip().splitlines()[-LINES_OF_LOG:]
            print(f"{unit.title} failed; the end of {unit.log}:", *lines, sep="\n    ")
        if failed:
            number = len(units) - len(results)
            more = f"; {number} that need them were left out" if number else ""
            raise ValueError(f"{len(failed)} failed: {_titles(failed)}{more}")
        if not killed:
            return
    raise ValueError(f"something killed them {MAX_ATTEMPTS} times: {_titles(killed)}")


def _titles(units: Sequence[Unit]) -> str:
    return "; ".join(unit.title for unit in units)


def run_units(client: Client, units: Sequence[Unit], progress: Progress) -> dict[str, Result]:
    """Runs units and returns their results by their names. If one is not done, the units that need
    it are left out, and have no result. Units wait until there is a worker."""
    waiting, running, results = [*units], dict[object, Unit](), dict[str, Result]()
    ended, done = as_completed(), set[str]()
    if not client.nthreads():  # a batch system may take hours to start the first
        print("No worker has started yet; waiting for one")
    client.subscribe_topic(worker.STARTS, lambda event: progress.started(event[1]))
    while True:
        for unit in [unit for unit in waiting if done.issuperset(unit.needs)]:
            future = client.submit(worker.run, unit, pure=False, priority=unit.priority)
            ended.add(future)
            running[future.key] = unit
            waiting.remove(unit)
        if not running:
            return results
        future = next(ended)
        unit = running.pop(future.key)
        try:
            result = results[unit.name] = future.result()
        except KilledWorker:
            result = results[unit.name] = Result(Status.KILLED)
        if result.status == Status.DONE:
            done.add(unit.name)
        progress.ended(unit, result)


@contextmanager
def ordered_lock(stages: Sequence[str]) -> Iterator[None]:
    """Orders the entries of dvc.lock, when the context ends, as one ``dvc repro`` would: earlier
    entries first, then the new ones in the order of ``stages``. DVC adds an entry when its stage
    ends, so that after stages that ran side by side the order would be random."""
    from dvc.utils.serialize import ParseError, load_yaml, modify_yaml

    before = load_yaml(LOCK).get("stages", {}) if LOCK.exists() else {}
    try:
        yield
    finally:
        if LOCK.exists():
            with suppress(ParseError), modify_yaml(LOCK) as lock:  # `heal` mends a broken one
                entries = lock.get("stages", {})
                for name in dict.fromkeys([*before, *stages, *entries]):
                    if name in entries:
                        entries.move_to_end(name)
