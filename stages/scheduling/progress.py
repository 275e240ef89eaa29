"""The progress of all workers on one screen, or a line for each unit that has ended."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from stages.scheduling.unit import Result, Status, Unit

PATIENCE_S = 10.0
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
        self._shown = set[str]()
        self._since = dict[str, float]()  # start time of each running unit
        self._began, self._has_waited = time.monotonic(), False
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self._all = self._bar.add_task("units", total=len(units))
        self._live = Live(console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> "Screen":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, state: State) -> None:
        for name, result in state.results.items():
            if name not in self._shown and result.status != Status.LEFT_OUT:
                self._shown.add(name)
                self._console.print(self._line(result), highlight=False, soft_wrap=True)
        if not state.running and len(state.results) < len(self._units):
            self._say_that_none_runs()
        if self._live:
            self._bar.update(self._all, completed=len(state.results))
            self._live.update(Group(self._bar, self._running(state)))

    def _say_that_none_runs(self) -> None:
        """Prints once that no worker has started: a batch system may take hours to start the
        first."""
        if not self._has_waited and time.monotonic() - self._began > PATIENCE_S:
            self._has_waited = True
            self._console.print("No worker has started yet; waiting for one", highlight=False)

    def _line(self, result: Result) -> str:
        place = f"{len(self._shown):>{len(str(len(self._units)))}}/{len(self._units)}"
        status = "" if result.status == Status.DONE else f"  {result.status}"
        left = self._left() if result.status == Status.DONE and not self._live else ""
        return f"{place}  {_clock(result.seconds)}  {result.unit}{status}{left}"

    def _left(self) -> str:
        """Returns the estimated time left, as text for a log, which has no progress bar. All units
        are assumed to take as long as the ended ones. The first units are short, so the text is
        empty until a third of the units have ended."""
        waiting = len(self._units) - len(self._shown)
        if waiting > 2 * len(self._shown):
            return ""
        seconds = (time.monotonic() - self._began) / len(self._shown) * waiting
        return f"  (about {_clock(seconds).strip()} left)" if waiting else ""

    def _running(self, state: State) -> Table:
        now, running = time.monotonic(), {*state.running.values()}
        self._since = {name: self._since.get(name, now) for name in running}
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
