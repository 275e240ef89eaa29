"""Figures of the score against training FLOPs and against the number of parameters.

FLOPs and parameters are counted, not measured, so the figures are the same on every machine.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from stages.evaluation.metrics import scale_of
from stages.findings.cells import Cell
from stages.findings.costs import cells_with_flops, pareto_front
from stages.findings.groups import Group
from stages.findings.scores import Scores
from stages.findings.sizes import PowerLaw, cells_with_sizes, error, num_sizes, power_laws
from stages.reporting.figures.style import (
    BASELINE,
    INK,
    MUTED,
    Panel,
    Row,
    Spec,
    architecture_colour,
    mark,
    method_shape,
    metric_title,
    styled,
)
from stages.reporting.formats import MINUS, ends, formatted, percent, shown

HEIGHT, WIDTH = 240, 440  # pixels
STEPS = 24  # points of a drawn curve
Placed = list[tuple[Cell, int]]  # each cell with its place on the x axis


def pictures(scores: Scores, task: str, label_budget: str) -> dict[str, Callable[[], Spec]]:
    """Returns the figure of cost if cells differ in FLOPs, and that of size if they differ in
    size."""
    place = (scores, task, label_budget)
    pictures: dict[str, Callable[[], Spec]] = {}
    if len({flops for _, flops in cells_with_flops(*place)}) > 1:
        pictures[f"cost_{task}_{label_budget}"] = partial(cost, *place)
    if num_sizes([size for _, size in cells_with_sizes(*place)]) > 1:
        pictures[f"parameters_{task}_{label_budget}"] = partial(parameters, *place)
    return pictures


def cost(
    scores: Scores,
    task: str,
    label_budget: str,
    *,
    width: int | str = WIDTH,
    title: bool = True,
) -> Spec:
    """Returns a figure of the mean of every run and method against its FLOPs, with the Pareto
    front. Baselines train no network: they are drawn at the left edge, and only runs that are
    better than the best baseline are on the front."""
    cells = cells_with_flops(scores, task, label_budget)
    front = front_beside_baselines(scores, task, label_budget)
    classical = _baselines(scores, task, label_budget)
    corners = [{"x": x, "score": mark(scores, c)["score"]} for c, x in (cells[i] for i in front)]
    end = {"x": max(flops for _, flops in cells)}  # the line ends at the most expensive mark
    data = {
        "marks": _marks(scores, cells, front),
        "front": [*corners, *({**corner, **end} for corner in corners[-1:])],
        "baselines": [_with_interval(scores, cell) for cell in classical],
        "baseline": [mark(scores, cell) for cell in classical[:1]],
    }
    line = (
        alt.Chart(alt.NamedData("front"))
        .mark_line(interpolate="step-after", color=MUTED, strokeWidth=1.25)
        .encode(x="x:Q", y="score:Q")
    )
    baseline = (
        alt.Chart(alt.NamedData("baseline"))
        .mark_rule(color=BASELINE, strokeDash=[2, 3], strokeWidth=1)
        .encode(y="score:Q")
    )
    beside = alt.Chart(alt.NamedData("baselines")).encode(x=alt.XValue(3))
    baselines = [
        beside.mark_rule(color=BASELINE).encode(y="low:Q", y2="high:Q"),
        beside.mark_point(shape="square", size=52, filled=True, color=BASELINE, opacity=1).encode(
            y="score:Q", tooltip=["run:N", "shown:N"]
        ),
    ]
    bars = (
        alt.Chart(alt.NamedData("marks"))
        .mark_rule(opacity=0.35)
        .encode(x="x:Q", y="low:Q", y2="high:Q", color=architecture_colour(scores))
    )
    colour = architecture_colour(scores)
    x_title = "FLOPs of pretraining and fine-tuning"
    marks = _points(scores, cells, x_title, colour, [*data["marks"], *data["baselines"]])
    lines = front_key(scores, task, label_budget) if title else None
    layers = [baseline, line, bars, *marks, *baselines]
    return styled(_panel(layers, task, label_budget, lines, width=width), data)


def front_beside_baselines(scores: Scores, task: str, label_budget: str) -> list[int]:
    """Returns the Pareto front, as indices in ``cells_with_flops``: the cells that no cheaper run
    and no baseline beats."""
    cells = cells_with_flops(scores, task, label_budget)
    front = pareto_front([(flops, cell.merit) for cell, flops in cells])
    to_beat = max((c.merit for c in _baselines(scores, task, label_budget)), default=-math.inf)
    return [i for i in front if cells[i][0].merit > to_beat]


def front_key(scores: Scores, task: str, label_budget: str) -> list[str]:
    """Returns the legend of the front: the best baseline, then the runs, the cheapest first."""
    cells = cells_with_flops(scores, task, label_budget)
    key = [
        f"{cell.group}, the best classical baseline: {shown(cell.mean.value, cell.metric)}"
        for cell in _baselines(scores, task, label_budget)[:1]
    ]
    return key + _key(cells, front_beside_baselines(scores, task, label_budget))


def _baselines(scores: Scores, task: str, label_budget: str) -> list[Cell]:
    """Returns the cells of classical baselines, the best first. External systems, whose cost is
    unknown, are left out."""
    cells = [c for c in scores.baseline_cells(task, label_budget) if not c.is_external]
    return sorted(cells, key=lambda cell: -cell.merit)


def _with_interval(scores: Scores, cell: Cell) -> Row:
    """Returns a cell's mark and the ends of its interval; without one, both ends are the mean."""
    mean, factor = cell.mean, scale_of(cell.metric).factor
    low, high = (factor * end for end in ends(mean, cell.metric) or (mean.value, mean.value))
    text = shown(mean.value, cell.metric)
    return {**mark(scores, cell), "low": low, "high": high, "shown": text}


