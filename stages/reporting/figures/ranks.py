"""Who is first where: a heat map of every run and baseline on every task."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from stages.evaluation.metrics import scale_of
from stages.evaluation.records import CLASSICAL
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.results import Results
from stages.reporting.figures.style import (
    INK,
    PALETTE,
    PAPER,
    Panel,
    Row,
    Spec,
    row_names,
    styled,
)

HEIGHT, WIDTH = 36, 56  # of a cell, in pixels
FIRST, LAST = PALETTE[0], "#eef3f7"
SHORT = 8  # letters of a name that fit over a cell


def ranks(results: Results) -> Spec:
    """Each run's rank and mean by its best method; a panel for each label budget."""
    names = row_names(results)
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


def ranked(merits: Sequence[float]) -> list[int]:
    """1 is the largest; equals share the best of their places, and the next is as far behind."""
    rounded = [round(merit, 6) for merit in merits]  # as in the tables of numbers
    return [1 + sum(other > merit for other in rounded) for merit in rounded]


def _column(results: Results, task: str, label_budget: str, names: Sequence[str]) -> list[Row]:
    cells = [cell for name in names if (cell := _best(results, name, task, label_budget))]
    places = ranked([cell.merit for cell in cells])
    return [
        {
            "run": cell.group,
            "task": task,
            "rank": rank,
            "score": scale_of(cell.metric).shown(cell.mean.value),
            "ink": PAPER if 5 * (rank - 1) < len(names) - 1 else INK,  # on dark cells, on light
        }
        for cell, rank in zip(cells, places, strict=True)
    ]


def _best(results: Results, name: str, task: str, label_budget: str) -> Cell | None:
    methods = [CLASSICAL] if name in results.baselines else results.methods
    cells = [results.cell(name, task, method, label_budget) for method in methods]
    return max(filter(None, cells), key=lambda cell: cell.merit, default=None)


def _panel(results: Results, data: alt.NamedData, names: Sequence[str], *, labelled: bool) -> Panel:
    tasks = list(results.params.tasks)
    axis: dict[str, Any] = {"ticks": False, "grid": False, "domain": False}
    angle = 0 if max(map(len, tasks)) <= SHORT else -90
    base = alt.Chart(data).encode(
        x=alt.X(
            "task:N",
            title=None,
            scale=alt.Scale(domain=tasks),
            axis=alt.Axis(**axis, orient="top", labelAngle=angle, labelLimit=160),
        ),
        y=alt.Y(
            "run:N",
            title=None,
            scale=alt.Scale(domain=list(names)),
            axis=alt.Axis(**axis, labels=labelled, labelLimit=200),
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
