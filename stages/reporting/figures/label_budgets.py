"""Figures of the score against the label budget."""

from collections.abc import Callable, Mapping
from functools import partial

import altair as alt

from stages.evaluation.metrics import scale_of
from stages.evaluation.records import CLASSICAL
from stages.findings.cells import Cell
from stages.findings.scores import Scores
from stages.reporting.figures.labelled_lines import domain_of, named_ends, names
from stages.reporting.figures.style import (
    DOTTED,
    PAPER,
    Panel,
    Row,
    Spec,
    architecture_colour,
    mark,
    metric_title,
    styled,
)
from stages.reporting.formats import ends

HEIGHT, WIDTH = 260, 380  # pixels
DASHES = {"pretrained": [1, 0], "from scratch": [7, 4], CLASSICAL: DOTTED}


def pictures(
    scores: Scores, num_labels: Mapping[str, Mapping[str, int]]
) -> dict[str, Callable[[], Spec]]:
    """Returns a figure for each task with at least two numbers of labels. ``num_labels`` has the
    number of labels by task and label budget."""
    return {
        f"label_budgets_{task}": partial(label_budgets, scores, task, numbers)
        for task, numbers in num_labels.items()
        if len(set(numbers.values())) > 1
    }


def label_budgets(scores: Scores, task: str, num_labels: Mapping[str, int]) -> Spec:
    """Returns a panel for each method. A line is the mean of a run; its band is the interval
    over seeds, cut off at the ends of the panel."""
    panels = {method: _rows(scores, task, method, num_labels) for method in scores.methods}
    panels = {  # without methods that are incompatible with every run
        method: rows
        for method, rows in panels.items()
        if any(row["start"] != CLASSICAL for row in rows)
    }
    domain = domain_of([row["y"] for rows in panels.values() for row in rows])
    data: dict[str, list[Row]] = {}
    for method, rows in panels.items():
        last = {row["run"]: row for row in rows}
        data |= {method: rows, f"ends of {method}": named_ends([*last.values()], domain, HEIGHT)}
    drawn = [_panel(scores, task, method, num_labels, domain) for method in panels]
    return styled(alt.vconcat(*drawn, spacing=24), data)


def _rows(scores: Scores, task: str, method: str, num_labels: Mapping[str, int]) -> list[Row]:
    """Returns the means of all runs and baselines at each number of labels."""
    cells = (
        scores.cell(name, task, method, budget)
        for name in scores.names
        for budget in scores.label_budgets
    )
    return [_row(scores, cell, num_labels[cell.label_budget]) for cell in cells if cell]


def _row(scores: Scores, cell: Cell, labels: int) -> Row:
    """Returns a cell's point on its line. Without an interval, the band has no width there."""
    factor, shown = scale_of(cell.metric).factor, mark(scores, cell)
    low, high = ends(cell.mean, cell.metric) or (cell.mean.value, cell.mean.value)
    start = "from scratch" if shown["fill"] == PAPER else "pretrained"
    return {
        "run": cell.group,
        "architecture": shown["architecture"],
        "start": CLASSICAL if shown["architecture"] == CLASSICAL else start,
        "fill": shown["fill"],
        "x": labels,
        "y": shown["score"],
        "low": factor * low,
        "high": factor * high,
    }


def _panel(
    scores: Scores,
    task: str,
    method: str,
    budgets: Mapping[str, int],
    domain: tuple[float, float],
) -> Panel:
    metric = scores.metrics[task]
    numbers = sorted(set(budgets.values()))
    colour = architecture_colour(scores)
    x = alt.X(
        "x:Q",
        title="labels" + (f" (all: {budgets['all']:,})" if "all" in budgets else ""),
        scale=alt.Scale(type="log", domain=[numbers[0], numbers[-1]], nice=False, padding=10),
        axis=alt.Axis(values=numbers, format=",d", grid=False),
    )
    y_title = metric_title(metric)
    scale = alt.Scale(domain=list(domain), nice=False)
    y = alt.Y("y:Q", title=y_title, scale=scale)
    base = alt.Chart(alt.NamedData(method)).encode(x=x, color=colour, detail="run:N")
    band = base.mark_area(opacity=0.09, clip=True).encode(
        y=alt.Y("low:Q", title=y_title, scale=scale), y2="high:Q"
    )
    line = base.mark_line(strokeWidth=1.75).encode(
        y=y,
        strokeDash=alt.StrokeDash(
            "start:N",
            scale=alt.Scale(domain=[*DASHES], range=[*DASHES.values()]),
            legend=None,
        ),
    )
    points = base.mark_point(size=30, strokeWidth=1.5, opacity=1).encode(
        y=y, fill=alt.Fill("fill:N", scale=None, legend=None)
    )
    ends = names(alt.NamedData(f"ends of {method}"), scale, colour, width=WIDTH)
    return alt.layer(band, *ends, line, points).properties(
        width=WIDTH, height=HEIGHT, title=f"{task}, {method}"
    )
