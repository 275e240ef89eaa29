"""List what the store of trials holds, or remove what has not been used for some days.

A trial with unchanged inputs, settings and code is taken from the store and not computed again. The
store is .scratch/trials, or the folder that the environment variable TRIALS_STORE names, which
several clones may share.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from stages.commands._console import console
from stages.commands._parser import parser_of
from stages.core.artifacts import Json
from stages.core.process import exit_on_mistake
from stages.core.terminal_table import TableRow, print_table
from stages.trials import store
from stages.trials.store import Listed

DAY_S = 24 * 60 * 60
PIPED_WIDTH = 120


def main() -> None:
    parser = parser_of("trials", __doc__)
    parser.add_argument(
        "--remove-unused",
        type=float,
        metavar="DAYS",
        help="remove trials that were not written or used for this many days; 0: all",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    options = parser.parse_args()
    exit_on_mistake(lambda: _main(options.remove_unused, as_json=options.json))


def _main(days: float | None, *, as_json: bool) -> None:
    if days is not None and not days >= 0:
        raise ValueError(f"--remove-unused: {days:g} days; valid: 0 or more")
    entries, removed = store.listed(), list[Listed]()
    if days is not None:
        removed = store.discard(entry for entry in entries if entry.unused_s >= days * DAY_S)
        entries = store.listed()
    groups = _by_run_and_task(entries)
    if as_json:
        trials = [_row(*key, group) for key, group in groups.items()]
        about = {"store": str(store.root()), "removed": len(removed), "trials": trials}
        print(json.dumps(about, indent=2))
        return
    if days is not None:
        print(f"Removed {len(removed)} trials, {_size(removed)}")
    rows = [
        TableRow(key, (str(len(group)), _size(group), f"{_unused_days(group):.1f} days"))
        for key, group in groups.items()
    ]
    title = f"{store.root()}: {len(entries)} trials, {_size(entries)}"
    numbers = ("trials", "size", "unused for")
    print_table(console(piped_width=PIPED_WIDTH), title, ("run", "task"), numbers, rows)


def _by_run_and_task(entries: Iterable[Listed]) -> dict[tuple[str, str], list[Listed]]:
    """Returns the entries by run (with all its seeds) and task. Unreadable entries are listed
    together."""
    groups: dict[tuple[str, str], list[Listed]] = defaultdict(list)
    for entry in entries:
        groups[entry.run or "(unreadable)", entry.task].append(entry)
    return dict(sorted(groups.items()))


def _row(run: str, task: str, entries: Sequence[Listed]) -> Json:
    num_bytes = sum(entry.num_bytes for entry in entries)
    numbers = {"trials": len(entries), "bytes": num_bytes, "unused_days": _unused_days(entries)}
    return {"run": run, "task": task, **numbers}


def _unused_days(entries: Iterable[Listed]) -> float:
    """Returns the days since the last use of any of the entries."""
    return round(min(entry.unused_s for entry in entries) / DAY_S, 3)


def _size(entries: Iterable[Listed]) -> str:
    return f"{sum(entry.num_bytes for entry in entries) / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
