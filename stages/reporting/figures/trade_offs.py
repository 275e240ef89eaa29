"""What a better score takes: pictures of it against training cost and against size.

Both are counted, not measured, so that no machine changes these pictures.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import altair as alt
import numpy as np

from stages.evaluation.metrics import scale_of
from stages.evaluation.statistics import per_finetune_seed, per_pretrain_seed
from stages.reporting.comparison.advice import percent
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.power_law import PowerLaw, fit, num_sizes
from stages.reporting.comparison.results import Results
from stages.reporting.figures.style import (
    BASELINE,
    INK,
    MUTED,
    Panel,
    Row,
    Spec,
    architecture_colour,
    mark,
    method_shape,
    styled,
    unit_of,
)

HEIGHT, WIDTH = 240, 440  # pixels
STEPS = 24  # of a drawn curve
Priced = list[tuple[Cell, int]]  # cells and what they took, or how large they are


def pictures(results: Results, task: str, label_budget: str) -> dict[str, Callable[[], Spec]]:
    """Those of a task with a label budget that show a difference in cost or size."""
    place = (results, task, label_budget)
    found = {}
    if len({flops for _, flops in priced(*place)}) > 1:
        found[f"cost_{task}_{label_budget}"] = partial(cost, *place)
    if num_sizes([size for _, size in sized(*place)]) > 1:
        found[f"parameters_{task}_{label_budget}"] = partial(parameters, *place)
    return found


def cost(results: Results, task: str, label_budget: str) -> Spec:
    """The mean of every run and method against its FLOPs, and the front of those that nothing
    beats for as few."""
    cells = priced(results, task, label_budget)
    front = pareto_front([(flops, cell.merit) for cell, flops in cells])
    data = {
        "marks": _marks(results, cells, front),
        "front": _front(results, [cells[i] for i in front], max(flops for _, flops in cells)),
        "baseline": _baseline(results, task, label_budget),
    }
    line = (
        alt.Chart(alt.NamedData("front"))
        .mark_line(interpolate="step-after", color=MUTED, strokeWidth=1.25)
        .encode(x="x:Q", y="score:Q")
    )
    baseline = (
        alt.Chart(alt.NamedData("baseline"))
        .mark_rule(color=BASELINE, strokeDash=[2, 3], strokeWidth=1)
        .encode(y="score:Q")
    )
    colour = architecture_colour(results)
    marks = _points(results, cells, "FLOPs of pretraining and fine-tuning", colour)
    panel = _panel([baseline, line, *marks], task, label_budget, _key(cells, front))
    return styled(panel, data)


def parameters(results: Results, task: str, label_budget: str) -> Spec:
    """The mean of every pretrained run by its best method that trains most of its weights, or else
    by its best, against its parameters.

    Where an architecture has three sizes with one objective, training set and tokenizer, the power
    law through them, with its interval over seeds; see ``PowerLaw``.
    """
    cells = sized(results, task, label_budget)
    front = pareto_front([(size, cell.merit) for cell, size in cells])
    laws = power_laws(results, cells)
    data = {
        "marks": _marks(results, cells, front),
        "laws": [
            row
            for group, law, sizes in laws
            for row in _curve(results.metrics[task], group, law, sizes)
        ],
    }
    colour = architecture_colour(results, baselines=False)
    base = alt.Chart(alt.NamedData("laws")).encode(x="x:Q", color=colour, detail="run:N")
    band = base.mark_area(opacity=0.12).encode(y="low:Q", y2="high:Q")
    line = base.mark_line(strokeWidth=1.5).encode(y="score:Q")
    lines = [*_key(cells, front), *(_formula(results, group, law) for group, law, _ in laws)]
    marks = _points(results, cells, "parameters", colour)
    return styled(_panel([band, line, *marks], task, label_budget, lines), data)


def priced(results: Results, task: str, label_budget: str) -> Priced:
    """Each run and method, and the FLOPs of its lineage and of a fine-tuning trial, on average;
    without those of unknown cost, and those of none, which have no place on a logarithmic axis."""
    cells = _cells(results, task, label_budget)
    return [(cell, flops) for cell in cells if (flops := total_flops(cell))]


def total_flops(cell: Cell) -> int | None:
    """Of pretraining and fine-tuning; None is unknown."""
    lineage, finetuning = cell.amounts["lineage_flops"], cell.amounts["finetune_flops"]
    return None if lineage is None or finetuning is None else lineage + finetuning


def unpriced(results: Results) -> tuple[list[str], list[tuple[str, str]]]:
    """Who is in no picture of cost: the runs whose cost is unknown, and the runs and methods that
    had none."""
    runs = [cell for cell in results.cells if cell.group not in results.baselines]
    unknown = [cell.group for cell in runs if total_flops(cell) is None]
    untrained = [(cell.group, cell.method) for cell in runs if total_flops(cell) == 0]
    return list(dict.fromkeys(unknown)), list(dict.fromkeys(untrained))


def sized(results: Results, task: str, label_budget: str) -> Priced:
    """Each pretrained group at its best, and its parameters."""
    cells = _cells(results, task, label_budget)
    found = []
    for group in results.groups:
        own = [cell for cell in cells if cell.group == group.name]
        if own and group.pretrained:
            best = max(own, key=lambda cell: (_trains_most(group, cell), cell.merit))
            found.append((best, group.num_params))
    return found


def _trains_most(group: Group, cell: Cell) -> bool:
    trained = cell.amounts["num_trained_params"]
    return trained is not None and 2 * trained > group.num_params


def power_laws(results: Results, cells: Priced) -> list[tuple[Group, PowerLaw, list[int]]]:
    """A law for each architecture, objective, training set and tokenizer that has one, with the
    first of its groups and its sizes."""
    groups = {group.name: group for group in results.groups}
    families: dict[str, Priced] = defaultdict(list)
    for cell, size in cells:
        group = groups[cell.group]
        alike = (group.architecture, group.entry.objective, group.corpus, group.entry.tokenizer)
        families[repr(alike)].append((cell, size))
    found = []
    for members in families.values():
        sizes = [size for _, size in members]
        errors = _errors([cell for cell, _ in members])
        if law := fit(sizes, errors, confidence=results.confidence):
            found.append((groups[members[0][0].group], law, sizes))
    return found


def _errors(cells: Sequence[Cell]) -> list[list[float]]:
    """Of each cell those of the seeds that all have: of pretraining if these are several, since
    they take in both sources of chance, and else of fine-tuning."""
    samples = [per_pretrain_seed(cell.values) for cell in cells]
    shared = set.intersection(*map(set, samples))
    if len(shared) < 2:
        samples = [per_finetune_seed(cell.values) for cell in cells]
        shared = set.intersection(*map(set, samples))
    metric = cells[0].metric
    return [[error(metric, sample[seed]) for seed in sorted(shared)] for sample in samples]


def error(metric: str, value: float) -> float:
    """What a score lacks; a score that is better when lower is itself one. Its own inverse."""
    return value if scale_of(metric).lower_is_better else 1 - value


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The (cost, merit) that no other beats for as little, by their index, cheapest first; of
    equals the first."""
    front: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not front or points[i][1] > points[front[-1]][1]:
            front.append(i)
    return front


