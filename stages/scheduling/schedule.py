"""Runs units on the workers of a scheduler and follows them until they have ended."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from distributed import Client, Future, KilledWorker, wait
from rich.console import Console

from stages.scheduling import worker
from stages.scheduling.progress import Screen, State
from stages.scheduling.unit import Result, Status, Unit

LOOK_EVERY_S = 1.0
MAX_ATTEMPTS = 3  # attempts to run a unit that something kills
LINES_OF_LOG = 12
_attempts = count(1)  # part of Dask's keys: another attempt needs other keys


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
        with Screen(units, Console()) as screen:
            results = run_units(client, units, screen)
        mend()
        failed, killed = (
            [unit for unit in units if results[unit.name].status == status]
            for status in (Status.FAILED, Status.KILLED)
        )
        for unit in failed:
            lines = unit.end_of_log().strip().splitlines()[-LINES_OF_LOG:]
            print(f"{unit.title} failed; the end of {unit.log}:", *lines, sep="\n    ")
        if failed:
            left_out = [r for r in results.values() if r.status == Status.LEFT_OUT]
            more = f"; {len(left_out)} that need them were left out" if left_out else ""
            raise ValueError(f"{len(failed)} failed: {_titles(failed)}{more}")
        if not killed:
            return
    raise ValueError(f"something killed them {MAX_ATTEMPTS} times: {_titles(killed)}")


def _titles(units: Sequence[Unit]) -> str:
    return "; ".join(unit.title for unit in units)


def run_units(
    client: Client, units: Sequence[Unit], follow: Callable[[State], None]
) -> dict[str, Result]:
    """Runs units and returns their results. If one fails, only the units that need it are left out.

    ``follow`` is called every second. Units wait until there is a worker.
    """
    attempt, futures = next(_attempts), dict[str, Future]()
    for unit in units:
        needed = [futures[name] for name in unit.needs]
        futures[unit.name] = client.submit(
            worker.run, unit, needed, key=f"{attempt}/{unit.name}", pure=False
        )
    names = {str(future.key): unit for unit, future in futures.items()}
    results, waiting = dict[str, Result](), {*futures.values()}
    while waiting:
        try:
            ended: Any = wait(waiting, timeout=LOOK_EVERY_S, return_when="FIRST_COMPLETED")
        except TimeoutError:
            done = set[Future]()
        else:
            done, waiting = ended.done, ended.not_done
        for future in done:
            name = names[str(future.key)]
            results[name] = _result(name, future)
        follow(State(results, _running(client, names)))
    return results


def _result(unit: str, future: Future) -> Result:
    if future.status == "finished":
        return future.result()
    error = future.exception()
    if not isinstance(error, KilledWorker):
        assert isinstance(error, BaseException)
        raise error  # a bug: a worker returns a result whatever happens to a unit
    killed = error.task == future.key  # else a unit that this one needs was killed
    return Result(unit, Status.KILLED if killed else Status.LEFT_OUT)


def _running(client: Client, names: Mapping[str, str]) -> set[str]:
    """Returns the units at which workers are."""
    try:
        processing: Any = client.processing()
    except (OSError, TimeoutError):
        return set()
    return {names[keys[0]] for keys in processing.values() if keys and keys[0] in names}
