"""Figures of scores: a row for each run and baseline, a mark with its interval for each method."""

from collections.abc import Sequence

import altair as alt

from stages.evaluation.metrics import scale_of
from stages.evaluation.records import CLASSICAL
from stages.findings.answers import Rival, Tie
from stages.findings.scores import Scores
from stages.reporting.figures.style import (
    BASELINE,
    MUTED,
    ROW,
    Panel,
    Row,
    Spec,
    architecture_colour,
    mark,
    method_shape,
    metric_title,
    short_labels,
    styled,
)
from stages.reporting.formats import ends, in_parentheses, interval, percent, shown
from stages.reporting.words.answer import verdict_of_rival

MANY = 600  # trials in one panel; the ticks of more would hide each other
MOST_ROWS = 40  # runs and baselines in one panel
TICKS = 8  # numbers on the axis of one panel, approximately
LABEL_LIMIT = 220  # pixels
BRACKET = 12  # pixels to the right of the panel


def comparison(scores: Scores) -> Spec:
    """Returns a panel of all runs and baselines for each task (columns) and label budget (rows)."""
    names = scores.names
    data: dict[str, list[Row]] = {}
    rows = []
    for budget in scores.label_budgets:
        panels = []
        for task in scores.tasks:
            data[f"{task}_{budget}"] = _means(scores, task, budget, names)
            named = alt.NamedData(f"{task}_{budget}")
            panels.append(_dots(scores, named, task, budget, names, labelled=not panels))
        rows.append(alt.hconcat(*panels, spacing=18))
    note = (
        f"Mean and {percent(scores.confidence)} interval on the test set; hollow: from scratch; "
        "dotted lines: classical baselines"
    )
    title = alt.Title(note, fontSize=12, fontWeight="normal", color=MUTED, offset=14)
    return styled(alt.vconcat(*rows, spacing=24, title=title), data)


def task_scores(
    scores: Scores, rivals: Sequence[Rival], *, width: int | str = 240, title: bool = True
) -> Spec:
    """Returns the panel of ``comparison`` for one task and label budget. Its rows are the first
    MOST_ROWS of the ``rivals``, the best mean first. In addition, trials have ticks, and a line at
    the right marks the rows that no verdict tells apart from the best run."""
    task, label_budget = rivals[0].cell.task, rivals[0].cell.label_budget
    rivals = rivals[:MOST_ROWS]
    names = [rival.cell.group for rival in rivals]
    means = alt.NamedData("means")
    panel = _dots(scores, means, task, label_budget, names, labelled=True, ticks=TICKS)
    if not title:
        panel.title = alt.Undefined
    data = {"means": _means(scores, task, label_budget, names)}
    data["trials"] = _trials(scores, data["means"], task, label_budget)
    if len(data["trials"]) > MANY:
        data["trials"] = []
    data["beside"] = [
        {
            "run": rival.cell.group,
            "kind": rival.tie.value,
            "verdict": verdict_of_rival(rival, scores.baselines),
        }
        for rival in rivals
    ]
    y = alt.Y("run:N", scale=alt.Scale(domain=names))
    ticks = (
        alt.Chart(alt.NamedData("trials"))
        .mark_tick(thickness=1, size=8, opacity=0.45)
        .encode(x="score:Q", y=y, yOffset=_offset(), color=architecture_colour(scores))
    )
    panel = alt.layer(ticks, panel, *_bracket(names), *_room(data["means"])).properties(
        width=width, height=ROW * len(names)
    )
    return styled(panel, data)


def _room(means: Sequence[Row]) -> list[alt.Chart]:
    """Returns invisible marks that lengthen the axis if all scores are equal; none otherwise."""
    ends = {row[key] for row in means for key in ("low", "high")}
    if len(ends) > 1:
        return []
    (score,) = ends
    room = (0.9 * score, 1.1 * score) if score else (0.0, 1.0)
    data = alt.Data(values=[{"score": end} for end in room])
    marks = alt.Chart(data).mark_point(opacity=0, size=0)
    return [marks.encode(x="score:Q")]


