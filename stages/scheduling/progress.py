"""The progress of all workers on one screen, or a line for each unit that has ended or is long."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from stages.scheduling.unit import Result, Status, Unit

PATIENCE_S = 10.0
LONG_S = 20.0  # a unit that has run for longer gets a line in a log
ENDS_OF_LINES = re.compile(r"[\r\n]+")


@dataclass(frozen=True)
class State:
    """The state of all units while they run."""

    results: Mapping[str, Result]
    running: Mapping[str, str]  # unit by worker


class Screen:
    """A context that shows states; pass it to ``run_units``."""

    def __init__(self, units: Sequence[Unit], console: Console) -> None:
        self._units = {unit.name: unit for unit in units}
        self._console = console
        self._ended = dict[str, Result]()
        self._since = dict[str, float]()  # start time of each running unit
        self._said_to_run = set[str]()
        self._workers = 1  # the most that were at work at once
        self._began, self._has_waited = time.monotonic(), False
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self._all = self._bar.add_task("units", total=len(units), left="")
        self._live = Live(console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> "Screen":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, state: State) -> None:
        now, running = time.monotonic(), {*state.running.values()}
        self._since = {name: self._since.get(name, now) for name in running}
        self._workers = max(self._workers, len(running))
        for name, result in state.results.items():
            if name not in self._ended and result.status != Status.LEFT_OUT:
                self._ended[name] = result
                self._print(self._line(result, now))
        if not state.running and len(state.results) < len(self._units):
            self._say_that_none_runs(now)
        if self._live:
            self._bar.update(self._all, completed=len(state.results), left=self._left(now))
            self._live.update(Group(self._bar, self._running(state, now)))
        else:
            self._say_what_runs_long(now)

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def _say_that_none_runs(self, now: float) -> None:
        """Prints once that no worker has started: a batch system may take hours to start the
        first."""
        if not self._has_waited and now - self._began > PATIENCE_S:
            self._has_waited = True
            self._print("No worker has started yet; waiting for one")

    def _say_what_runs_long(self, now: float) -> None:
        """Prints once that a unit runs that takes long, since its own line comes at its end."""
        for name, since in self._since.items():
            if name not in self._said_to_run and now - since > LONG_S:
                self._said_to_run.add(name)
                blank = " " * len(self._place())
                self._print(f"{blank}  {_clock(now - since)}  {name} is still running")

    def _place(self) -> str:
        return f"{len(self._ended):>{len(str(len(self._units)))}}/{len(self._units)}"

    def _line(self, result: Result, now: float) -> str:
        status = "" if result.status == Status.DONE else f"  {result.status}"
        left = self._left(now) if result.status == Status.DONE and not self._live else ""
        more = f"  ({left})" if left else ""
        return f"{self._place()}  {_clock(result.seconds)}  {result.unit}{status}{more}"

    def _left(self, now: float) -> str:
        """Returns as text how long the trainings that are left take with as many workers as so far.
        The text is empty before a training has ended, and if none is left."""
        left = [
            max(pace * unit.work - (now - self._since.get(name, now)), 0.0)
            for name, unit in self._units.items()
            if unit.work and name not in self._ended and (pace := self._pace(unit)) is not None
        ]
        seconds = max(sum(left) / self._workers, max(left, default=0.0))
        return f"about {_clock(seconds).strip()} left" if left else ""

    def _pace(self, like: Unit) -> float | None:
        """Returns the seconds per operation of the ended trials or, unless ``like`` has trials, of
        the ended pretrainings; of all that has ended, if nothing of its kind has."""
        done = [
            (result.seconds, unit)
            for name, result in self._ended.items()
            if result.status == Status.DONE and (unit := self._units[name]).work
        ]
        alike = [pair for pair in done if bool(pair[1].trials) == bool(like.trials)]
        ended = alike or done
        return sum(s for s, _ in ended) / sum(unit.work for _, unit in ended) if ended else None

    def _running(self, state: State, now: float) -> Table:
        table = Table.grid(padding=(0, 2), expand=True)
        for _ in range(2):
            table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1, style="dim")
        for _, name in sorted(state.running.items()):
            lines = ENDS_OF_LINES.split(self._units[name].end_of_log().strip())
            table.add_row(_clock(now - self._since[name]), name, lines[-1])
        return table


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes:>3}:{seconds:02}"
