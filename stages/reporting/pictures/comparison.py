"""The picture of all scores: a panel for each task, with one scale and sorted rows."""

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.findings.facts import Answer, Score
from stages.reporting.formats import interval, shown
from stages.reporting.svg import Panel, Picture, Plot, Scale
from stages.reporting.view import MAX_ROWS, View
from stages.tasks._metric import POINTS

TOP, RIGHT = 22, 80  # pixels above the rows; percent of a panel that marks may take
ROWS = 228  # pixels of all rows of a panel, where rows fit


def picture(view: View) -> Picture:
    models = view.models[:MAX_ROWS]
    row = max(23, min(36, ROWS / max(1, len(models))))
    scales = _scales(view)
    panels = []
    for task in view.tasks:
        plot = Plot(TOP + row * len(models) + 20, f"Scores on {view.labels[task]}")
        _draw(plot, view, task, scales[view.metrics[task]], row)
        panels.append(Panel(plot, view.labels[task]))
    key = [(look, name.replace("_", "-")) for name, look in view.architectures.items()]
    if any("hollow" in view.look(m.model) for m in models):
        key.append(("hollow sure", "from scratch"))
    return Picture(
        name="comparison",
        title=view.results.params.title or view.labels[view.results.params.study],
        panels=panels,
        rows=[
            _numbers(view, task, m.model, m.method, m.scores[task])
            for task in view.tasks
            for m in view.at(view.budget)
            if task in m.scores
        ],
        names=[view.name(model) for model in models],
        row=row,
        top=TOP,
        key=key,
    )


def _scales(view: View) -> dict[str, Scale]:
    """Returns one scale for all tasks with the same unit, by metric. Baselines far below all
    models, such as the commonest class, are not drawn."""
    ends: dict[str, list[float]] = {}
    for task in view.tasks:
        scale = scale_of(view.metrics[task])
        estimates = [m.scores[task].estimate for m in view.models[:MAX_ROWS] if task in m.scores]
        estimates += [a.baseline.score for a in view.answers if a.task == task and a.baseline]
        values = [v for e in estimates for v in (e.value, e.low, e.high) if v is not None]
        ends.setdefault(scale.unit, []).extend(scale.factor * value for value in values)
    scales = {}
    for unit, values in ends.items():
        room = 0.04 * (max(values) - min(values)) or 1
        low, high = min(values) - room, max(values) + room
        if unit == POINTS.unit:
            low, high = max(low, 0), min(high, 100)
        scales[unit] = Scale(low, high, right=RIGHT)
    return {metric: scales[scale_of(metric).unit] for metric in view.metrics.values()}


def _draw(plot: Plot, view: View, task: str, scale: Scale, row: float) -> None:
    metric, bottom = view.metrics[task], plot.height - 20
    factor, lower = scale_of(metric).factor, scale_of(metric).lower_is_better
    plot.grid(scale, TOP - 4, bottom)
    answer = next((a for a in view.answers if a.task == task), None)
    if answer and answer.baseline:
        _baseline(plot, view, answer, scale, factor, bottom)
    models = view.models[:MAX_ROWS]
    values = [m.scores[task].estimate.value for m in models if task in m.scores]
    best = (min if lower else max)(values, default=None)
    for number, model in enumerate(models):
        if score := model.scores.get(task):
            estimate, y = score.estimate, TOP + row * (number + 0.5)
            ends = None
            if estimate.low is not None and estimate.high is not None:
                low, high = (
                    min(max(factor * v, scale.low), scale.high)
                    for v in (estimate.low, estimate.high)
                )
                ends = (scale(low), scale(high))
            text = shown(estimate.value, metric)
            title = f"{view.name(model)}: {text} ({interval(estimate, metric)})"
            plot.mark(view.look(model.model), scale(factor * estimate.value), y, title, ends)
            strong = " strong" if estimate.value == best else ""
            plot.text(f"value{strong}", "100%", y + 4, text, anchor="end")


def _baseline(
    plot: Plot, view: View, answer: Answer, scale: Scale, factor: int, bottom: float
) -> None:
    assert answer.baseline is not None
    score = answer.baseline.score
    at = scale.percent(factor * score.value)
    if score.low is not None and score.high is not None:
        low, high = (
            scale.percent(min(max(factor * v, scale.low), scale.high))
            for v in (score.low, score.high)
        )
        size = f'width="{high - low:.2f}%" y="{TOP - 4}" height="{bottom - TOP + 4:.1f}"'
        plot.add(f'<rect class="band" x="{low:.2f}%" {size}/>')
    plot.line("baseline", f"{at:.2f}%", 4, f"{at:.2f}%", bottom)
    text = f"{view.labels[answer.baseline.model]} {shown(score.value, answer.metric)}"
    anchor, dx = ("end", -6) if at > 45 else ("start", 6)
    plot.text("soft", f"{at:.2f}%", 12, text, anchor=anchor, dx=dx)


def _numbers(view: View, task: str, model: str, method: str, score: Score) -> Json:
    estimate = score.estimate
    return {
        **{"task": task, "model": model, "method": method, "label_budget": view.budget},
        **{"metric": view.metrics[task], "mean": estimate.value},
        **{"low": estimate.low, "high": estimate.high},
    }
