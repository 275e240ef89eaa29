"""Units on the workers of a scheduler, followed until they have ended."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from distributed import Client, Future, KilledWorker, wait
from rich.console import Console

from stages.scheduling import worker
from stages.scheduling.progress import Screen, State
from stages.scheduling.unit import Result, Status, Unit

LOOK_EVERY_S = 1.0
MAX_ATTEMPTS = 3  # at what something kills
LINES_OF_LOG = 12
_attempts = count(1)  # a key names a computation: another attempt needs another


def complete(
    client: Client,
    units: Sequence[Unit],
    left: Callable[[], Sequence[Unit]],
    *,
    mend: Callable[[], None],
) -> None:
    """Run units; if something kills one, run what is ``left``, after ``mend`` has removed what the
    kill left.

    Raises ValueError if units fail, which they would do again, or are killed MAX_ATTEMPTS times.
    """
    console, killed = Console(), list[Unit]()
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            units = left()
        with Screen(units, console) as screen:
            results = run_units(client, units, screen)
        mend()
        by_status = {
            status: [unit for unit in units if results[unit.name].status == status]
            for status in Status
        }
        if failed := by_status[Status.FAILED]:
            for unit in failed:
                lines = unit.end_of_log().strip().splitlines()[-LINES_OF_LOG:]
                print(f"{unit.name} failed; the end of {unit.log}:", *lines, sep="\n    ")
            left_out = len(by_status[Status.LEFT_OUT])
            more = f"; {left_out} that need them were left out" if left_out else ""
            raise ValueError(f"{len(failed)} failed: {_names(failed)}{more}")
        if not (killed := by_status[Status.KILLED]):
            return
    raise ValueError(f"something killed them {MAX_ATTEMPTS} times: {_names(killed)}")


def _names(units: Sequence[Unit]) -> str:
    return ", ".join(unit.name for unit in units)


def run_units(
    client: Client, units: Sequence[Unit], follow: Callable[[State], None]
) -> dict[str, Result]:
    """The result of each unit. A unit that fails costs itself and what needs it.

    ``follow`` is called each second. Where there is no worker yet, the units wait for one.
    """
    attempt, futures = next(_attempts), dict[str, Future]()
    for unit in units:
        needed = [futures[each] for each in unit.needs]
        futures[unit.name] = client.submit(
            worker.run, unit, needed, key=f"{attempt}/{unit.name}", pure=False
        )
    names = {str(future.key): unit for unit, future in futures.items()}
    results, waiting = dict[str, Result](), {*futures.values()}
    while waiting:
        done, waiting = _wait(waiting)
        for future in done:
            name = names[str(future.key)]
            results[name] = _result(name, future)
        follow(State(results, _running(client, names)))
    return results


def _wait(futures: set[Future]) -> tuple[set[Future], set[Future]]:
    """Those that have ended, as soon as there is one, and the others."""
    try:
        found: Any = wait(futures, timeout=LOOK_EVERY_S, return_when="FIRST_COMPLETED")
    except TimeoutError:
        return set(), futures
    return found.done, found.not_done


def _result(unit: str, future: Future) -> Result:
    if future.status == "finished":
        return future.result()
    error = future.exception()
    if not isinstance(error, KilledWorker):
        assert isinstance(error, BaseException)
        raise error  # a bug: a worker gives a result, whatever happens to a unit
    killed = error.task == future.key  # else it is that of a unit that this one needs
    return Result(unit, Status.KILLED if killed else Status.LEFT_OUT)


def _running(client: Client, names: Mapping[str, str]) -> dict[str, str]:
    try:
        processing: Any = client.processing()
    except (OSError, TimeoutError):
        return {}
    return {
        address: names[keys[0]] for address, keys in processing.items() if keys and keys[0] in names
    }
