"""The pictures of the report, drawn offline."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import altair as alt
import vl_convert

from stages.core.artifacts import replacing
from stages.evaluation.metrics import POINTS, scale_of
from stages.evaluation.records import CLASSICAL
from stages.reporting.comparison.advice import percent
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.results import Results
from stages.reporting.figures import label_budgets, loss_curves, ranks, trade_offs
from stages.reporting.figures.style import (
    BASELINE,
    DASHES,
    DOTTED,
    MUTED,
    ROW,
    Panel,
    Row,
    Spec,
    architecture_colour,
    colours,
    mark,
    method_shape,
    row_names,
    styled,
    unit_of,
)

Picture = Callable[[], Spec]


def pictures(results: Results) -> dict[str, Picture]:
    """Every picture of the report, by the name of its file; ``draw`` draws one."""
    found: dict[str, Picture] = {
        "comparison": partial(comparison, results),
        "ranks": partial(ranks.ranks, results),
        **loss_curves.pictures(results),
        **label_budgets.pictures(results),
    }
    trained = {epoch.method for epoch in results.curves}  # the others have no curves
    for task, budget in product(results.params.tasks, results.label_budgets):
        found[f"scores_{task}_{budget}"] = partial(scores, results, task, budget)
        for method in filter(trained.__contains__, results.methods):
            if _from_scratch(results, task, method, budget):
                name = f"curves_{task}_{method}_{budget}"
                found[name] = partial(curves, results, task, method, budget)
        found |= trade_offs.pictures(results, task, budget)
    return found


def comparison(results: Results) -> Spec:
    """Every run and baseline on every task (columns) with every label budget (rows)."""
    names = row_names(results)
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
    return styled(alt.vconcat(*rows, spacing=24, title=title), data)


def scores(results: Results, task: str, label_budget: str) -> Spec:
    """One panel of ``comparison``, on its own: only what was tried on this task."""
    names = [
        name
        for name in row_names(results)
        if any(results.cell(name, task, method, label_budget) for method in results.methods)
    ]
    panel = _dots(results, alt.NamedData("means"), task, label_budget, names, labelled=True)
    return styled(panel, {"means": _means(results, task, label_budget, names)})


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
    return styled(alt.hconcat(*panels, spacing=18).resolve_scale(y="shared"), data)


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
    title = f"{results.metrics[task]} on validation, {unit_of(results.metrics[task])}"
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
    scale = scale_of(results.metrics[task])
    rows: list[Row] = []
    for name in names:
        methods = [CLASSICAL] if name in results.baselines else results.methods
        for i, method in enumerate(methods):
            if cell := results.cell(name, task, method, label_budget):
                low, high = (
                    cell.mean.value if v is None else v for v in (cell.mean.low, cell.mean.high)
                )
                rows.append(
                    {
                        **mark(results, cell),
                        "slot": _slot(i, len(methods)),
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
        color=architecture_colour(results),
    )
    x = alt.X(
        "low:Q",
        title=f"{results.metrics[task]}, {unit_of(results.metrics[task])}",
        scale=alt.Scale(zero=False, padding=6),
    )
    whiskers = base.mark_rule(strokeWidth=1.75).encode(x=x, x2="high:Q")
    marks = base.mark_point(size=52, strokeWidth=1.75, opacity=1).encode(
        x="score:Q",
        shape=method_shape(results, shown=results.methods),
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


def _slot(i: int, num: int) -> float:
    """Where the i-th of several marks stands in its row: around 0, within -1 to 1."""
    return (i - (num - 1) / 2) / max(num, 2)


def _size(group: Group) -> str:
    model = group.entry.model
    known = [f"{key}={model[key]}" for key in ("num_layers", "d_model") if key in model]
    return ", ".join(known) or group.name


def draw(picture: Picture, *, svg: Path, png: Path) -> str:
    """Write both files; returns the SVG. Needs no browser and no network."""
    drawn = vl_convert.vegalite_to_svg(picture())
    with replacing(svg) as temporary:
        temporary.write_text(drawn + "\n", encoding="utf-8")
    with replacing(png) as temporary:
        temporary.write_bytes(vl_convert.svg_to_png(drawn, scale=2))
    return drawn