def _bracket(names: Sequence[str]) -> list[alt.Chart]:
    """Returns the lines next to the best run and the rows not told apart from it. The lines of
    consecutive rows join. A line is dotted if its row was not tested against the best run."""
    base = alt.Chart(alt.NamedData("beside")).encode(
        x=alt.value("width"),
        y=alt.Y("run:N", scale=alt.Scale(domain=list(names)), bandPosition=0),
        y2=alt.Y2("run", bandPosition=1),
        tooltip=["run:N", alt.Tooltip("verdict:N", title="beside the best run")],
    )
    lines = ([Tie.BEST, Tie.TIED], 3.0, [1.0, 0.0]), ([Tie.UNTESTED], 1.5, [1.5, 3.0])
    return [
        base.transform_filter(
            alt.FieldOneOfPredicate("kind", [tie.value for tie in ties])
        ).mark_rule(xOffset=BRACKET, color=MUTED, strokeWidth=width, strokeDash=dash)
        for ties, width, dash in lines
    ]


def _trials(scores: Scores, means: Sequence[Row], task: str, label_budget: str) -> list[Row]:
    """Returns a row for each trial, at the height of its cell's mark."""
    factor = scale_of(scores.metrics[task]).factor
    return [
        {key: row[key] for key in ("run", "architecture", "slot")} | {"score": factor * t.value}
        for row in means
        if (cell := scores.cell(row["run"], task, row["method"], label_budget))
        for t in cell.trials
    ]


def _means(scores: Scores, task: str, label_budget: str, names: Sequence[str]) -> list[Row]:
    """Returns the data of ``_dots``: a row for each cell."""
    factor = scale_of(scores.metrics[task]).factor
    rows: list[Row] = []
    for name in names:
        methods = [CLASSICAL] if name in scores.baselines else scores.methods
        for i, method in enumerate(methods):
            if cell := scores.cell(name, task, method, label_budget):
                mean, metric = cell.mean, cell.metric
                low, high = ends(mean, metric) or (mean.value, mean.value)
                inside = in_parentheses(interval(mean, metric))
                rows.append(
                    {
                        **mark(scores, cell),
                        "shown": f"{shown(mean.value, metric)}{inside}",
                        "slot": (i - (len(methods) - 1) / 2) / max(len(methods), 2),  # -0.5 to 0.5
                        "low": factor * low,
                        "high": factor * high,
                    }
                )
    return rows


def _dots(
    scores: Scores,
    data: alt.NamedData,
    task: str,
    label_budget: str,
    names: Sequence[str],
    *,
    labelled: bool,
    ticks: int | None = None,
) -> Panel:
    base = alt.Chart(data).encode(
        y=alt.Y(
            "run:N",
            title=None,
            scale=alt.Scale(domain=list(names), paddingInner=0, paddingOuter=0),
            axis=alt.Axis(
                labels=labelled, labelLimit=LABEL_LIMIT, ticks=False, labelExpr=short_labels(names)
            ),
        ),
        yOffset=_offset(),
        color=architecture_colour(scores),
    )
    x = alt.X(
        "low:Q",
        title=metric_title(scores.metrics[task]),
        scale=alt.Scale(zero=False, padding=6, nice=ticks is None),
        axis=alt.Axis() if ticks is None else alt.Axis(tickCount=ticks, labelOverlap=True),
    )
    whiskers = base.mark_rule(strokeWidth=1.75).encode(x=x, x2="high:Q")
    marks = base.mark_point(size=52, strokeWidth=1.75, opacity=1).encode(
        x="score:Q",
        shape=method_shape(scores, shown=scores.methods),
        fill=alt.Fill("fill:N", scale=None, legend=None),
        tooltip=["run:N", "method:N", alt.Tooltip("shown:N", title="mean")],
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


def _offset() -> alt.YOffset:
    scale = alt.Scale(domain=[-1, 1], range=[ROW / 2 - 10, ROW / 2 + 10])
    return alt.YOffset("slot:Q", scale=scale)