def parameters(scores: Scores, task: str, label_budget: str) -> Spec:
    """Returns a figure of the mean of every pretrained run (``cells_with_sizes``) against its
    number of parameters, with ``power_laws`` and their intervals over seeds."""
    cells = cells_with_sizes(scores, task, label_budget)
    front = pareto_front([(size, cell.merit) for cell, size in cells])
    laws = power_laws(cells, scores.group_of)
    data = {
        "marks": _marks(scores, cells, front),
        "laws": [
            row
            for group, law, sizes in laws
            for row in _curve(scores.metrics[task], group, law, sizes)
        ],
    }
    colour = architecture_colour(scores, baselines=False)
    base = alt.Chart(alt.NamedData("laws")).encode(x="x:Q", color=colour, detail="run:N")
    band = base.mark_area(opacity=0.12).encode(y="low:Q", y2="high:Q")
    line = base.mark_line(strokeWidth=1.5).encode(y="score:Q")
    lines = [*_key(cells, front), *(_formula(scores, group, law) for group, law, _ in laws)]
    marks = _points(scores, cells, "parameters", colour, data["marks"])
    return styled(_panel([band, line, *marks], task, label_budget, lines), data)


def _marks(scores: Scores, cells: Placed, front: Sequence[int]) -> list[Row]:
    """Returns the marks of all cells; the marks on the front are numbered from the left."""
    number = {i: str(n) for n, i in enumerate(front, start=1)}
    return [
        {**_with_interval(scores, cell), "x": x, "number": number.get(i, "")}
        for i, (cell, x) in enumerate(cells)
    ]


def _curve(metric: str, group: Group, law: PowerLaw, sizes: Sequence[int]) -> list[Row]:
    """Returns a power law as scores, from the smallest size to the largest."""
    factor = scale_of(metric).factor
    rows = []
    for x in np.geomspace(min(sizes), max(sizes), STEPS).tolist():
        score, low, high = (factor * error(metric, e) for e in law.error(x))
        ends = {"low": max(min(low, high), 0), "high": max(low, high)}
        rows.append(
            {"run": group.name, "architecture": group.architecture, "x": x, "score": score} | ends
        )
    return rows


def _points(
    scores: Scores, cells: Placed, x_title: str, colour: alt.Color, drawn: Sequence[Row]
) -> list[alt.Chart]:
    """Returns the marks, and numbers for the marks on the front. A number is on the cheaper and
    better side of its mark, where no other mark can be. The score axis begins at 0 if the lowest
    ``low`` in ``drawn`` is under a tenth of the highest ``high``: padding would go below 0."""
    lowest, highest = min(row["low"] for row in drawn), max(row["high"] for row in drawn)
    from_zero = 0 <= lowest < highest / 10
    scale: dict[str, Any] = {"domainMin": 0} if from_zero else {"padding": 10}
    metric = cells[0][0].metric
    lower = scale_of(metric).lower_is_better
    base = alt.Chart(alt.NamedData("marks")).encode(
        x=alt.X(
            "x:Q",
            title=x_title,
            scale=alt.Scale(type="log", nice=False, padding=16),
            axis=alt.Axis(format="~s", tickCount=5, labelOverlap=True, grid=False),
        ),
        y=alt.Y(
            "score:Q",
            title=metric_title(metric),
            scale=alt.Scale(zero=False, **scale),
        ),
    )
    points = base.mark_point(size=52, strokeWidth=1.75, opacity=1).encode(
        color=colour,
        shape=method_shape(scores, shown={cell.method for cell, _ in cells}),
        fill=alt.Fill("fill:N", scale=None, legend=None),
        tooltip=["run:N", "method:N", "shown:N", alt.Tooltip("x:Q", title=x_title, format="~s")],
    )
    numbers = base.mark_text(
        align="right", dx=-6, dy=9 if lower else -9, fontSize=12, color=INK
    ).encode(text="number:N")
    return [points, numbers]


def _key(cells: Placed, front: Sequence[int]) -> list[str]:
    """Returns a line for each number on the front: the run, its method and its mean."""
    on_front = (cells[i][0] for i in front)
    return [
        f"{n} {cell.group}, {cell.method}: {shown(cell.mean.value, cell.metric)}"
        for n, cell in enumerate(on_front, start=1)
    ]


def _formula(scores: Scores, group: Group, law: PowerLaw) -> str:
    b = law.exponent
    what = f"{group.architecture}, {group.objective} on {group.corpus}"
    formula = f"error = {law.factor:.3g} N^{MINUS}b, b = {formatted(b.value, '.3f')}"
    if b.low is None or b.high is None:
        return f"{what}: {formula}"
    low, high = formatted(b.low, ".3f"), formatted(b.high, ".3f")
    return f"{what}: {formula} ({percent(scores.confidence)} interval {low} to {high})"


def _panel(
    layers: Sequence[alt.Chart],
    task: str,
    label_budget: str,
    lines: list[str] | None,
    *,
    width: int | str = WIDTH,
) -> Panel:
    """Returns the layers as a panel with ``lines`` as subtitle, or without any title if None."""
    panel = alt.layer(*layers).properties(width=width, height=HEIGHT)
    if lines is None:
        return panel
    title = alt.Title(
        f"{task}, {label_budget} labels",
        subtitle=lines,
        subtitleColor=MUTED,
        subtitleFontSize=12,
        subtitlePadding=6,
    )
    return panel.properties(title=title)
