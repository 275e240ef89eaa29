"""Saved views of the list of runs: their filter, order, columns and charts, which a link opens.

They are saved in the way of MLflow's own menu "Views", which lists them.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stages.core.artifacts import Json
from stages.core.params import Params
from stages.evaluation.metrics import scale_of
from stages.tracking.records import RunRecord

ANSWERS = "study"  # the view that `ui` opens
AGAINST_SCRATCH, COST, CURVES = "pretrained_v_scratch", "cost", "pretraining"
LEADERBOARD = "leaderboard_"  # and a task
CURRENT = 'tags.current="true"'
CELLS = f'{CURRENT} and tags.kind="trials"'
PLACE = ("task", "method", "label_budget", "architecture", "objective", "corpus", "size")
GAINS = ("gain_over_baseline", "gain_over_scratch", "gain_over_scratch_low")
GAINS += ("gain_over_scratch_high",)
SCORES = ("score", "score_low", "score_high")
ABOUT = ("run", "method", "label_budget", "pretrained", "objective", "architecture", "size")
ABOUT += ("corpus", "seeds", "metric")
COSTS = ("num_params", "finetune_flops", "lineage_flops", "wall_time_s", "latency_s")
COSTS += ("energy_j_estimate", "weights_bytes")
MAX_COLUMNS = 12  # of scores
RUN_NAME = "attributes.`Run Name`"
NAME_WIDTH, LETTER = 330, 6.5  # pixels


def is_ours(key: str) -> bool:
    """Whether a view of this key is one of those below, and not one that a user saved."""
    return key in (ANSWERS, AGAINST_SCRATCH, COST, CURVES) or key.startswith(LEADERBOARD)


@dataclass(frozen=True)
class SavedView:
    """``filter`` and ``order`` as in MLflow's search; ``charts`` are those of metrics."""

    key: str  # of its link
    title: str
    filter: str
    metrics: Sequence[str]
    tags: Sequence[str]
    order: str = "attributes.start_time"
    ascending: bool = False
    charts: Sequence[str] = ()
    against: Sequence[tuple[str, str]] = field(default=())  # (x, y) of charts of points

    def saved(self, place: int) -> str:
        """As MLflow keeps it; its menu "Views" lists those with the highest place first."""
        times = {"createdAt": place, "updatedAt": place}
        return json.dumps({"name": self.title, **times, "state": json.dumps(self._state)})

    @property
    def _state(self) -> Json:
        """As MLflow's page has it."""
        columns = [f"metrics.`{key}`" for key in self.metrics]
        columns += [f"tags.`{key}`" for key in self.tags]
        widths = {RUN_NAME: NAME_WIDTH}
        widths |= {column: 40 + round(LETTER * len(column)) for column in columns}
        section = _uuid(self.key, "section")
        charts = [_bar(self.key, section, metric) for metric in self.charts]
        charts += [_points(self.key, section, *pair) for pair in self.against]
        return {
            "searchFilter": self.filter,
            "orderByKey": self.order,
            "orderByAsc": self.ascending,
            "selectedColumns": columns,
            "columnOrder": [RUN_NAME, *columns],
            "columnWidths": widths,
            "runsHiddenMode": "FIRST_20_RUNS",
            "compareRunSections": [_section(section, self.title)],
            "compareRunCharts": charts,
            "isAccordionReordered": True,  # else MLflow sorts: costs before scores
        }


def saved_views(params: Params, records: Iterable[RunRecord]) -> list[SavedView]:
    """The answers of all tasks, a leaderboard of each, pretrained v. scratch, costs, curves; those
    that would list no run are left out."""
    records = list(records)
    cells = [record for record in records if record.kind == "trials"]
    by_task = {task: [r for r in cells if r.tags["task"] == task] for task in params.tasks}
    found = [_scores(records, list(params.tasks))]
    found += [_leaderboard(task, own) for task, own in by_task.items() if own]
    if gains := _known(cells, GAINS[1:]):
        found.append(
            SavedView(
                AGAINST_SCRATCH,
                "Pretrained v. scratch",
                f"{CELLS} and metrics.gain_over_scratch > -1e9",
                (*gains, "score"),
                PLACE,
                order="metrics.`gain_over_scratch`",
                charts=("gain_over_scratch",),
            )
        )
    if costs := _known(cells, [f"cost/{key}" for key in COSTS]):
        found.append(
            SavedView(
                COST,
                "Costs",
                CELLS,
                ("score", *costs),
                PLACE,
                order="metrics.`cost/finetune_flops`",
                ascending=True,
                charts=costs,
            )
        )
    pretrainings = [record for record in records if record.kind == "pretraining"]
    if curves := _known(pretrainings, ("train/loss", "train/validation_loss")):
        which = f'{CURRENT} and tags.kind="pretraining" and tags.pretrained="true"'
        tags = ("run", "pretrain_seed", "objective", "architecture", "size", "corpus")
        found.append(SavedView(CURVES, "Pretraining", which, curves, tags, charts=curves))
    return found


def _scores(records: Iterable[RunRecord], tasks: Sequence[str]) -> SavedView:
    """Groups and baselines with as many scores as the list has room for, task by task."""
    keys = {
        key: None
        for record in records
        if record.kind in ("group", "baseline")
        for key, *_ in record.points
        if key.startswith("score/") and not key.endswith(("_low", "_high"))
    }
    scores = sorted(keys, key=lambda key: tasks.index(key.split("/")[1]))[:MAX_COLUMNS]
    parents = f"{CURRENT} and tags.`mlflow.parentRunId` IS NULL"
    tags = ("pretrained", "objective", "architecture", "size", "corpus")
    return SavedView(ANSWERS, "Scores", parents, scores, tags, ascending=True, charts=scores)


def _leaderboard(task: str, cells: Sequence[RunRecord]) -> SavedView:
    return SavedView(
        f"{LEADERBOARD}{task}",
        f"Leaderboard of {task}",
        f'{CELLS} and tags.task="{task}"',
        _known(cells, (*SCORES, *GAINS)),
        [tag for tag in ABOUT if any(tag in cell.tags for cell in cells)],
        order="metrics.`score`",
        ascending=scale_of(cells[0].tags["metric"]).lower_is_better,
        charts=_known(cells, ("score", "gain_over_baseline")),
        against=[("cost/finetune_flops", "score"), ("cost/latency_s", "score")],
    )


def _known(records: Iterable[RunRecord], metrics: Sequence[str]) -> list[str]:
    """Those that some record has: a column of the others would be empty."""
    logged = {key for r in records for key in (*r.costs, *(key for key, *_ in r.points))}
    return [key for key in metrics if key in logged]


def _section(uuid: str, title: str) -> Json:
    shown = {"display": True, "isReordered": True, "deleted": False, "isGenerated": False}
    return {"uuid": uuid, "name": title, **shown}


def _bar(view: str, section: str, metric: str) -> Json:
    """Of the last value of each run; MLflow draws a line instead where a run has several steps."""
    return {
        "uuid": _uuid(view, metric),
        "type": "BAR",
        "metricSectionId": section,
        "metricKey": metric,
        "displayName": metric,
        "runsCountToCompare": 20,
        "deleted": False,
        "isGenerated": True,
    }


def _points(view: str, section: str, x: str, y: str) -> Json:
    return {
        "uuid": _uuid(view, x, y),
        "type": "SCATTER",
        "metricSectionId": section,
        "xaxis": {"key": x, "type": "METRIC"},
        "yaxis": {"key": y, "type": "METRIC"},
        "displayName": f"{y} against {x}",
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,
    }


def _uuid(*names: str) -> str:
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:16]
