"""Names of runs at the ends of their lines: with many runs, easier to read than a legend."""

from collections.abc import Sequence

import altair as alt
import numpy as np
from scipy.optimize import isotonic_regression

from stages.reporting.figures.style import GRID, Row, short_names

GAP = 14  # between two names, in pixels
LEAD = 16  # from the right edge of the panel to the names, in pixels


def spread(ends: Sequence[float], domain: tuple[float, float], height: int) -> list[float]:
    """Returns the y values at which to write the names of lines that end at ``ends``: in the same
    order, without overlap, and as near to the ends as possible (least squares)."""
    low, high = domain
    gap = min(GAP, height / max(len(ends) - 1, 1))
    order = np.argsort(ends, kind="stable")
    steps = gap * np.arange(len(ends))
    wanted = (np.array(ends)[order] - low) / (high - low) * height - steps
    places = isotonic_regression(wanted).x.clip(0, height - steps[-1]) + steps
    heights = np.empty(len(ends))
    heights[order] = low + places / height * (high - low)
    return heights.tolist()


def domain_of(values: Sequence[float]) -> tuple[float, float]:
    """Returns the range from the lowest value to the highest, with a margin of 10%."""
    low, high = min(values), max(values)
    room = 0.1 * (high - low) or 0.5
    return low - room, high + room


def named_ends(ends: Sequence[Row], domain: tuple[float, float], height: int) -> list[Row]:
    """Returns the last point of each line (``run``, ``x``, ``y``, ...) with two new fields: the
    run's short ``name``, and ``place``, where to write the name on the y axis."""
    places = spread([row["y"] for row in ends], domain, height) if ends else []
    short = short_names(row["run"] for row in ends)
    return [
        {**row, "name": short[row["run"]], "place": place}
        for row, place in zip(ends, places, strict=True)
    ]


def names(data: alt.NamedData, y: alt.Scale, colour: alt.Color, *, width: int) -> list[alt.Chart]:
    """Returns names to the right of a panel, joined to their lines. ``data`` has the
    rows of ``named_ends``."""
    base = alt.Chart(data)
    leads = base.mark_rule(color=GRID).encode(
        x="x:Q", x2=alt.X2Value(width + LEAD - 3), y=alt.Y("y:Q", scale=y), y2="place:Q"
    )
    texts = base.mark_text(align="left", baseline="middle", fontSize=11).encode(
        x=alt.XValue(width + LEAD), y=alt.Y("place:Q", scale=y), text="name:N", color=colour
    )
    return [leads, texts]
