"""The progress of all workers: a line for each unit that ends and, on a terminal, what runs, the
time left and the scores on validation rows so far. Scores on test rows come with the report."""

import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import TrialKey
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.records import budget_order, read_texts
from stages.scheduling.worker import Result, Scores, Status, Unit

if TYPE_CHECKING:
    import pandas as pd

SHARE_KNOWN = 0.05  # of the work: before so much has ended, no time left is shown
FIT_BASELINE = "fit_baseline@"


class Progress:
    """A context in which units run; ``started`` and ``ended`` say what happens."""

    def __init__(self, units: Sequence[Unit], console: Console) -> None:
        self._units = {unit.name: unit for unit in units}
        self._since = dict[str, float]()  # when each unit that runs has started
        self._ended = dict[str, Result]()
        self._workers = 1  # the most that were at work at once
        self._scores = list[tuple[TrialKey, float]]()
        for unit in units:
            stage, _, task = unit.name.partition("@")
            self._scores += unit.stored
            if stage == "finetune" and f"{FIT_BASELINE}{task}" not in self._units:
                self._scores += baseline_scores(task)
        self._console = console
        self._live = Live(
            get_renderable=self._screen,
            console=console,
            auto_refresh=console.is_terminal,
            refresh_per_second=1,
            transient=True,
        )

    def __enter__(self) -> "Progress":
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()
        if self._scores:
            self._console.print(leaderboard(self._scores))

    def started(self, unit: str) -> None:
        self._since[unit] = time.monotonic()
        self._workers = max(self._workers, len(self._since))

    def ended(self, unit: Unit, result: Result) -> None:
        self._since.pop(unit.name, None)
        self._ended[unit.name] = result
        line = f"{self._place()}  {_clock(result.seconds)}  {unit.title}"
        self._scores += result.scores
        if result.status != Status.DONE:
            line += f"  {result.status}"
        elif unit.name.startswith(FIT_BASELINE):
            self._scores += baseline_scores(unit.name.removeprefix(FIT_BASELINE))
        elif result.scores:
            key, _ = result.scores[0]
            mean = best_merits(self._scores).at[key.run, key.task]
            line += f": {_shown(key.task, mean)} on validation rows"
        if not self._console.is_terminal and (left := self.time_left()):
            line += f"  ({left})"
        self._console.print(line, highlight=False, soft_wrap=True)

    def time_left(self) -> str:
        """Returns when all units will have ended, if they go on as fast for their work as the
        median unit of their kind that has ended; empty if that is unknown."""
        paces = defaultdict[str, list[float]](list)  # seconds per work
        working = [unit for unit in self._units.values() if unit.work]
        for unit in working:
            result = self._ended.get(unit.name)
            if result is not None and result.status == Status.DONE:
                paces[_kind(unit)].append(result.seconds / unit.work)
        left = [unit for unit in working if unit.name not in self._ended]
        ahead = sum(unit.work for unit in left) / (sum(unit.work for unit in working) or 1)
        if not left or not paces or ahead > 1 - SHARE_KNOWN:
            return ""
        known = {kind: median(values) for kind, values in paces.items()}
        usual, now = median(known.values()), time.monotonic()
        seconds = [
            known.get(_kind(unit), usual) * unit.work - now + self._since.get(unit.name, now)
            for unit in left
        ]
        spread = sum(max(each, 0.0) for each in seconds) / self._workers
        minutes = max(spread, *seconds) / 60
        return "about a minute left" if minutes < 1.5 else f"about {minutes:.0f} minutes left"

    def _place(self) -> str:
        return f"{len(self._ended):>{len(str(len(self._units)))}}/{len(self._units)}"

    def _screen(self) -> Group:
        running, head = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
        for name, since in [*self._since.items()]:
            running.add_row(_clock(time.monotonic() - since), self._units[name].title)
        bar = ProgressBar(len(self._units), len(self._ended), width=40)
        head.add_row(self._place(), bar, self.time_left())
        return Group(head, running, leaderboard(self._scores) if self._scores else "")


def baseline_scores(task: str) -> Scores:
    """Returns the scores on validation rows of the baselines that a stage has fitted to a task."""
    rows = read_texts(paths.BASELINES / task / "trials.csv")
    return tuple(
        (TrialKey(row["run"], 0, task, row["method"], row["label_budget"], 0), float(score))
        for row in rows
        if (score := row.get("validation_score"))
    )


def best_merits(scores: Sequence[tuple[TrialKey, float]]) -> "pd.DataFrame":
    """Returns the mean score [model x task] over seeds, with the best method and the most labels so
    far, negated if lower is better; the best model on the first task first."""
    import pandas as pd

    columns = ["model", "task", "method", "labels", "merit"]
    frame = pd.DataFrame(
        [
            (k.run, k.task, k.method, budget_order(k.label_budget), merit(_metric(k.task), score))
            for k, score in scores
        ],
        columns=columns,
    )
    frame = frame[frame.labels == frame.groupby(columns[:2]).labels.transform("max")]
    means = frame.groupby(columns[:3], sort=False).merit.mean()
    best = means.groupby(columns[:2], sort=False).max().unstack("task")
    return best.sort_values([*best.columns], ascending=False)


def leaderboard(scores: Sequence[tuple[TrialKey, float]]) -> Table:
    merits = best_merits(scores)
    table = Table("so far", *merits.columns, title="Scores on validation rows", box=None)
    for row in merits.itertuples():
        cells = zip(merits.columns, row[1:], strict=True)
        table.add_row(row[0], *(_shown(task, value) for task, value in cells))
    return table


def _shown(task: str, value: float) -> str:
    metric = _metric(task)
    return "" if value != value else scale_of(metric).shown(merit(metric, value))


@cache
def _metric(task: str) -> str:
    return read_json(paths.examples(task) / "task.json")["metric"]


def _kind(unit: Unit) -> str:
    return unit.trials[0].method if unit.trials else ""


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes:>3}:{seconds:02}"
