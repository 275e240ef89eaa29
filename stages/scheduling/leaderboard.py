"""The scores on validation rows of what has finished: baselines first, then each model. Scores on
test rows come with the report."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from rich.table import Table

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import TrialKey
from stages.evaluation.metrics import merit, scale_of
from stages.evaluation.records import budget_order, read_texts
from stages.scheduling.unit import Unit

FIT_BASELINE, FINETUNE = "fit_baseline@", "finetune@"


class Leaderboard:
    """The mean score of each model on each task, with its best method and the most labels."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._scores = defaultdict[TrialKey, list[float]](list)  # by trials without their seeds
        self._baselines = set[str]()
        self._tasks = [u.name.removeprefix(FINETUNE) for u in units if u.name.startswith(FINETUNE)]
        pending = {unit.name for unit in units}
        for task in self._tasks:
            if f"{FIT_BASELINE}{task}" not in pending:
                self._add_baselines(task)
        for unit in units:
            self._add(unit.stored)

    def ended(self, unit: Unit) -> None:
        """Adds the scores of a unit that is done."""
        if unit.name.startswith(FIT_BASELINE):
            self._add_baselines(unit.name.removeprefix(FIT_BASELINE))
        elif unit.trials and unit.scores_file.exists():
            rows = read_json(unit.scores_file)["scores"]
            self._add((TrialKey(*key), score) for *key, score in rows if score is not None)

    def _add_baselines(self, task: str) -> None:
        for row in read_texts(paths.BASELINES / task / "trials.csv"):
            self._baselines.add(row["run"])
            if score := row.get("validation_score"):
                budget = row["label_budget"]
                self._add([(TrialKey(row["run"], 0, task, row["method"], budget, 0), float(score))])

    def _add(self, scores: Iterable[tuple[TrialKey, float]]) -> None:
        for key, score in scores:
            self._scores[key._replace(pretrain_seed=0, finetune_seed=0)].append(score)

    def best(self, model: str, task: str) -> float | None:
        """Returns the mean of a model's best method on a task with the most labels so far."""
        keys = [key for key in self._scores if (key.run, key.task) == (model, task)]
        most = max((budget_order(key.label_budget) for key in keys), default=0)
        means = (fmean(self._scores[k]) for k in keys if budget_order(k.label_budget) == most)
        return max(means, key=lambda mean: merit(_metric(task), mean), default=None)

    def shown(self, score: float, task: str) -> str:
        return scale_of(_metric(task)).shown(score)

    def table(self) -> Table | None:
        """Returns a row for each model, the best on the first task first; None without scores."""
        if not self._scores:
            return None
        table = Table("so far", *self._tasks, title="Scores on validation rows", box=None)
        means = {
            name: [self.best(name, task) for task in self._tasks]
            for name in dict.fromkeys(key.run for key in self._scores)
        }

        def order(name: str) -> list[float]:
            pairs = zip(self._tasks, means[name], strict=True)
            merits = (None if mean is None else merit(_metric(task), mean) for task, mean in pairs)
            return [math.inf if value is None else -value for value in merits]

        for name in sorted(means, key=order):
            cells = zip(self._tasks, means[name], strict=True)
            texts = ["" if mean is None else self.shown(mean, task) for task, mean in cells]
            table.add_row(name, *texts, style="dim" if name in self._baselines else "")
        return table


def _metric(task: str) -> str:
    return read_json(paths.examples(task) / "task.json")["metric"]
