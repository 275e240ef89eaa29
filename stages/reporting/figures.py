"""The pictures: one look for all, drawn offline.

Colour is the architecture (Okabe and Ito's palette, which survives colour blindness), grey is a
classical baseline; a hollow mark or a dotted line is from scratch; shape is the method. Scores that
are shares are in points, 0 to 100.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from stages.artifacts import replacing
from stages.evaluation.metrics import POINTS, scale_of
from stages.reporting.contrasts import Group
from stages.reporting.guideline import percent
from stages.reporting.results import Results

INK, MUTED, GRID, PAPER = "#1f2328", "#59636e", "#e4e7eb", "#ffffff"
BASELINE = "#7a828c"
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
SHAPES = ["circle", "diamond", "triangle-up", "square", "cross", "triangle-down"]
DASHES = [[1, 0], [7, 3], [4, 2], [10, 3, 2, 3]]
DOTTED = [1.5, 3]
ROW = 26  # pixels
# Liberation Sans, which the renderer brings along, is as wide as Arial: what is measured here fits.
FONT = "Arial, Helvetica, Liberation Sans, sans-serif"
CLASSICAL = "classical"
Panel = alt.LayerChart | alt.FacetChart
Row = dict[str, Any]
Spec = dict[str, Any]  # of Vega-Lite
Picture = Callable[[], Spec]


def pictures(results: Results) -> dict[str, Picture]:
    """Every picture of the report, by the name of its file; ``draw`` draws one."""
    found: dict[str, Picture] = {"comparison": partial(comparison, results)}
    trained = {epoch.method for epoch in results.curves}  # the others have no curves
    for task, budget in product(results.params.tasks, results.label_budgets):
        found[f"scores_{task}_{budget}"] = partial(scores, results, task, budget)
        for method in filter(trained.__contains__, results.methods):
            if _from_scratch(results, task, method, budget):
                name = f"curves_{task}_{method}_{budget}"
                found[name] = partial(curves, results, task, method, budget)
    return found


def comparison(results: Results) -> Spec:
    """Every run and baseline on every task (columns) with every label budget (rows)."""
    names = _names(results)
    data: dict[str, list[Row]] = {}
    rows = []
    for budget in results.label_budgets:
        panels = []
        for task in results.params.tasks:
            data[f"{task}_{budget}"] = _means(results, task, budget, names)
            named = alt.NamedData(f"{task}_{budget}")
            panels.append(_dots(results, named, task, budget, names, labelled=not panels))
        rows.append(alt.hconcat(*panels, spacing=18))
    note = (
        f"Mean and {percent(results.confidence)} interval on the test set; hollow: from scratch; "
        "dotted lines: classical baselines"
    )
    title = alt.Title(note, fontSize=12, fontWeight="normal", color=MUTED, offset=14)
    return _styled(alt.vconcat(*rows, spacing=24, title=title), data)


def scores(results: Results, task: str, label_budget: str) -> Spec:
    """One panel of ``comparison``, on its own: only what was tried on this task."""
    names = [
        name
        for name in _names(results)
        if any(results.cell(name, task, method, label_budget) for method in results.methods)
    ]
    panel = _dots(results, alt.NamedData("means"), task, label_budget, names, labelled=True)
    return _styled(panel, {"means": _means(results, task, label_budget, names)})


def curves(results: Results, task: str, method: str, label_budget: str) -> Spec:
    """Validation score after each epoch: for each model, its runs beside the one from scratch.

    A line is the mean over seeds, its band reaches from the lowest to the highest.
    """
    points: dict[tuple[str, int], list[float]] = defaultdict(list)
    factor = scale_of(results.metrics[task]).factor
    for epoch in results.curves:
        if (epoch.task, epoch.method, epoch.label_budget) == (task, method, label_budget):
            points[epoch.run, epoch.epoch].append(factor * epoch.validation_metric)
    data: dict[str, list[Row]] = {}
    panels = []
    for scratch in _from_scratch(results, task, method, label_budget):
        family = [
            group
            for group in results.groups
            if group.entry.model == scratch.entry.model and (group.pretrained or group is scratch)
        ]
        data[scratch.name] = [
            {
                "group": group.name,
                "training set": group.corpus if group.pretrained else "from scratch",
                "epoch": epoch,
                "mean": sum(values) / len(values),
                "low": min(values),
                "high": max(values),
            }
            for group in family
            for epoch in sorted({epoch for run, epoch in points if run in group.runs})
            for values in [[v for run in group.runs for v in points.get((run, epoch), [])]]
        ]
        panels.append(_curves(results, alt.NamedData(scratch.name), task, scratch))
    return _styled(alt.hconcat(*panels, spacing=18).resolve_scale(y="shared"), data)


def _from_scratch(results: Results, task: str, method: str, label_budget: str) -> list[Group]:
    """The groups that were not pretrained, of those that the method fits."""
    return [
        group
        for group in results.groups
        if not group.pretrained and results.cell(group.name, task, method, label_budget)
    ]


def _curves(results: Results, data: alt.NamedData, task: str, scratch: Group) -> Panel:
    own = [group for group in results.groups if group.pretrained and not group.entry.is_public]
    corpora = list(dict.fromkeys(group.corpus for group in own))
    dashes = [*(DASHES[i % len(DASHES)] for i in range(len(corpora))), DOTTED]
    colour = colours(results)[scratch.architecture]
    base = alt.Chart(data).encode(
        x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, format="d")),
        detail="group:N",
    )
    title = f"{results.metrics[task]} on validation, {_unit(results.metrics[task])}"
    y = alt.Y("mean:Q", title=title, scale=alt.Scale(zero=False))
    band = base.mark_area(opacity=0.1, color=colour).encode(y="low:Q", y2="high:Q")
    line = base.mark_line(color=colour, strokeWidth=2).encode(
        y=y,
        strokeDash=alt.StrokeDash(
            "training set:N",
            title="pretrained on",
            scale=alt.Scale(domain=[*corpora, "from scratch"], range=dashes),
        ),
    )
    return alt.layer(band, line).properties(
        width=210, height=180, title=f"{scratch.architecture}: {_size(scratch)}"
    )


def _means(results: Results, task: str, label_budget: str, names: Sequence[str]) -> list[Row]:
    """What ``_dots`` draws."""
    groups = {group.name: group for group in results.groups}
    palette, scale = colours(results), scale_of(results.metrics[task])
    rows: list[Row] = []
    for name in names:
        group = groups.get(name)
        for i, method in enumerate(results.methods if group else [CLASSICAL]):
            if cell := results.cell(name, task, method, label_budget):
                low, high = (
                    cell.mean.value if v is None else v for v in (cell.mean.low, cell.mean.high)
                )
                architecture = group.architecture if group else CLASSICAL
                hollow = group is not None and not group.pretrained
                rows.append(
                    {
                        "run": name,
                        "method": method,
                        "slot": _slot(i, len(results.methods)) if group else 0.0,
                        "architecture": architecture,
                        "fill": PAPER if hollow else palette[architecture],
                        "score": scale.factor * cell.mean.value,
                        "low": scale.factor * max(low, 0),
                        "high": scale.factor * (min(high, 1) if scale == POINTS else high),
                    }
                )
    return rows


def _dots(
    results: Results,
    data: alt.NamedData,
    task: str,
    label_budget: str,
    names: Sequence[str],
    *,
    labelled: bool,
) -> Panel:
    palette = colours(results)
    shapes = [SHAPES[i % len(SHAPES)] for i in range(len(results.methods))]
    base = alt.Chart(data).encode(
        y=alt.Y(
            "run:N",
            title=None,
            scale=alt.Scale(domain=list(names), paddingInner=0, paddingOuter=0),
            axis=alt.Axis(labels=labelled, labelLimit=200, ticks=False),
        ),
        yOffset=alt.YOffset(
            "slot:Q", scale=alt.Scale(domain=[-1, 1], range=[ROW / 2 - 10, ROW / 2 + 10])
        ),
        color=alt.Color(
            "architecture:N",
            title=None,
            scale=alt.Scale(domain=list(palette), range=list(palette.values())),
            legend=alt.Legend(symbolType="stroke", symbolStrokeWidth=5, symbolSize=120),
        ),
    )
    x = alt.X(
        "low:Q",
        title=f"{results.metrics[task]}, {_unit(results.metrics[task])}",
        scale=alt.Scale(zero=False, padding=6),
    )
    whiskers = base.mark_rule(strokeWidth=1.75).encode(x=x, x2="high:Q")
    marks = base.mark_point(size=52, strokeWidth=1.75, opacity=1).encode(
        x="score:Q",
        shape=alt.Shape(
            "method:N",
            title=None,
            scale=alt.Scale(domain=[*results.methods, CLASSICAL], range=[*shapes, "square"]),
            legend=alt.Legend(
                values=results.methods, symbolStrokeColor=MUTED, symbolFillColor=PAPER
            ),
        ),
        fill=alt.Fill("fill:N", scale=None, legend=None),
    )
    lines = (
        alt.Chart(data)
        .transform_filter(f"datum.architecture == '{CLASSICAL}'")
        .mark_rule(color=BASELINE, strokeDash=[2, 3], strokeWidth=1)
        .encode(x="score:Q")
    )
    return alt.layer(lines, whiskers, marks).properties(
        width=240, height=ROW * len(names), title=f"{task}, {label_budget} labels"
    )


def _unit(metric: str) -> str:
    return "lower is better" if scale_of(metric).lower_is_better else scale_of(metric).unit


def _slot(i: int, num: int) -> float:
    """Where the i-th of several marks stands in its row: around 0, within -1 to 1."""
    return (i - (num - 1) / 2) / max(num, 2)


def colours(results: Results) -> dict[str, str]:
    """The colour of each architecture, and of the baselines."""
    architectures = dict.fromkeys(group.architecture for group in results.groups)
    palette = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(architectures)}
    return palette | ({CLASSICAL: BASELINE} if results.baselines else {})


def _names(results: Results) -> list[str]:
    """The rows of every picture and table of scores."""
    return [*(group.name for group in results.groups), *results.baselines]


def _size(group: Group) -> str:
    model = group.entry.model
    known = [f"{key}={model[key]}" for key in ("num_layers", "d_model") if key in model]
    return ", ".join(known) or group.name


def _styled(chart: Any, data: dict[str, list[Row]]) -> Spec:
    """The one look; Altair copies a chart at each step, so the data joins at the end."""
    text = {"labelColor": MUTED, "titleColor": MUTED, "labelFontSize": 12, "titleFontSize": 12}
    plain = {"domain": False, "tickColor": GRID, "gridColor": GRID, "titleFontWeight": "normal"}
    config = {
        "font": FONT,
        "background": PAPER,
        "padding": 8,
        "view": {"stroke": None},
        "axis": text | plain,
        "axisY": {"labelColor": INK},
        "title": {"color": INK, "fontSize": 14, "anchor": "start", "offset": 10},
        "legend": text
        | {"orient": "top", "titleFontWeight": "normal", "titleOrient": "left"}
        | {"symbolStrokeWidth": 2},
    }
    return chart.to_dict() | {"config": config, "datasets": data}


def draw(picture: Picture, *, svg: Path, png: Path) -> str:
    """Write both files; returns the SVG. Needs no browser and no network."""
    drawn = vl_convert.vegalite_to_svg(picture())
    with replacing(svg) as temporary:
        temporary.write_text(drawn + "\n", encoding="utf-8")
    with replacing(png) as temporary:
        temporary.write_bytes(vl_convert.svg_to_png(drawn, scale=2))
    return drawn
