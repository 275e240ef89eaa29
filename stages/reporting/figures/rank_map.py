"""A heat map of ranks: every run and baseline on every task."""

from collections.abc import Sequence

import altair as alt

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.reporting.comparison.ranks import ranked_cells
from stages.reporting.comparison.results import Results
from stages.reporting.figures.style import (
    INK,
    PALETTE,
    PAPER,
    Panel,
    Row,
    Spec,
    styled,
)

HEIGHT, WIDTH = 36, 56  # of a cell, in pixels
FIRST, LAST = PALETTE[0], "#eef3f7"
SHORT = 8  # characters of a name that fit over a cell


def rank_map(results: Results) -> Spec:
    """The rank and mean of each run with its best method; a panel for each label budget."""
    names = results.names
    data: dict[str, list[Row]] = {}
    panels = []
    for budget in results.label_budgets:
        source = f"labels_{budget}"
        data[source] = [
            row for task in results.params.tasks for row in _column(results, task, budget, names)
        ]
        panel = _panel(results, alt.NamedData(source), names, labelled=not panels)
        panels.append(panel.properties(title=f"{budget} labels"))
    return styled(alt.hconcat(*panels, spacing=18), data)


def _column(results: Results, task: str, label_budget: str, names: Sequence[str]) -> list[Row]:
    return [
        {
            "run": cell.group,
            "task": task,
            "rank": rank,
            "score": scale_of(cell.metric).shown(cell.mean.value),
            "ink": PAPER if 5 * (rank - 1) < len(names) - 1 else INK,  # light on dark cells
        }
        for cell, rank in ranked_cells(results, task, label_budget)
    ]


def _panel(results: Results, data: alt.NamedData, names: Sequence[str], *, labelled: bool) -> Panel:
    tasks = list(results.params.tasks)
    axis: Json = {"ticks": False, "grid": False, "domain": False}
    angle = 0 if max(map(len, tasks)) <= SHORT else -90
    base = alt.Chart(data).encode(
        x=alt.X(
            "task:N",
            title=None,
            scale=alt.Scale(domain=tasks),
            axis=alt.Axis(**axis, orient="top", labelAngle=angle, labelLimit=0),
        ),
        y=alt.Y(
            "run:N",
            title=None,
            scale=alt.Scale(domain=list(names)),
            axis=alt.Axis(**axis, labels=labelled, labelLimit=0),
        ),
    )
    places = alt.Scale(domain=[1, max(len(names), 2)], range=[FIRST, LAST])
    rectangle = base.mark_rect(stroke=PAPER, strokeWidth=2).encode(
        color=alt.Color("rank:Q", scale=places, legend=None)
    )
    ink = alt.Color("ink:N", scale=None)
    rank = base.mark_text(dy=-6, fontSize=13, fontWeight="bold").encode(text="rank:Q", color=ink)
    score = base.mark_text(dy=9, fontSize=11).encode(text="score:N", color=ink)
    return (
        alt.layer(rectangle, rank, score)
        .resolve_scale(color="independent")
        .properties(width=WIDTH * len(tasks), height=HEIGHT * len(names))
    )
