"""Figures of the validation score after each epoch of fine-tuning."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import altair as alt

from stages.evaluation.metrics import scale_of
from stages.evaluation.records import EpochRecord
from stages.findings.groups import Group
from stages.findings.scores import Scores
from stages.reporting.figures.style import (
    DASHES,
    DOTTED,
    Panel,
    Row,
    Spec,
    colours,
    metric_title,
    styled,
)


def pictures(
    scores: Scores, epochs: Sequence[EpochRecord], task: str, label_budget: str
) -> dict[str, Callable[[], Spec]]:
    """Returns a figure for each method that trains and has trials of runs from scratch."""
    trained = {epoch.method for epoch in epochs}  # methods that do not train have no curves
    return {
        f"curves_{task}_{method}_{label_budget}": partial(
            curves, scores, epochs, task, method, label_budget
        )
        for method in scores.methods
        if method in trained and _from_scratch(scores, task, method, label_budget)
    }


def curves(
    scores: Scores, epochs: Sequence[EpochRecord], task: str, method: str, label_budget: str
) -> Spec:
    """Returns a panel for each run from scratch, with the pretrained runs of the same model. A line
    is the mean over seeds; its band goes from the lowest seed to the highest."""
    points: dict[str, dict[int, list[float]]] = defaultdict(dict)  # by run, then by epoch
    factor = scale_of(scores.metrics[task]).factor
    for record in epochs:
        if (record.task, record.method, record.label_budget) == (task, method, label_budget):
            values = points[record.run].setdefault(record.epoch, [])
            values.append(factor * record.validation_metric)
    data: dict[str, list[Row]] = {}
    panels = []
    for scratch in _from_scratch(scores, task, method, label_budget):
        family = [
            group
            for group in scores.groups
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
            for epoch, values in sorted(points[group.name].items())
        ]
        panels.append(_curves(scores, alt.NamedData(scratch.name), task, scratch))
    figure = alt.hconcat(*panels, spacing=18, title=f"{task}, {method}, {label_budget} labels")
    return styled(figure.resolve_scale(y="shared"), data)


def _from_scratch(scores: Scores, task: str, method: str, label_budget: str) -> list[Group]:
    """Returns the groups from scratch that have trials on this task, with this method and label
    budget."""
    return [
        group
        for group in scores.groups
        if not group.pretrained and scores.cell(group.name, task, method, label_budget)
    ]


def _curves(scores: Scores, data: alt.NamedData, task: str, scratch: Group) -> Panel:
    own = [group for group in scores.groups if group.pretrained and not group.entry.is_public]
    corpora = list(dict.fromkeys(group.corpus for group in own))
    dashes = [*(DASHES[i % len(DASHES)] for i in range(len(corpora))), DOTTED]
    colour = colours(scores)[scratch.architecture]
    base = alt.Chart(data).encode(
        x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, format="d")),
        detail="group:N",
    )
    title = metric_title(scores.metrics[task])
    y = alt.Y("mean:Q", title=f"validation {title}", scale=alt.Scale(zero=False))
    band = base.mark_area(opacity=0.1, color=colour).encode(y="low:Q", y2="high:Q")
    line = base.mark_line(color=colour, strokeWidth=2).encode(
        y=y,
        strokeDash=alt.StrokeDash(
            "training set:N",
            title="pretrained on",
            legend=alt.Legend(titleOrient="top"),
            scale=alt.Scale(domain=[*corpora, "from scratch"], range=dashes),
        ),
    )
    return alt.layer(band, line).properties(
        width=210, height=180, title=[scratch.architecture, _size(scratch)]
    )


def _size(group: Group) -> str:
    model = group.entry.model
    known = [f"{key}={model[key]}" for key in ("num_layers", "d_model") if key in model]
    return ", ".join(known) or group.name
