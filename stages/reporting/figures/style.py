"""The style of all figures: colours, marks and titles.

Colour shows the architecture (the palette of Okabe and Ito, which is safe for colour blindness);
grey is a classical baseline. Shape shows the method. A hollow mark is a run from scratch. Scores
that are shares are in points, 0 to 100.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import altair as alt

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.evaluation.records import CLASSICAL
from stages.findings.cells import Cell
from stages.findings.scores import Scores
from stages.reporting.formats import metric_name

INK, MUTED, GRID, PAPER = "#1f2328", "#59636e", "#e4e7eb", "#ffffff"
BASELINE = "#7a828c"
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
SHAPES = ["circle", "diamond", "triangle-up", "square", "cross", "triangle-down"]
DASHES = [[1, 0], [7, 3], [4, 2], [10, 3, 2, 3]]
DOTTED = [1.5, 3]
KEPT = (12, 13), (8, 17), (17, 8), (4, 21), (21, 4)  # letters kept at both ends of a long name
LETTERS = 26
ROW = 26  # pixels
# Liberation Sans, which the renderer bundles, is as wide as Arial: text fits in either font.
FONT = "Arial, Helvetica, Liberation Sans, sans-serif"
Panel = alt.LayerChart | alt.FacetChart
Row = Json
Spec = Json  # a Vega-Lite specification


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Returns for each name a short one that fits next to a chart. The middle of a long name is
    left out; if every cut in KEPT makes some short names equal, the equal ones are numbered."""
    every = dict.fromkeys(names)
    for begin, end in KEPT:
        short = {name: _cut(name, begin, end) for name in every}
        if len({*short.values()}) == len(every):
            return short
    number, short = Counter[str](), {}
    for name in every:
        text = _cut(name, *KEPT[0])
        number[text] += 1
        short[name] = text if number[text] == 1 else f"{text} ({number[text]})"
    return short


def _cut(name: str, begin: int, end: int) -> str:
    return name if len(name) <= LETTERS else f"{name[:begin]}…{name[-end:]}"


def short_labels(names: Iterable[str]) -> str:
    """Returns a Vega expression that shortens the labels of an axis."""
    long = {name: short for name, short in short_names(names).items() if name != short}
    return f"({json.dumps(long)})[datum.value] || datum.value" if long else "datum.value"


def colours(scores: Scores) -> dict[str, str]:
    """Returns the colour of each architecture, and of the baselines."""
    architectures = dict.fromkeys(group.architecture for group in scores.groups)
    palette = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(architectures)}
    return palette | ({CLASSICAL: BASELINE} if scores.baselines else {})


def architecture_colour(scores: Scores, *, baselines: bool = True) -> alt.Color:
    palette = colours(scores)
    shown = [name for name in palette if baselines or name != CLASSICAL]
    return alt.Color(
        "architecture:N",
        title=None,
        scale=alt.Scale(domain=list(palette), range=list(palette.values())),
        legend=alt.Legend(
            values=shown,
            symbolType="stroke",
            symbolStrokeWidth=5,
            symbolSize=120,
            symbolOpacity=1,
        ),
    )


def method_shape(scores: Scores, *, shown: Collection[str]) -> alt.Shape:
    """Returns the shape of each method, fixed for all figures; the legend lists only ``shown``."""
    shapes = [SHAPES[i % len(SHAPES)] for i in range(len(scores.methods))]
    return alt.Shape(
        "method:N",
        title=None,
        scale=alt.Scale(domain=[*scores.methods, CLASSICAL], range=[*shapes, "square"]),
        legend=alt.Legend(
            values=[m for m in scores.methods if m in shown],
            symbolStrokeColor=MUTED,
            symbolFillColor=MUTED,  # hollow marks are from scratch
        ),
    )


def mark(scores: Scores, cell: Cell) -> Row:
    """Returns the mark of a cell, the same in every figure."""
    group = scores.group_of.get(cell.group)
    architecture = group.architecture if group else CLASSICAL
    hollow = group is not None and not group.pretrained
    return {
        "run": cell.group,
        "method": cell.method,
        "architecture": architecture,
        "fill": PAPER if hollow else colours(scores)[architecture],
        "score": scale_of(cell.metric).factor * cell.mean.value,
    }


def metric_title(metric: str) -> str:
    """Returns an axis title: ``macro F1, points`` or ``bits per byte, lower is better``."""
    scale = scale_of(metric)
    return f"{metric_name(metric)}, {'lower is better' if scale.lower_is_better else scale.unit}"


def styled(chart: Any, data: dict[str, list[Row]]) -> Spec:
    """Returns the chart in the common style. The data is added last, because Altair copies a chart
    at each step."""
    text = {"labelColor": MUTED, "titleColor": MUTED, "labelFontSize": 12, "titleFontSize": 12}
    plain = {"domain": False, "tickColor": GRID, "gridColor": GRID, "titleFontWeight": "normal"}
    config = {
        "font": FONT,
        "background": PAPER,
        # In a viewer without these fonts, text may be a fifth wider than measured here.
        "padding": {"left": 40, "right": 32, "top": 8, "bottom": 8},
        "view": {"stroke": None},
        "axis": text | plain,
        "axisY": {"labelColor": INK},
        "title": {"color": INK, "fontSize": 14, "anchor": "start", "offset": 10},
        "legend": text
        | {"orient": "top", "titleFontWeight": "normal", "titleOrient": "left"}
        | {"symbolStrokeWidth": 2},
    }
    # Altair would check each part against its schema, which takes longer than drawing does.
    return chart.to_dict(validate=False) | {"config": config, "datasets": data}
