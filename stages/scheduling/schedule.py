"""Runs units on the workers of a scheduler, each as soon as the units that it needs are done."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from distributed import Client, KilledWorker, as_completed

from stages.scheduling import worker
from stages.scheduling.progress import Progress
from stages.scheduling.worker import Killed, Result, Unit

LOCK = Path("dvc.lock")
RETRIES = 2  # of a unit that something kills
LINES_OF_LOG = 12


def complete(client: Client, units: Sequence[Unit]) -> None:
    """Runs units. If one is not done, the units that need it are left out. Units wait until there
    is a worker.

    Raises ValueError at the end if units failed, or were killed in each attempt.
    """
    waiting, running, done = [*units], dict[object, Unit](), set[str]()
    ended, failed = as_completed(), list[Unit]()
    if not client.nthreads():  # a batch system may take hours to start the first
        print("No worker has started yet; waiting for one")
    with Progress(units) as progress:
        client.subscribe_topic(worker.STARTS, lambda event: progress.started(event[1]))
        while True:
            for unit in [unit for unit in waiting if done.issuperset(unit.needs)]:
                future = client.submit(
                    worker.run, unit, pure=False, priority=unit.priority, retries=RETRIES
                )
                ended.add(future)
                running[future.key] = unit
                waiting.remove(unit)
            if not running:
                break
            future = next(ended)
            unit = running.pop(future.key)
            try:
                result = future.result()
            except (Killed, KilledWorker):
                result = Result("killed")
            failed += [unit] if result.failure else []
            done |= set() if result.failure else {unit.name}
            progress.ended(unit, result)
    for unit in failed:
        lines = unit.log.read_text(errors="replace").strip().splitlines()[-LINES_OF_LOG:]
        print(f"{unit.title} failed; the end of {unit.log}:", *lines, sep="\n    ")
    if failed:
        titles = "; ".join(unit.title for unit in failed)
        left_out = f"{len(waiting)} that need them were left out"
        raise ValueError(f"{len(failed)} failed: {titles}; {left_out}")


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
