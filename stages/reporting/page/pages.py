"""The report to read: one self-contained HTML page, and the same in Markdown."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from stages.evaluation.metrics import scale_of
from stages.reporting.comparison import advice, contamination, costs, tables
from stages.reporting.comparison.axes import AXES, Axis
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.pretraining_progress import passages
from stages.reporting.comparison.results import Results
from stages.reporting.figures import style
from stages.reporting.figures.trade_offs import unpriced
from stages.reporting.page import reproduction

INTRODUCTIONS: dict[Axis, str] = {
    "architecture": "Architectures, each with the objective it is pretrained with, at the "
    "nearest sizes that the study has.",
    "objective": "The same model, pretrained with another objective.",
    "size": "The same architecture with other dimensions.",
    "training set": "The same model, pretrained on another training set.",
    "pretrained": "The same model, pretrained and from scratch.",
    "checkpoint": "Public checkpoints, each as it was published. They differ in architecture, "
    "size, training set and more at once: this says which one does better here, and not why.",
    "tokenizer": "The same run with another tokenizer.",
    "parent": "The same run from another starting point.",
    "training": "The same run, optimised in another way.",
    "method": "The same checkpoint, fine-tuned in another way.",
    "label budget": "The same checkpoint, fine-tuned on more and on fewer labels.",
}


COST = (
    "The mean of each run and method against what a trial took: pretraining, with all that the run "
    "came from, and fine-tuning, at all learning rates that were tried. The line is the front: "
    "nothing does better for as few FLOPs; its corners are numbered, the cheapest first. Dotted: "
    "the best classical baseline."
)
PARAMETERS = (
    "Each pretrained run by its best method of those that train most of its weights, or else by "
    "its best. Numbered are those that no run of as many parameters or fewer beats. A curve, where "
    "an architecture has three sizes with one objective, training set and tokenizer, is the power "
    "law through them. Its band is the {} interval over seeds if there is such a law: marks beside "
    "the band speak against one, and no other sizes are claimed."
)


@dataclass(frozen=True)
class Block:
    """The contrasts on one task with one label budget, and the baselines that stand beside."""

    task: str
    label_budget: str
    baselines: list[tuple[str, float]]
    contrasts: list[Contrast]


@dataclass(frozen=True)
class Part:
    """What one axis does under one method."""

    method: str
    tables: list[tables.Table]
    blocks: list[Block]


@dataclass(frozen=True)
class Section:
    axis: Axis
    introduction: str
    parts: list[Part]
    reach: float  # the farthest end of an interval from zero: the scale of its drawings


@dataclass(frozen=True)
class TradeOff:
    heading: str
    caption: str
    pictures: dict[str, str]  # name -> what to call it for who cannot see it


def sections(results: Results) -> list[Section]:
    """The axes in which the study's groups differ."""
    return [
        Section(axis, INTRODUCTIONS[axis], list(_parts(results, axis, members)), _reach(members))
        for axis in AXES
        if (members := [contrast for contrast in results.contrasts if contrast.axis == axis])
    ]


def _parts(results: Results, axis: Axis, members: Sequence[Contrast]) -> Iterable[Part]:
    for method in dict.fromkeys(contrast.method for contrast in members):
        within = [contrast for contrast in members if contrast.method == method]
        places = dict.fromkeys((contrast.task, contrast.label_budget) for contrast in within)
        yield Part(
            method=method,
            tables=tables.by_axis(results, axis, method) if axis in tables.MEANS else [],
            blocks=[
                Block(
                    task=task,
                    label_budget=budget,
                    baselines=_baselines(results, task, budget),
                    contrasts=[c for c in within if (c.task, c.label_budget) == (task, budget)],
                )
                for task, budget in places
            ],
        )


def _baselines(results: Results, task: str, label_budget: str) -> list[tuple[str, float]]:
    found = [(name, results.cell(name, task, "", label_budget)) for name in results.baselines]
    return [(name, cell.mean.value) for name, cell in found if cell]


def _reach(contrasts: Sequence[Contrast]) -> float:
    effects = [c.effect for c in contrasts]
    ends = [abs(end) for e in effects for end in (e.value, e.low, e.high) if end is not None]
    return max(*ends, 0.01)


