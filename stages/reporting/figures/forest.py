"""The forest: all contrasts of the study on one axis, with their verdicts."""

from collections.abc import Sequence
from typing import Literal

import altair as alt

from stages.evaluation.metrics import scale_of
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.verdicts import (
    BEFORE_CORRECTION,
    NOT_SIGNIFICANT,
    SIGNIFICANT,
)
from stages.reporting.figures.style import INK, MUTED, Panel, Row, Spec, styled
from stages.reporting.number_format import metric_name

YES, PART = "#00654b", "#9a5b00"
NO_VERDICT = "no verdict"
SHAPES = {SIGNIFICANT: "square", BEFORE_CORRECTION: "triangle-up"}
SHAPES |= {NOT_SIGNIFICANT: "circle", NO_VERDICT: "cross"}
COLOURS = {SIGNIFICANT: YES, BEFORE_CORRECTION: PART, NOT_SIGNIFICANT: MUTED, NO_VERDICT: MUTED}
STEP, NARROW_STEP = 20, 36  # pixels of a row
MANY = 60  # rows that one can look through
KEYS = ("task", "method", "labels")
DATA = "contrasts"
Width = Literal["wide", "narrow"]


def forest(results: Results) -> Spec:
    """The contrasts that are shown first, as a picture for a file."""
    return interactive(first_shown(rows(results.contrasts)), "wide", width=520)


def interactive(shown: Sequence[Row], kind: Width, *, width: int | str = "container") -> Spec:
    """A row for each contrast under the head of its axis. Narrow, its name stands above it."""
    return styled(_panel(kind, width), {DATA: with_heads(shown)})


def rows(contrasts: Sequence[Contrast]) -> list[Row]:
    """Of each contrast; to the right the first side is better, whatever the metric."""
    return [_row(number, contrast) for number, contrast in enumerate(contrasts)]


def _row(number: int, contrast: Contrast) -> Row:
    scale, effect = scale_of(contrast.metric), contrast.effect
    sign = scale.factor * (-1 if scale.lower_is_better else 1)
    ends = (effect.value, effect.low, effect.high)
    value, *bounds = (None if end is None else round(sign * end, 4) for end in ends)
    low, high = sorted(value if end is None else end for end in bounds)  # type: ignore[type-var]
    one, other = contrast.a.group, contrast.b.group
    levels = f"{one}: {contrast.level_a} v. {contrast.level_b}"
    return {
        "row": number,
        "axis": contrast.axis,
        "task": contrast.task,
        "method": contrast.method,
        "labels": contrast.label_budget,
        "unit": scale.unit or metric_name(contrast.metric),
        "pair": levels if one == other else f"{one} v. {other}",
        "effect": value,
        "low": low,
        "high": high,
        "shown": _shown(contrast),
        "verdict": contrast.verdict,
        "kind": next((kind for kind in SHAPES if contrast.verdict.startswith(kind)), NO_VERDICT),
    }


def _shown(contrast: Contrast) -> str:
    scale, effect = scale_of(contrast.metric), contrast.effect
    if effect.low is None or effect.high is None:
        return scale.signed(effect.value)
    bounds = f"{scale.signed(effect.low)} to {scale.signed(effect.high)}"
    return f"{scale.signed(effect.value)} ({bounds})"


def first_choice(found: Sequence[Row]) -> dict[str, str]:
    """What is chosen at first, so that there are few rows and one unit: the most labels, then the
    first method, axis and task. An empty choice is all."""
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
    """With a label for each row, which says of task, method and labels what differs among the rows,
    and a head above each axis. Names of runs are in lower case, so that no head is one."""
    several = [key for key in KEYS if len({row[key] for row in shown}) > 1]
    found: list[Row] = []
    for axis in dict.fromkeys(row["axis"] for row in shown):
        found.append({"label": str(axis).upper()})
        found += [
            {**row, "label": ", ".join([row["pair"], *(row[key] for key in several)])}
            for row in shown
            if row["axis"] == axis
        ]
    return found


def _panel(kind: Width, width: int | str) -> Panel:
    wide = kind == "wide"
    is_head = "datum.value === upper(datum.value)"
    axis = alt.Axis(
        ticks=False,
        domain=False,
        labels=wide,
        labelLimit=420,
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
    text = {"align": "left", "baseline": "bottom", "dy": -5, "fontSize": 12}
    names = base.mark_text(**text, limit=alt.ExprRef("width")).encode(
        x=alt.XValue(0),
        text="label:N",
        color=alt.condition("isValid(datum.effect)", alt.value(MUTED), alt.value(INK)),
    )
    # A mark that needs no number keeps the heads, which have none, on the axis.
    layers = [base.mark_text(text="") if wide else names, zero, whiskers, marks]
    return alt.layer(*layers).properties(
        width=width,
        height=alt.Step(STEP if wide else NARROW_STEP),
        background="transparent",
    )


def _colour() -> alt.Color:
    return alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=[*COLOURS], range=[*COLOURS.values()]),
        legend=alt.Legend(orient="top", columns=1, labelLimit=0, symbolSize=80),
    )
