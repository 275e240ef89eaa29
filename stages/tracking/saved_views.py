"""Saved views of MLflow's list of runs: a filter, an order, columns and charts that a link opens.

Each view is a tag of the experiment, in the form that MLflow's own menu "Views" reads.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.tracking.records import WALL_TIME, RunRecord, best_score

LEADERBOARD = "leaderboard_"  # followed by the name of a task
CURRENT = 'tags.current="true"'
# Columns. The first ones fit on a screen beside the names of runs.
LEADERBOARD_METRICS = ("score", "score_low", "score_high")
LEADERBOARD_METRICS += ("gain_over_scratch", "gain_over_scratch_low", "gain_over_scratch_high")
LEADERBOARD_METRICS += (WALL_TIME, "cost/num_params", "cost/finetune_flops", "cost/lineage_flops")
LEADERBOARD_METRICS += ("cost/latency_s", "cost/energy_j_estimate")
LEADERBOARD_CHARTS = ("score", "gain_over_scratch", WALL_TIME, "cost/latency_s")
LEADERBOARD_TAGS = ("run", "method", "label_budget", "pretrained", "objective", "architecture")
LEADERBOARD_TAGS += ("size", "corpus", "seeds", "metric", "against_baselines", "hardware")
RUN_TAGS = ("pretrained", "objective", "architecture", "size", "corpus")
MAX_SCORES = 12  # columns
CHARTS_IN_A_ROW = 2
RUN_NAME = "attributes.`Run Name`"
NAME_WIDTH, LETTER_WIDTH, BESIDE_LETTERS = 330, 6, 56  # pixels


@dataclass(frozen=True)
class SavedView:
    """A view: ``filter`` and ``order`` in the form of MLflow's search, and a chart for each metric
    in ``charts``."""

    key: str  # the name in the view's link
    title: str
    filter: str
    metrics: Sequence[str]
    tags: Sequence[str]
    charts: Sequence[str]
    order: str = "attributes.start_time"
    ascending: bool = True
    opens_charts: bool = False  # whether the link opens the charts, not the list

    @property
    def query(self) -> str:
        """The part of the view's link that names the view."""
        charts = "&compareRunsMode=CHART" if self.opens_charts else ""
        return f"viewStateShareKey={self.key}{charts}"

    def saved(self, place: int) -> str:
        """Returns the value of the view's tag. The menu lists views with a higher ``place``
        first."""
        times = {"createdAt": place, "updatedAt": place}
        return json.dumps({"name": self.title, **times, "state": json.dumps(self._state())})

    def _state(self) -> Json:
        """Returns the state of MLflow's page when it shows the view."""
        names = {f"metrics.`{key}`": key for key in self.metrics}
        names |= {f"tags.`{key}`": key for key in self.tags}
        columns = [*names]
        widths = {column: LETTER_WIDTH * len(key) + BESIDE_LETTERS for column, key in names.items()}
        section = {"uuid": self.key, "name": self.title, "columns": CHARTS_IN_A_ROW}
        shown = {"display": True, "isReordered": True, "deleted": False, "isGenerated": False}
        return {
            "searchFilter": self.filter,
            "orderByKey": self.order,
            "orderByAsc": self.ascending,
            "selectedColumns": columns,
            "columnOrder": [RUN_NAME, *columns],
            "columnWidths": {RUN_NAME: NAME_WIDTH} | widths,
            "runsHiddenMode": "FIRST_20_RUNS",
            "compareRunSections": [section | shown],
            "compareRunCharts": [self._chart(metric) for metric in self.charts],
            "isAccordionReordered": True,  # else MLflow sorts the charts: costs first
        }

    def _chart(self, metric: str) -> Json:
        """Returns a chart with a bar for each run. If the metric has several steps, MLflow draws
        lines instead."""
        shown = {"runsCountToCompare": 20, "deleted": False, "isGenerated": True}
        names = {"metricKey": metric, "displayName": metric, "metricSectionId": self.key}
        return {"uuid": f"{self.key}/{metric}", "type": "BAR", **names, **shown}