def trade_offs(results: Results, drawn: Collection[str]) -> list[TradeOff]:
    """The pictures of score against cost and size, if there are any."""
    parameters = PARAMETERS.format(advice.percent(results.confidence))
    found = []
    for kind, heading, caption in (
        ("cost", "Score against training cost", " ".join([COST, *_left_out(results)])),
        ("parameters", "Score against size", parameters),
    ):
        pictures = {
            f"{kind}_{task}_{budget}": f"{heading}, on {task} with {budget} labels"
            for task, budget in product(results.params.tasks, results.label_budgets)
            if f"{kind}_{task}_{budget}" in drawn
        }
        found += [TradeOff(heading, caption, pictures)] if pictures else []
    return found


def _left_out(results: Results) -> Iterable[str]:
    """Who has no place in the pictures of cost, and why."""
    unknown, untrained = unpriced(results)
    if unknown:
        names = ", ".join(f"`{name}`" for name in unknown)
        yield f"Left out, as nobody knows what their pretraining took: {names}."
    if untrained:
        names = ", ".join(f"`{run}` with `{method}`" for run, method in untrained)
        yield f"Left out, as nothing was trained: {names}."


def context(results: Results) -> dict[str, Any]:
    """What both templates show."""
    return {
        "results": results,
        "study": results.params.study,
        "unit": advice.unit(results),
        "best": advice.best(results),
        "confidence": advice.percent(results.confidence),
        "advice": advice.advice(results),
        "caveats": advice.caveats(results),
        "scores": {task: tables.by_task(results, task) for task in results.params.tasks},
        "sections": sections(results),
        "runs": tables.run_rows(results),
        "tasks": tables.task_rows(results),
        "weights": costs.weights_rows(results),
        "contamination": contamination.section(results),
        "reproduction": reproduction,
    }


def markdown(results: Results) -> str:
    """reports/comparison.md: nothing in it was measured on a machine."""
    environment = _environment(escaped=False)
    environment.filters["cell"] = _cell
    return environment.get_template("comparison.md.jinja").render(context(results))


def html(results: Results, drawn: Mapping[str, str]) -> str:
    """reports/index.html, with the SVGs ``drawn`` by ``figures`` in it, by their names."""
    environment = _environment(escaped=True)
    environment.filters["prose"] = prose
    return environment.get_template("page.html.jinja").render(
        context(results),
        cost_notes=costs.notes(results),
        pretraining=costs.pretraining_rows(results),
        finetuning=costs.finetuning_rows(results),
        gains=costs.gain_rows(results),
        trials=tables.trials(results),
        trade_offs=trade_offs(results, drawn),
        passages=passages(results.params, results.progress),
        drawn=drawn,
        svg=lambda name, label: _inline(drawn[name], name, label),
        forest=forest,
        palette={"ink": style.INK, "muted": style.MUTED, "grid": style.GRID},
    )


def _environment(*, escaped: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "shown": lambda value, metric: scale_of(metric).shown(value),
        "signed": lambda value, metric: scale_of(metric).signed(value),
        "metric": advice.metric_name,
        "anchor": lambda name: name.replace(" ", "-"),
    }
    return environment


def prose(text: str) -> Markup:
    """A sentence with names in backticks, escaped for HTML."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return re.sub(r"([\\|<>*_`])", r"\\\1", text)


def _inline(svg: str, name: str, label: str) -> Markup:
    """An SVG for the page: scaled to its column, its ids its own, named for who cannot see it."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = re.sub(r' aria-(label|roledescription)="[^"]*"| role="[^"]*"', "", svg)
    head = f'<svg role="img" aria-label="{escape(label)}" '
    return Markup(re.sub(r'^<svg (.*?)width="[\d.]+" height="[\d.]+"', rf"{head}\1", svg.strip()))


def forest(contrast: Contrast, reach: float) -> Markup:
    """The effect and its interval as a small drawing around zero."""
    width, height = 150, 16

    def x(value: float) -> str:
        return f"{width / 2 + value / reach * (width / 2 - 6):.1f}"

    effect = contrast.effect
    low = effect.value if effect.low is None else effect.low
    high = effect.value if effect.high is None else effect.high
    kind = "yes" if contrast.resolved else "no"
    return Markup(
        f'<svg class="forest {kind}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" aria-hidden="true"><path class="zero" d="M{width / 2} 0V{height}"/>'
        f'<path class="whisker" d="M{x(low)} 8H{x(high)}"/>'
        f'<circle cx="{x(effect.value)}" cy="8" r="4"/></svg>'
    )
