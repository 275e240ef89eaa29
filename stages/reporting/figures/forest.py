"""The forest: a figure of all contrasts of the study, with their intervals and verdicts."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from stages.evaluation.metrics import scale_of
from stages.findings.contrasts import Contrast
from stages.findings.verdicts import Verdict
from stages.reporting.figures.style import (
    INK,
    MUTED,
    PAPER,
    Panel,
    Row,
    Spec,
    short_names,
    styled,
)
from stages.reporting.formats import difference_with_interval, ends
from stages.reporting.words.names import NO_VERDICT, unit_of_scores, verdict

YES, PART = "#00654b", "#9a5b00"
STYLES = {  # shape and colour
    Verdict.SIGNIFICANT: ("square", YES),
    Verdict.BEFORE_CORRECTION: ("triangle-up", PART),
    Verdict.NOT_SIGNIFICANT: ("circle", MUTED),
}
SHAPES = {verdict.value: shape for verdict, (shape, _) in STYLES.items()} | {NO_VERDICT: "cross"}
COLOURS = {verdict.value: colour for verdict, (_, colour) in STYLES.items()} | {NO_VERDICT: MUTED}
STEP, NARROW_STEP = 18, 50  # pixels per row; page.js takes 14 off narrow rows with a one-line label
LABEL_LIMIT = 600  # pixels
MANY = 60  # more rows than this are too many to look through
KEYS = ("task", "method", "labels")
DATA = "contrasts"
TURNED = "Differences in {} are drawn with their signs turned, because lower is better."
Width = Literal["wide", "narrow"]


def forest(contrasts: Sequence[Contrast]) -> Spec:
    """Returns the picture for a file: the contrasts that the page shows first."""
    return interactive(first_shown(rows(contrasts)), "wide", width=520)


def interactive(shown: Sequence[Row], kind: Width, *, width: int | str = "container") -> Spec:
    """Returns a chart with a row for each contrast under the heading of its axis. In the narrow
    form, the label of a row is above the row."""
    return styled(_panel(kind, width), {DATA: with_heads(shown)})


def rows(contrasts: Sequence[Contrast]) -> list[Row]:
    """Returns a row for each contrast. A positive ``effect`` means that the first side is better,
    whatever the metric. A pair with long names also has a short ``name``."""
    pairs = [_pair(contrast) for contrast in contrasts]
    short = short_names(name for pair in pairs for name in pair)
    named = []
    for number, (contrast, pair) in enumerate(zip(contrasts, pairs, strict=True)):
        row, name = _row(number, contrast), _words(*(short[name] for name in pair))
        named.append(row if name == row["pair"] else {**row, "name": name})
    return named


def short_values(found: Sequence[Row]) -> dict[str, str]:
    """Returns a dict from the long names of tasks and methods to short ones."""
    short = short_names(str(row[key]) for key in KEYS for row in found)
    return {name: text for name, text in short.items() if name != text}


def _pair(contrast: Contrast) -> list[str]:
    """Returns both runs of a contrast; of a contrast within one run, the run and its two levels."""
    one, other = contrast.a.group, contrast.b.group
    return [one, other] if one != other else [one, contrast.level_a, contrast.level_b]


def _words(one: str, *others: str) -> str:
    return f"{one} v. {others[0]}" if len(others) == 1 else f"{one}: {' v. '.join(others)}"


def _row(number: int, contrast: Contrast) -> Row:
    scale, effect = scale_of(contrast.metric), contrast.effect
    sign = scale.factor * (-1 if scale.lower_is_better else 1)
    cut = ends(effect, contrast.metric, difference=True) or (effect.value, effect.value)
    value, *sides = (round(sign * end, 4) for end in (effect.value, *cut))
    low, high = sorted(sides)
    return {
        "row": number,
        "axis": contrast.axis,
        "task": contrast.task,
        "method": contrast.method,
        "labels": contrast.label_budget,
        "unit": unit_of_scores(contrast.metric),
        "pair": _words(*_pair(contrast)),
        "effect": value,
        "low": low,
        "high": high,
        "shown": difference_with_interval(contrast.effect, contrast.metric),
        "verdict": verdict(contrast),
        "kind": contrast.verdict.value if contrast.verdict in STYLES else NO_VERDICT,
    }


def first_choice(found: Sequence[Row]) -> dict[str, str]:
    """Returns the choices that the page begins with: one unit and, while more than MANY rows are
    left, in turn the number of labels, method, axis and task of the first row that is left. An
    empty choice means all."""
    chosen: dict[str, str] = {"axis": "", **dict.fromkeys(KEYS, ""), "unit": ""}
    if found:
        chosen["unit"] = found[0]["unit"]
    for key in ("labels", "method", "axis", "task"):
        if len(_chosen(found, chosen)) > MANY:
            chosen[key] = _chosen(found, chosen)[0][key]
    return chosen


def first_shown(found: Sequence[Row]) -> list[Row]:
    return _chosen(found, first_choice(found))


def _chosen(found: Sequence[Row], chosen: dict[str, str]) -> list[Row]:
    return [row for row in found if all(v in ("", row[key]) for key, v in chosen.items())]


def with_heads(shown: Sequence[Row]) -> list[Row]:
    """Returns the rows with labels, and a heading above the rows of each axis. A label is the pair,
    then the task, method and number of labels as far as these differ between rows. Headings are in
    upper case and names of runs in lower case, so that no name is taken for a heading."""
    several = [key for key in KEYS if len({row[key] for row in shown}) > 1]
    short = short_values(shown)
    rows: list[Row] = []
    for axis in dict.fromkeys(row["axis"] for row in shown):
        head = str(axis).upper()
        rows.append({"label": head, "name": head, "where": ""})
        rows += [_labelled(row, several, short) for row in shown if row["axis"] == axis]
    return rows


def _labelled(row: Row, several: Sequence[str], short: Mapping[str, str]) -> Row:
    name = row.get("name", row["pair"])
    # A contrast of two methods, or of two numbers of labels, already names both in its pair.
    parts = [row[key] for key in several if not row["pair"].endswith(f": {row[key]}")]
    where = ", ".join(short.get(value, value) for value in parts)
    return {**row, "name": name, "where": where, "label": ", ".join(filter(None, (name, where)))}


def _panel(kind: Width, width: int | str) -> Panel:
    wide = kind == "wide"
    is_head = "datum.value === upper(datum.value)"
    axis = alt.Axis(
        ticks=False,
        domain=False,
        labels=wide,
        labelLimit=LABEL_LIMIT,
        labelFontWeight=alt.condition(is_head, alt.value("bold"), alt.value("normal")),
        labelColor=alt.condition(is_head, alt.value(INK), alt.value(MUTED)),
    )
    base = alt.Chart(alt.NamedData(DATA)).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=axis)
    )
    zero = alt.Chart(alt.NamedData(DATA)).mark_rule(color=MUTED).encode(x=alt.datum(0))
    x = alt.X(
        "low:Q",
        title="difference; right of 0 the first is better",
        axis=alt.Axis(grid=True, tickCount=7, labelOverlap=True),
    )
    whiskers = base.mark_rule(strokeWidth=2).encode(x=x, x2="high:Q", color=_colour())
    marks = base.mark_point(size=64, strokeWidth=1.75, opacity=1, filled=True).encode(
        x="effect:Q",
        color=_colour(),
        shape=alt.Shape(
            "kind:N",
            title=None,
            scale=alt.Scale(domain=[*SHAPES], range=[*SHAPES.values()]),
        ),
        tooltip=[
            *("pair:N", "task:N", "method:N", "labels:N"),
            alt.Tooltip("shown:N", title="difference"),
            "verdict:N",
        ],
    )
    # Headings have no numbers to draw: an empty text mark keeps their places on the axis.
    names = [base.mark_text(text="")] if wide else _names(base)
    return alt.layer(*names[:1], zero, whiskers, marks, *names[1:]).properties(
        width=width,
        height=alt.Step(STEP if wide else NARROW_STEP),
        background="transparent",
    )


def _names(base: alt.Chart) -> list[alt.Chart]:
    """Returns the labels on two lines above their rows. A rim keeps them legible where they cross a
    line of the chart."""
    colour = alt.condition("isValid(datum.effect)", alt.value(MUTED), alt.value(INK))
    rims: list[dict[str, Any]] = [{"stroke": PAPER, "strokeWidth": 4, "strokeJoin": "round"}, {}]
    marks = []
    for line, dy in (("name", alt.ExprRef("datum.where ? -19 : -5")), ("where", -5)):
        for rim in rims:
            text = base.mark_text(
                align="left",
                baseline="bottom",
                dy=dy,
                fontSize=11,
                fontWeight=alt.ExprRef("isValid(datum.effect) ? 'normal' : 'bold'"),
                limit=alt.ExprRef("width"),
                **rim,
            )
            marks.append(text.encode(x=alt.XValue(0), text=f"{line}:N", color=colour))
    return marks


def _colour() -> alt.Color:
    return alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=[*COLOURS], range=[*COLOURS.values()]),
        legend=alt.Legend(orient="top", columns=1, labelLimit=0, symbolSize=80),
    )
