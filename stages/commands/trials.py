"""List what the store of trials holds, or remove what has not been used for some days.

A trial whose inputs, settings and code are as they were is taken from the store and not computed
again. The store is .scratch/trials, or the folder that the environment variable TRIALS_STORE names,
which several clones may share.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.table import Table

from stages.commands._console import console
from stages.core.artifacts import Json
from stages.core.process import exit_on_mistake
from stages.trials import store
from stages.trials.store import Listed

DAY_S = 24 * 60 * 60
PIPED_WIDTH = 120


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m stages.commands.trials",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--remove-unused",
        type=float,
        metavar="DAYS",
        help="remove trials that were not written or taken for so many days; 0: all",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    given = parser.parse_args()
    exit_on_mistake(lambda: _main(given.remove_unused, as_json=given.json))


def _main(days: float | None, *, as_json: bool) -> None:
    if days is not None and not days >= 0:
        raise ValueError(f"--remove-unused: {days:g} days; valid: 0 or more")
    found, removed = store.listed(), list[Listed]()
    if days is not None:
        removed = store.discard(each for each in found if each.unused_s >= days * DAY_S)
        found = store.listed()
    if as_json:
        rows = [_row(*place, some) for place, some in _places(found).items()]
        about = {"store": str(store.root()), "removed": len(removed), "trials": rows}
        print(json.dumps(about, indent=2))
        return
    if days is not None:
        print(f"Removed {len(removed)} trials, {_size(removed)}")
    _show(found)


def _show(found: Sequence[Listed]) -> None:
    table = Table(
        title=f"{store.root()}: {len(found)} trials, {_size(found)}", title_justify="left"
    )
    for name in ("run", "task", "trials", "size", "unused for"):
        table.add_column(name, justify="left" if name in ("run", "task") else "right")
    for (run, task), some in _places(found).items():
        days = f"{_unused_days(some):.1f} days"
        table.add_row(run, task, str(len(some)), _size(some), days)
    console(piped_width=PIPED_WIDTH).print(table)


def _places(found: Iterable[Listed]) -> dict[tuple[str, str], list[Listed]]:
    """The entries of each run and task; what cannot be read has neither."""
    places: dict[tuple[str, str], list[Listed]] = defaultdict(list)
    for each in found:
        places[each.run or "(unreadable)", each.task].append(each)
    return dict(sorted(places.items()))


def _row(run: str, task: str, some: Sequence[Listed]) -> Json:
    num_bytes = sum(each.num_bytes for each in some)
    numbers = {"trials": len(some), "bytes": num_bytes, "unused_days": _unused_days(some)}
    return {"run": run, "task": task, **numbers}


def _unused_days(some: Iterable[Listed]) -> float:
    """Of the one that was used last."""
    return round(min(each.unused_s for each in some) / DAY_S, 3)


def _size(found: Iterable[Listed]) -> str:
    return f"{sum(each.num_bytes for each in found) / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
