"""The pages: reports/index.html, one self-contained file, and reports/comparison.md."""

import re
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.reporting.comparison import (
    advice,
    calibration,
    contamination,
    convergence,
    corpora,
    costs,
    estimates,
    gains,
    inputs,
    pretraining_costs,
    pretraining_ends,
    tables,
)
from stages.reporting.comparison.audit.questions import audit, summary
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.not_compared import not_compared_rows
from stages.reporting.comparison.pretraining_progress import passages
from stages.reporting.comparison.results import Results
from stages.reporting.figures import style
from stages.reporting.number_format import metric_name, percent
from stages.reporting.page import reproduction
from stages.reporting.page.sections import sections, trade_offs

COLUMN, ENLARGED = 576, 1.35  # the width of a picture in pixels; by how much it is scaled at most


def context(results: Results) -> Json:
    """The variables of both templates."""
    checks = audit(results)
    return {
        "results": results,
        "study": results.params.study,
        "unit": advice.unit(results),
        "best": advice.best(results),
        "confidence": percent(results.confidence),
        "audit": checks,
        "audit_summary": summary(checks),
        "advice": advice.advice(results),
        "caveats": advice.caveats(results),
        "scores": {task: tables.by_task(results, task) for task in results.params.tasks},
        "sections": sections(results),
        "runs": tables.run_rows(results),
        "not_compared": not_compared_rows(results),
        "tasks": tables.task_rows(results),
        "weights": costs.weights_rows(results),
        "calibration": calibration.section(results),
        "contamination": contamination.section(results),
        "corpora": corpora.section(results),
        "pretraining_ends": pretraining_ends,
        "inputs": inputs.section(results),
        "estimates": estimates.section(results),
        "convergence": convergence.rows(results.cells),
        "reproduction": reproduction,
    }


def markdown(results: Results) -> str:
    """reports/comparison.md; nothing in it depends on the machine."""
    environment = _environment(escaped=False)
    environment.filters["cell"] = _cell
    return environment.get_template("comparison.md.jinja").render(context(results))


def html(results: Results, drawn: Mapping[str, str]) -> str:
    """reports/index.html with the SVGs of the figures, ``drawn``, by their names."""
    environment = _environment(escaped=True)
    environment.filters["prose"] = prose
    return environment.get_template("page.html.jinja").render(
        context(results),
        cost_notes=[*costs.notes(results), *costs.narrower(results), estimates.cost_note(results)],
        pretraining=pretraining_costs.pretraining_rows(results),
        finetuning=costs.finetuning_rows(results),
        gains=gains.gain_rows(results),
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
        "metric": metric_name,
        "anchor": lambda name: name.replace(" ", "-"),
    }
    return environment


def prose(text: str) -> Markup:
    """A sentence as HTML, with the names in backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return re.sub(r"([\\|<>*_`])", r"\\\1", text)


def _inline(svg: str, name: str, label: str) -> Markup:
    """An SVG for the page: scaled to its column, with unique ids and a label for screen readers."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = re.sub(r' aria-(label|roledescription)="[^"]*"| role="[^"]*"', "", svg)
    head = f'<svg role="img" aria-label="{escape(label)}" '

    def scaled(found: re.Match[str]) -> str:
        """A small picture is enlarged little, so that its text is not larger than the page's."""
        widest = ENLARGED * float(found[2])
        limit = f'style="max-width: {widest:.0f}px"' if widest < COLUMN else ""
        return f"{head}{found[1]}{limit}"

    return Markup(re.sub(r'^<svg (.*?)width="([\d.]+)" height="[\d.]+"', scaled, svg.strip()))


def forest(contrast: Contrast, reach: float) -> Markup:
    """The effect and its interval as a small drawing around zero."""
    width, height = 150, 16

    def x(value: float) -> str:
        return f"{width / 2 + value / reach * (width / 2 - 6):.1f}"

    effect = contrast.effect
    low = effect.value if effect.low is None else effect.low
    high = effect.value if effect.high is None else effect.high
    kind = "yes" if contrast.significant_before_correction else "no"
    return Markup(
        f'<svg class="forest {kind}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" aria-hidden="true"><path class="zero" d="M{width / 2} 0V{height}"/>'
        f'<path class="whisker" d="M{x(low)} 8H{x(high)}"/>'
        f'<circle cx="{x(effect.value)}" cy="8" r="4"/></svg>'
    )
