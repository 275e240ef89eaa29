"""Figures of the validation loss of pretraining against tokens seen and against FLOPs.

Tokens and FLOPs are counted, not measured, so the figures are the same on every machine.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import altair as alt

from stages.core.keys import RunKey
from stages.core.params import NONE, Run
from stages.findings.groups import Group
from stages.findings.pretraining_progress import Progress
from stages.findings.scores import Scores
from stages.reporting.figures.labelled_lines import domain_of, named_ends, names
from stages.reporting.figures.style import Panel, Row, Spec, architecture_colour, styled

Amount = Literal["tokens", "flops"]

TITLES: dict[Amount, str] = {"tokens": "tokens seen", "flops": "FLOPs"}
HEIGHT, WIDTH, COLUMNS = 170, 230, 2


@dataclass(frozen=True)
class Losses:
    """The validation losses of a study's pretrainings."""

    groups: Sequence[Group]
    runs: Mapping[str, Run]
    progress: Mapping[RunKey, Progress]

    @property
    def comparable(self) -> dict[str, list[Group]]:
        """The groups that were pretrained here, by what their validation loss depends on:
        objective, validation text, tokenizer and length of rows."""
        panels: dict[str, list[Group]] = defaultdict(list)
        for group in self.groups:
            if any(self.progress[checkpoint].history for checkpoint in group.checkpoints):
                entry = group.entry
                rows = f"{entry.tokenizer}, rows of {entry.training.max_tokens}"
                panels[f"{entry.objective['name']} on {entry.corpus} ({rows})"].append(group)
        return panels

    def lines(self, group: Group, amount: Amount) -> list[Row]:
        """Returns a point for each validation of each checkpoint of a group, at the kept learning
        rate. ``x`` is the amount used so far, including that of parents and teachers."""
        return [
            {
                "run": group.name,
                "line": str(checkpoint),
                "architecture": group.architecture,
                "width": 2 if len(group.seeds) == 1 else 1,
                "x": self._of_parents(checkpoint, amount) + getattr(step, amount),
                "y": step.validation_loss,
            }
            for checkpoint in group.checkpoints
            for step in self.progress[checkpoint].history
            if step.validation_loss is not None
        ]

    def _of_parents(self, checkpoint: RunKey, amount: Amount) -> int:
        """Returns the amount that all parents and teachers used here. The amount that a public
        checkpoint's publisher used is unknown and counts as 0."""
        name = self.runs[checkpoint.run].parent
        if name == NONE:
            return 0
        parent = RunKey(name, checkpoint.pretrain_seed)
        history = self.progress[parent].history
        own = getattr(history[-1], amount) if history else 0
        return own + self._of_parents(parent, amount)


def pictures(scores: Scores, losses: Losses) -> dict[str, Callable[[], Spec]]:
    """Returns a figure for each amount, or none if the study pretrains nothing."""
    if not losses.comparable:
        return {}
    amounts: tuple[Amount, ...] = ("tokens", "flops")
    return {f"pretraining_{amount}": partial(picture, scores, losses, amount) for amount in amounts}


def picture(scores: Scores, losses: Losses, amount: Amount) -> Spec:
    """Returns a panel for each set of comparable runs, with a line for each seed. If a run
    has several seeds, these lines are thin with one name. Amounts include parents and teachers."""
    lines = {
        title: [row for group in groups for row in losses.lines(group, amount)]
        for title, groups in losses.comparable.items()
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
        panels.append(_panel(scores, title, x, domain))
    chart = alt.concat(*panels, columns=COLUMNS, spacing=24).resolve_scale(color="shared")
    return styled(chart, data)


def _panel(scores: Scores, title: str, x: alt.X, domain: tuple[float, float]) -> Panel:
    colour = architecture_colour(scores, baselines=False)
    scale = alt.Scale(domain=list(domain), nice=False)
    y = alt.Y("y:Q", title="validation loss", scale=scale, axis=alt.Axis(tickCount=5))
    base = alt.Chart(alt.NamedData(title)).encode(x=x, y=y, color=colour, detail="line:N")
    line = base.mark_line().encode(strokeWidth=alt.StrokeWidth("width:Q", scale=None))
    points = base.mark_point(size=14, filled=True, opacity=1)
    ends = names(alt.NamedData(f"ends of {title}"), scale, colour, width=WIDTH)
    return alt.layer(*ends, line, points).properties(width=WIDTH, height=HEIGHT, title=title)
