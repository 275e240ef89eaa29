"""The picture of scores against the time of one fine-tuning, or the latency if times are equal."""

import math

from stages.evaluation.metrics import scale_of
from stages.findings.facts import ScoreRow
from stages.reporting.formats import seconds, shown
from stages.reporting.svg import Panel, Picture, Plot, Scale, spread
from stages.reporting.view import MAX_ROWS, View

TOP, BOTTOM = 12, 300  # pixels
ALIKE = 1.25  # no picture if the longest time is less than this times the shortest
TIMES = {
    "finetune_s": "Mean score and time of one fine-tuning",
    "latency_s": "Mean score and time for one text",
}


def _time_shown(view: View) -> str | None:
    """Returns the first of ``TIMES`` in which models with a mean score differ, or None."""
    for name in TIMES:
        times = [getattr(row, name) for row in _rows(view)]
        known = [value for value in times if value]
        if len(known) > 1 and max(known) > ALIKE * min(known):
            return name
    return None


def _rows(view: View) -> list[ScoreRow]:
    return [row for row in view.models[:MAX_ROWS] if row.mean is not None]


def picture(view: View) -> Picture | None:
    name = _time_shown(view)
    if name is None:
        return None
    rows = [row for row in _rows(view) if getattr(row, name)]
    times = [getattr(row, name) for row in rows]
    scale = scale_of(view.metric)
    scores = [scale.factor * row.mean for row in rows if row.mean is not None]
    line = None if view.baseline_mean is None else scale.factor * view.baseline_mean
    ends = [*scores, *([] if line is None else [line])]
    room = 0.08 * (max(ends) - min(ends)) or 1
    y = Scale(min(ends) - room, max(ends) + room)
    x = Scale(min(times) / 1.25, max(times) * 1.25, log=True, left=6, right=92)

    def height(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * y.percent(value) / 100

    plot = Plot(BOTTOM + 20, TIMES[name])
    for tick in x.ticks():
        plot.line("grid", x(tick), TOP, x(tick), BOTTOM)
        plot.text("tick", x(tick), BOTTOM + 15, seconds(tick), anchor="middle")
    for tick in y.ticks():
        plot.line("grid", 0, height(tick), "100%", height(tick))
        plot.text("tick", 0, height(tick) - 4, f"{tick:g}")
    if line is not None:
        plot.line("baseline", 0, height(line), "100%", height(line))
        text = f"best baseline {shown(view.baseline_mean, view.metric)}"
        plot.text("soft", "100%", height(line) - 5, text, anchor="end")
    _marks(
        plot, view, rows, [(x.percent(t), height(s)) for t, s in zip(times, scores, strict=True)]
    )
    numbers = [
        {"model": row.model, "method": row.method, "mean": row.mean, name: time}
        for row, time in zip(rows, times, strict=True)
    ]
    return Picture("cost", TIMES[name], [Panel(plot)], numbers, width=520, columns=1, measured=True)


def _marks(plot: Plot, view: View, rows: list[ScoreRow], places: list[tuple[float, float]]) -> None:
    """Draws the marks with their names beside them, each on the side where it crosses no mark."""
    labels = spread([y for _, y in places], 15)
    for row, (x, y), label in zip(rows, places, labels, strict=True):
        winner = view.winner and (row.model, row.method) == (view.winner.model, view.winner.method)
        plot.mark(view.look(row.model), f"{x:.2f}%", y, f"{view.name(row)}: {row.mean}")
        near = [other - x for other, at in places if abs(at - y) < 14 and other != x]
        right = min((d for d in near if d > 0), default=math.inf)
        left = min((-d for d in near if d < 0), default=math.inf)
        ends = x > 60 or (right < 30 and left > right and x > 30)
        anchor, dx = ("end", -10) if ends else ("start", 10)
        name = "strong" if winner else "name"
        plot.text(name, f"{x:.2f}%", label + 4, view.name(row), anchor=anchor, dx=dx)
