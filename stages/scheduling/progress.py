"""The progress of all workers: one screen in a terminal, a line for each unit in a log."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from stages.scheduling.leaderboard import Leaderboard
from stages.scheduling.unit import Result, Status, Unit

PATIENCE_S = 10.0
SHARE_KNOWN = 0.05  # of the work: before so much has ended, no time left is shown
WEIGHT = 0.3  # of what the last unit that has ended says about the time left


@dataclass(frozen=True)
class State:
    """The state of all units while they run."""

    results: Mapping[str, Result]
    running: set[str]  # units


class TimeLeft:
    """When all units will have ended, from the seconds per work of those that have.

    The forecast moves by a share when a unit ends, and time counts down in between, so that one
    unit that is slower or faster than its like does not make it swing.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = {unit.name: unit for unit in units if unit.work}
        self._total = sum(unit.work for unit in self._units.values())
        self._done = defaultdict[str, list[float]](lambda: [0.0, 0.0])  # work, seconds
        self._end: float | None = None

    def ended(self, result: Result, now: float, since: Mapping[str, float], workers: int) -> None:
        """Counts a unit that is done. ``since`` has the starts of units that run on ``workers``."""
        unit = self._units.pop(result.unit, None)
        if unit is None or result.status != Status.DONE:
            return
        sums = self._done[_kind(unit)]
        sums[0], sums[1] = sums[0] + unit.work, sums[1] + result.seconds
        if sum(work for work, _ in self._done.values()) < SHARE_KNOWN * self._total:
            return
        left = [
            max(self._pace(unit) * unit.work - (now - since.get(name, now)), 0.0)
            for name, unit in self._units.items()
        ]
        end = now + max(sum(left) / workers, max(left, default=0.0))
        self._end = end if self._end is None else self._end + WEIGHT * (end - self._end)

    def _pace(self, unit: Unit) -> float:
        """Returns the seconds per work of a kind of unit, else of all."""
        known = self._done.get(_kind(unit))
        sums = [known] if known else [*self._done.values()]
        return sum(seconds for _, seconds in sums) / sum(work for work, _ in sums)

    def shown(self, now: float) -> str:
        if self._end is None or not self._units:
            return ""
        minutes = max(self._end - now, 0.0) / 60
        return "about a minute left" if minutes < 1.5 else f"about {minutes:.0f} minutes left"


def _kind(unit: Unit) -> str:
    return unit.trials[0].method if unit.trials else ""


class Screen:
    """A context that shows states; pass it to ``run_units``."""

    def __init__(self, units: Sequence[Unit], console: Console) -> None:
        self._units = {unit.name: unit for unit in units}
        self._console, self._ended = console, set[str]()
        self._since = dict[str, float]()  # start time of each running unit
        self._workers = 1  # the most that were at work at once
        self._began, self._has_waited = time.monotonic(), False
        self._left, self._leaderboard = TimeLeft(units), Leaderboard(units)
        self._live = Live(console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> "Screen":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()
        if table := self._leaderboard.table():
            self._console.print(table)

    def __call__(self, state: State) -> None:
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name in state.running}
        self._workers = max(self._workers, len(state.running))
        for name, result in state.results.items():
            if name not in self._ended and result.status != Status.LEFT_OUT:
                self._ended.add(name)
                self._end(self._units[name], result, now)
        waits = not state.running and len(state.results) < len(self._units)
        if waits and not self._has_waited and now - self._began > PATIENCE_S:
            self._has_waited = True  # a batch system may take hours to start the first
            self._console.print("No worker has started yet; waiting for one")
        if self._live:
            self._live.update(self._screen(state, now))

    def _end(self, unit: Unit, result: Result, now: float) -> None:
        self._left.ended(result, now, self._since, self._workers)
        line = f"{self._place()}  {_clock(result.seconds)}  {unit.title}"
        if result.status != Status.DONE:
            line += f"  {result.status}"
        else:
            self._leaderboard.ended(unit)
            line += self._score(unit)
            if not self._live and (left := self._left.shown(now)):
                line += f"  ({left})"
        self._console.print(line, highlight=False, soft_wrap=True)

    def _score(self, unit: Unit) -> str:
        """Returns the mean of a model on a task on validation rows, once all its trials there are
        done."""
        if not unit.trials:
            return ""
        model, task = unit.trials[0].run, unit.trials[0].task
        others = (u for u in self._units.values() if u.name not in self._ended and u.trials)
        if any((other.trials[0].run, other.trials[0].task) == (model, task) for other in others):
            return ""
        score = self._leaderboard.best(model, task)
        shown = "" if score is None else self._leaderboard.shown(score, task)
        return f": {shown} on validation rows" if shown else ""

    def _place(self) -> str:
        return f"{len(self._ended):>{len(str(len(self._units)))}}/{len(self._units)}"

    def _screen(self, state: State, now: float) -> Group:
        running = Table.grid(padding=(0, 2))
        for name in sorted(state.running):
            running.add_row(_clock(now - self._since[name]), self._units[name].title)
        bar = ProgressBar(len(self._units), len(state.results), width=40)
        head = Table.grid(padding=(0, 2))
        head.add_row(self._place(), bar, self._left.shown(now))
        return Group(head, running, self._leaderboard.table() or "")


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes:>3}:{seconds:02}"
