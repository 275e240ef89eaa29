"""Figures of the validation loss of pretraining against tokens seen and against FLOPs.

Both are counted, so the figures are the same on every machine.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import altair as alt

from stages.core.params import NONE
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.results import Results
from stages.reporting.figures.labelled_lines import domain_of, named_ends, names
from stages.reporting.figures.style import Panel, Row, Spec, architecture_colour, styled

Amount = Literal["tokens", "flops"]

TITLES: dict[Amount, str] = {"tokens": "tokens seen", "flops": "FLOPs"}
HEIGHT, WIDTH, COLUMNS = 170, 230, 2


@dataclass(frozen=True)
class LossPoint:
    """A validation of a run; ``amount`` includes what its parents and teachers took. Of several
    learning rates it is that of the kept one."""

    group: Group
    run: str
    amount: int
    loss: float


def comparable(results: Results) -> dict[str, list[Group]]:
    """The pretrained groups, by what their validation loss depends on: objective, validation text
    and its tokens."""
    found: dict[str, list[Group]] = defaultdict(list)
    for group in results.groups:
        if any(results.progress[run].history for run in group.runs):
            entry = group.entry
            rows = f"{entry.tokenizer}, rows of {entry.training.max_tokens}"
            found[f"{entry.objective['name']} on {entry.corpus} ({rows})"].append(group)
    return found


def loss_points(results: Results, group: Group, amount: Amount) -> list[LossPoint]:
    return [
        LossPoint(
            group,
            run,
            _of_parents(results, run, amount) + getattr(step, amount),
            step.validation_loss,
        )
        for run in group.runs
        for step in results.progress[run].history
        if step.validation_loss is not None
    ]


def _of_parents(results: Results, run: str, amount: Amount) -> int:
    """What others did is unknown: the curve of a public checkpoint begins with its further
    pretraining."""
    parent = results.params.pretrain[run].parent
    if parent == NONE:
        return 0
    history = results.progress[parent].history
    own = getattr(history[-1], amount) if history else 0
    return own + _of_parents(results, parent, amount)


def pictures(results: Results) -> dict[str, Callable[[], Spec]]:
    """None if the study pretrains nothing."""
    if not comparable(results):
        return {}
    amounts: tuple[Amount, ...] = ("tokens", "flops")
    return {f"pretraining_{amount}": partial(losses, results, amount) for amount in amounts}


def losses(results: Results, amount: Amount) -> Spec:
    """A panel for each set of comparable runs, a line for each run. The seeds of a group are thin
    lines with one name. Amounts include those of a run's parents and teachers."""
    lines = {
        title: [row for group in groups for row in _lines(results, group, amount)]
        for title, groups in comparable(results).items()
    }
    xs = [row["x"] for rows in lines.values() for row in rows]
    scale = alt.Scale(type="linear", domain=[0, max(xs)], nice=False)
    if amount == "flops":
        scale = alt.Scale(type="log", domain=[min(xs), max(xs)], nice=False, padding=8)
    data: dict[str, list[Row]] = {}
    panels = []
    for title, rows in lines.items():
        domain = domain_of([row["y"] for row in rows])
        last = {row["run"]: row for row in rows}
        data |= {title: rows, f"ends of {title}": named_ends([*last.values()], domain, HEIGHT)}
        x = alt.X("x:Q", title=TITLES[amount], scale=scale)
        x = x.axis(format="~s", tickCount=4, labelOverlap=True, grid=False)
        panels.append(_panel(results, title, x, domain))
    chart = alt.concat(*panels, columns=COLUMNS, spacing=24).resolve_scale(color="shared")
    return styled(chart, data)


def _lines(results: Results, group: Group, amount: Amount) -> list[Row]:
    return [
        {
            "run": group.name,
            "line": point.run,
            "architecture": group.architecture,
            "width": 2 if len(group.runs) == 1 else 1,
            "x": point.amount,
            "y": point.loss,
        }
        for point in loss_points(results, group, amount)
    ]


def _panel(results: Results, title: str, x: alt.X, domain: tuple[float, float]) -> Panel:
    colour = architecture_colour(results, baselines=False)
    scale = alt.Scale(domain=list(domain), nice=False)
    y = alt.Y("y:Q", title="validation loss", scale=scale, axis=alt.Axis(tickCount=5))
    base = alt.Chart(alt.NamedData(title)).encode(x=x, y=y, color=colour, detail="line:N")
    line = base.mark_line().encode(strokeWidth=alt.StrokeWidth("width:Q", scale=None))
    points = base.mark_point(size=14, filled=True, opacity=1)
    ends = names(alt.NamedData(f"ends of {title}"), scale, colour, width=WIDTH)
    return alt.layer(*ends, line, points).properties(width=WIDTH, height=HEIGHT, title=title)
