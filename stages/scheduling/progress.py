"""The progress of all workers: a line for each unit that ends and, on a terminal, what runs, the
time left and the scores on validation rows so far. Scores on test rows come with the report."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

from rich import progress
from rich.console import Console, RenderableType
from rich.table import Table

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import TrialKey
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.records import budget_order, read_texts
from stages.scheduling.worker import Result, Scores, Unit

if TYPE_CHECKING:
    import pandas as pd

SHARE_KNOWN = 0.05  # of the work: before so much has ended, no time left is shown
FIT_BASELINE = "fit_baseline@"


class Progress(progress.Progress):
    """A context in which units run; ``started`` and ``ended`` say what happens."""

    def __init__(self, units: Sequence[Unit], console: Console | None = None) -> None:
        self._units = {unit.name: unit for unit in units}
        self._running = dict[str, progress.TaskID]()
        self._ended = dict[str, Result]()
        self._workers = 1  # the most that were at work at once
        self._scores = list[tuple[TrialKey, float]]()
        for unit in units:
            stage, _, task = unit.name.partition("@")
            self._scores += unit.stored
            if stage == "finetune" and f"{FIT_BASELINE}{task}" not in self._units:
                self._scores += baseline_scores(task)
        columns = progress.TimeElapsedColumn(), progress.TextColumn("{task.description}")
        super().__init__(*columns, console=console, refresh_per_second=1, transient=True)

    def stop(self) -> None:
        super().stop()
        if self._scores:
            self.console.print(leaderboard(self._scores))

    def started(self, unit: str) -> None:
        if unit not in self._running and unit not in self._ended:  # else it is tried again
            self._running[unit] = self.add_task(self._units[unit].title, total=None)
        self._workers = max(self._workers, len(self._running))

    def ended(self, unit: Unit, result: Result) -> None:
        if (task := self._running.pop(unit.name, None)) is not None:
            self.remove_task(task)
        self._ended[unit.name] = result
        minutes, seconds = divmod(round(result.seconds), 60)
        line = f"{self._place()}  {minutes:>3}:{seconds:02}  {unit.title}"
        self._scores += result.scores
        if result.failure:
            line += f"  {result.failure}"
        elif unit.name.startswith(FIT_BASELINE):
            scores = baseline_scores(unit.name.removeprefix(FIT_BASELINE))
            self._scores += scores
            line += f": {_best(scores)} on validation rows" if scores else ""
        elif result.scores:
            key, score = result.scores[0]
            own = _shown(key.task, merit(_metric(key.task), score))
            line += f": {own} on validation rows"
        if not self.console.is_terminal and (left := self.time_left()):
            line += f"  ({left})"
        self.console.print(line, highlight=False, soft_wrap=True)

    def time_left(self) -> str:
        """Returns when all units will have ended, if each is as fast as the median ended unit of
        its method; empty if that is unknown."""
        paces = defaultdict[str, list[float]](list)  # seconds per work
        working = [unit for unit in self._units.values() if unit.work]
        for unit in working:
            result = self._ended.get(unit.name)
            if result is not None and not result.failure:
                paces[_method(unit)].append(result.seconds / unit.work)
        left = [unit for unit in working if unit.name not in self._ended]
        ahead = sum(unit.work for unit in left) / (sum(unit.work for unit in working) or 1)
        if not left or not paces or ahead > 1 - SHARE_KNOWN:
            return ""
        known = {method: median(values) for method, values in paces.items()}
        usual = median(known.values())
        ran = {name: self._tasks[task].elapsed or 0.0 for name, task in self._running.items()}
        seconds = [
            max(known.get(_method(unit), usual) * unit.work - ran.get(unit.name, 0.0), 0.0)
            for unit in left
        ]
        minutes = max(sum(seconds) / self._workers, *seconds) / 60
        # The size of a checkpoint that is fetched while the study runs is unknown.
        sizeless = {unit.name for unit in self._units.values() if unit.trials and not unit.work}
        about = "about" if self._ended.keys() >= sizeless else "more than"
        return f"{about} a minute left" if minutes < 1.5 else f"{about} {minutes:.0f} minutes left"

    def get_renderables(self) -> Iterable[RenderableType]:
        yield f"{self._place()}  {self.time_left()}"
        yield from super().get_renderables()
        if self._scores:
            yield leaderboard(self._scores)

    def _place(self) -> str:
        return f"{len(self._ended):>{len(str(len(self._units)))}}/{len(self._units)}"


def baseline_scores(task: str) -> Scores:
    """Returns the scores on validation rows of the baselines that a stage has fitted to a task."""
    return tuple(
        (TrialKey(row["model"], 0, task, row["method"], row["label_budget"], 0), float(score))
        for row in read_texts(paths.BASELINES / task / "trials.csv")
        if (score := row.get("validation_score"))
    )


def best_merits(scores: Sequence[tuple[TrialKey, float]]) -> "pd.DataFrame":
    """Returns the mean score [model x task] over seeds, with the best method and the most labels so
    far, negated if lower is better; the best model on the first task first."""
    import pandas as pd

    columns = ["model", "task", "method", "labels", "merit"]
    rows = [
        (k.model, k.task, k.method, budget_order(k.label_budget), merit(_metric(k.task), score))
        for k, score in scores
    ]
    frame = pd.DataFrame(rows, columns=columns)
    frame = frame[frame.labels == frame.groupby(columns[:2]).labels.transform("max")]
    means = frame.groupby(columns[:3], sort=False).merit.mean()
    best = means.groupby(columns[:2], sort=False).max().unstack("task")
    return best.sort_values([*best.columns], ascending=False)


def _best(scores: Scores) -> str:
    """Returns the best score of one task, and whose it is."""
    merits = best_merits(scores).iloc[:1]
    return f"{merits.index[0]} {_shown(merits.columns[0], merits.iat[0, 0])}"


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


def _method(unit: Unit) -> str:
    return unit.trials[0].method if unit.trials else ""