def saved_views(tasks: Collection[str], records: Sequence[RunRecord]) -> list[SavedView]:
    """Returns the views of the scores on all tasks, of a leaderboard for each task, and of the
    curves of pretrainings.

    In a list that is ordered by time, MLflow hides child runs under their parents. So each list is
    ordered by a metric.
    """
    parents = [record for record in records if record.kind in ("run", "baseline")]
    known = _metrics(parents)
    best = {task: key for task in tasks if (key := best_score(task)) in known}
    score_keys = [
        (parent.kind, key)
        for parent in parents
        for key in _metrics([parent])
        if key.startswith("score/") and key.count("/") == 3 and not key.endswith(("_low", "_high"))
    ]
    methods_with_budgets = {(kind, key.split("/", 2)[2]) for kind, key in score_keys}
    kinds = {kind for kind, _ in score_keys}
    best_scores_are_all = len(methods_with_budgets) == len(kinds)
    scores = [*best.values()]
    if not best_scores_are_all:
        scores += dict.fromkeys(key for _, key in score_keys)
    scores = scores[:MAX_SCORES]
    # The record of the report (``comparison``) is not a model: the list leaves it out.
    roots = f'{CURRENT} and tags.`mlflow.parentRunId` IS NULL and tags.kind != "comparison"'
    order, tags = _by_first(best, records), ("kind", *RUN_TAGS)
    views = [SavedView("scores", "Scores", roots, scores, tags, scores, *order)]
    for task in tasks:
        cells = [r for r in records if r.kind == "trials" and r.tags["task"] == task]
        if cells:
            views.append(_leaderboard(task, cells))
    pretrainings = [record for record in records if record.kind == "pretraining"]
    known = _metrics(pretrainings)
    if curves := [key for key in ("train/loss", "train/validation_loss") if key in known]:
        # A published checkpoint has no curve: the filter leaves it out.
        trained = f'{CURRENT} and tags.kind="pretraining" and metrics.`{curves[0]}` >= 0'
        tags = ("run", "pretrain_seed", *RUN_TAGS[1:])
        shown = [*curves, *({WALL_TIME} & known.keys())]
        by_loss = f"metrics.`{curves[-1]}`"
        name = "pretraining", "Pretraining"
        views.append(
            SavedView(*name, trained, shown, tags, shown, order=by_loss, opens_charts=True)
        )
    return views


def _by_first(best: Mapping[str, str], records: Sequence[RunRecord]) -> tuple[str, bool]:
    """Returns the key that orders runs, and whether the order ascends: by the score on the first
    task, the best run first, or by time if no task has scores."""
    for task, key in best.items():
        metric = next(r.tags["metric"] for r in records if r.tags.get("task") == task)
        return f"metrics.`{key}`", scale_of(metric).lower_is_better
    return "attributes.start_time", True


def _leaderboard(task: str, cells: Sequence[RunRecord]) -> SavedView:
    known = _metrics(cells)
    metrics = [key for key in LEADERBOARD_METRICS if key in known]
    return SavedView(
        f"{LEADERBOARD}{task}",
        f"Leaderboard of {task}",
        f'{CURRENT} and tags.kind="trials" and tags.task="{task}"',
        metrics,
        [tag for tag in LEADERBOARD_TAGS if any(tag in cell.tags for cell in cells)],
        [key for key in LEADERBOARD_CHARTS if key in known],
        order="metrics.`score`",
        ascending=scale_of(cells[0].tags["metric"]).lower_is_better,
    )


def _metrics(records: Iterable[RunRecord]) -> dict[str, None]:
    """Returns all keys of metrics, in their order, as the keys of a dict."""
    return {key: None for r in records for key in (*(key for key, *_ in r.points), *r.costs)}
