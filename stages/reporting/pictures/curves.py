"""Pictures of lines: scores by label budget, losses of pretraining, scores by epoch."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.reporting.formats import compact, metric_name
from stages.reporting.svg import Panel, Picture, Plot, Scale, spread
from stages.reporting.view import MAX_ROWS, View

TOP, HEIGHT = 8, 200  # pixels
WIDTH = 380  # pixels of a panel in a file
LETTERS = 20  # of a name beside a line
END = 57  # percent of a panel where lines end and their names begin


@dataclass(frozen=True)
class Line:
    """A model's line in the panel with the title ``panel``."""

    panel: str
    name: str
    look: str
    points: Sequence[tuple[float, float]]


def label_budgets(view: View) -> Picture | None:
    """Scores by number of labels, if the study has several label budgets."""
    if len(view.budgets) < 2:
        return None
    numbers = {(a.task, a.label_budget): a.num_labels for a in view.results.answers}
    points: dict[tuple[str, str, str, str], list[tuple[float, float]]] = defaultdict(list)
    models = {(row.model, row.method) for row in view.models[:MAX_ROWS]}
    first = {a.task: (a.baseline.model, a.baseline.method) for a in view.answers if a.baseline}
    for task in view.tasks:
        shown = {*models, first.get(task)}
        factor = scale_of(view.metrics[task]).factor
        for budget in view.budgets:
            for row in view.at(budget):
                if task in row.scores and (row.model, row.method) in shown:
                    value = factor * row.scores[task].estimate.value
                    key = (task, row.model, row.method, view.name(row))
                    points[key].append((numbers[task, budget], value))
    lines = [
        Line(view.labels[task], name, view.look(model), some)
        for (task, model, _, name), some in points.items()
    ]
    return _picture("label_budgets", "Score by number of labels", lines, log=True)


def losses(view: View) -> Picture | None:
    """Validation losses of pretraining by tokens, a panel for each objective."""
    by_model: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for checkpoint, progress in view.results.progress.items():
        for step in progress.history:
            if step.validation_loss is not None:
                by_model[checkpoint.model][step.tokens].append(step.validation_loss)
    objectives = {trial.model: trial.objective for trial in view.results.trials}
    lines = [
        Line(
            view.labels[objectives[model]], view.labels[model], view.look(model), _means(by_tokens)
        )
        for model, by_tokens in by_model.items()
        if model in objectives
    ]
    return _picture("losses", "Validation loss by tokens of pretraining", lines)


def epochs(view: View) -> Picture | None:
    """Validation scores after each epoch of fine-tuning, a panel for each task."""
    rates = {trial.key: trial.lr for trial in view.results.trials}
    points: dict[tuple[str, str, str], dict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in view.results.curves:
        if record.label_budget == view.budget and rates.get(record.key) == record.lr:
            value = scale_of(view.metrics[record.task]).factor * record.validation_metric
            points[record.task, record.model, record.method][record.epoch].append(value)
    names = {(row.model, row.method): view.name(row) for row in view.models[:MAX_ROWS]}
    lines = [
        Line(view.labels[task], names[model, method], view.look(model), _means(by_epoch))
        for (task, model, method), by_epoch in points.items()
        if (model, method) in names
    ]
    metric = " and ".join(dict.fromkeys(map(metric_name, view.metrics.values())))
    return _picture("epochs", f"Validation {metric} by epoch of fine-tuning", lines)


def shortened(name: str) -> str:
    """Returns a name that fits beside a panel; both ends of a long one stay."""
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 10]}…{name[-9:]}"


def _means(values: Mapping[int, Sequence[float]]) -> list[tuple[float, float]]:
    """Returns the means of those x that have as many values as the first: a mean over fewer seeds
    would jump."""
    most = len(values[min(values)])
    return [(x, fmean(some)) for x, some in sorted(values.items()) if len(some) == most]


def _picture(name: str, title: str, lines: Sequence[Line], *, log: bool = False) -> Picture | None:
    panels = []
    for panel in dict.fromkeys(line.panel for line in lines):
        own = [line for line in lines if line.panel == panel and len(line.points) > 1]
        if own:
            panels.append(Panel(_plot(own, panel, log=log), panel))
    rows: list[Json] = [
        {"panel": line.panel, "model": line.name, "x": x, "y": y}
        for line in lines
        for x, y in line.points
    ]
    return Picture(name, title, panels, rows, width=WIDTH, columns=2) if panels else None


def _plot(lines: Sequence[Line], label: str, *, log: bool) -> Plot:
    height = max(HEIGHT, 14 * len(lines))
    across = [x for line in lines for x, _ in line.points]
    values = [y for line in lines for _, y in line.points]
    room = 0.06 * (max(values) - min(values)) or 1
    x = Scale(min(across), max(across), log=log and min(across) > 0, left=7, right=END)
    y = Scale(min(values) - room, max(values) + room)

    def pixels(value: float) -> float:
        return TOP + (height - TOP) * (1 - y.percent(value) / 100)

    plot = Plot(height + 20, label)
    for tick in y.ticks(4):
        plot.line("grid", 0, pixels(tick), f"{END}%", pixels(tick))
        plot.text("tick", 0, pixels(tick) - 3, f"{round(tick, 6):g}".replace("-", "\N{MINUS SIGN}"))
    for tick in sorted({across[0], *across}) if log and len({*across}) < 6 else x.ticks(4):
        plot.text("tick", x(tick), height + 15, compact(tick), anchor="middle")
    ends = spread([pixels(line.points[-1][1]) for line in lines], 14)
    for line, end in zip(lines, ends, strict=True):
        dashed = " dashed" if "hollow" in line.look or line.look == "soft" else ""
        points = [(a, pixels(b)) for a, b in line.points]
        plot.curve(f"curve {line.look.split()[0]}{dashed}", points, x)
        last = x.percent(points[-1][0])
        plot.line("grid", f"{last + 0.5:.2f}%", points[-1][1], f"{END + 2}%", end)
        plot.text(f"label {line.look}", f"{END + 2.5}%", end + 4, shortened(line.name))
    return plot