def _cells(results: Results, task: str, label_budget: str) -> list[Cell]:
    """Those of the runs."""
    return [
        cell
        for group in results.groups
        for method in results.methods
        if (cell := results.cell(group.name, task, method, label_budget))
    ]


def _marks(results: Results, cells: Priced, front: Sequence[int]) -> list[Row]:
    """Those of the front are numbered from the left."""
    number = {i: str(n) for n, i in enumerate(front, start=1)}
    return [
        {**mark(results, cell), "x": x, "number": number.get(i, "")}
        for i, (cell, x) in enumerate(cells)
    ]


def _front(results: Results, cells: Priced, end: int) -> list[Row]:
    """The corners of the line, which goes on to the dearest mark."""
    corners = [{"x": x, "score": mark(results, cell)["score"]} for cell, x in cells]
    return [*corners, {**corners[-1], "x": end}]


def _baseline(results: Results, task: str, label_budget: str) -> list[Row]:
    """The best one."""
    cells = [results.cell(name, task, "", label_budget) for name in results.baselines]
    best = max(filter(None, cells), key=lambda cell: cell.merit, default=None)
    return [mark(results, best)] if best else []


def _curve(metric: str, group: Group, law: PowerLaw, sizes: Sequence[int]) -> list[Row]:
    """The law as scores, from the smallest size to the largest."""
    factor = scale_of(metric).factor
    rows = []
    for x in np.geomspace(min(sizes), max(sizes), STEPS).tolist():
        score, low, high = (factor * error(metric, e) for e in law.error(x))
        ends = {"low": max(min(low, high), 0), "high": max(low, high)}
        rows.append(
            {"run": group.name, "architecture": group.architecture, "x": x, "score": score} | ends
        )
    return rows


def _points(results: Results, cells: Priced, x_title: str, colour: alt.Color) -> list[alt.Chart]:
    """The marks, and the numbers of those of the front, where no other mark can be."""
    metric = cells[0][0].metric
    lower = scale_of(metric).lower_is_better
    base = alt.Chart(alt.NamedData("marks")).encode(
        x=alt.X(
            "x:Q",
            title=x_title,
            scale=alt.Scale(type="log", nice=False, padding=16),
            axis=alt.Axis(format="~s", tickCount=5, labelOverlap=True, grid=False),
        ),
        y=alt.Y(
            "score:Q",
            title=f"{metric}, {unit_of(metric)}",
            scale=alt.Scale(zero=False, padding=10),
        ),
    )
    points = base.mark_point(size=52, strokeWidth=1.75, opacity=1).encode(
        color=colour,
        shape=method_shape(results, shown={cell.method for cell, _ in cells}),
        fill=alt.Fill("fill:N", scale=None, legend=None),
    )
    numbers = base.mark_text(
        align="right", dx=-6, dy=9 if lower else -9, fontSize=11, color=INK
    ).encode(text="number:N")
    return [points, numbers]


def _key(cells: Priced, front: Sequence[int]) -> list[str]:
    """What the numbers of the front stand for."""
    shown = (cells[i][0] for i in front)
    return [
        f"{n} {cell.group}, {cell.method}: {scale_of(cell.metric).shown(cell.mean.value)}"
        for n, cell in enumerate(shown, start=1)
    ]


def _formula(results: Results, group: Group, law: PowerLaw) -> str:
    b = law.exponent
    what = f"{group.architecture}, {group.objective} on {group.corpus}"
    formula = f"error = {law.factor:.3g} N^\N{MINUS SIGN}b, b = {_signed(b.value)}"
    if b.low is None or b.high is None:
        return f"{what}: {formula}"
    interval = f"{percent(results.confidence)} interval {_signed(b.low)} to {_signed(b.high)}"
    return f"{what}: {formula} ({interval})"


def _signed(value: float) -> str:
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def _panel(layers: Sequence[alt.Chart], task: str, label_budget: str, lines: list[str]) -> Panel:
    """``lines`` of text stand above."""
    title = alt.Title(
        f"{task}, {label_budget} labels",
        subtitle=lines,
        subtitleColor=MUTED,
        subtitleFontSize=12,
        subtitlePadding=6,
    )
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title)
