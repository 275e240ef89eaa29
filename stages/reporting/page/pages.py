"""The pages: reports/index.html, one self-contained file, and reports/comparison.md."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.reporting.comparison import (
    advice,
    confusions,
    costs,
    estimates,
    gains,
    overview,
    pretraining_costs,
    ranking,
    tables,
)
from stages.reporting.comparison.answer import answers, references
from stages.reporting.comparison.audit.evidence import POWER_QUESTION
from stages.reporting.comparison.audit.questions import audit, summary
from stages.reporting.comparison.pretraining_progress import passages
from stages.reporting.comparison.results import Results
from stages.reporting.figures import style
from stages.reporting.number_format import metric_name, percent
from stages.reporting.page import charts, limits, reproduction
from stages.reporting.page.figures import (
    bracket_legend,
    contrast_forest,
    figures,
    forest_finding,
    forest_legend,
    forest_turned,
    legend,
)
from stages.reporting.page.sections import (
    COST,
    INTERVALS,
    PARAMETERS,
    appendix,
    sections,
    who_is_left_out,
)
from stages.reporting.score_format import interval_of_difference, shown


@lru_cache(maxsize=1)
def context(results: Results) -> Json:
    """The variables of both templates."""
    checks = audit(results)
    return {
        "results": results,
        "study": results.params.study,
        "title": overview.title(results),
        "lead": overview.lead(results),
        "seeds": overview.seeds(results),
        "answers": answers(results),
        "unit": advice.unit(results),
        "best": advice.best(results),
        "confidence": percent(results.confidence),
        "audit": checks,
        "audit_summary": summary(checks),
        "power": next(c.answer for c in checks if c.question == POWER_QUESTION),
        "advice": advice.advice(results),
        "caveats": advice.caveats(results),
        "scores": {task: tables.by_task(results, task) for task in results.params.tasks},
        "confounds": tables.confound_rows(results),
        "ranks": ranking.tables(results),
        "rank_note": ranking.note(results),
        "appendix": appendix(results),
        "reproduction": reproduction,
    }


def markdown(results: Results) -> str:
    """reports/comparison.md; nothing in it depends on the machine."""
    environment = _environment(escaped=False)
    environment.filters["cell"] = _cell
    found = context(results)
    return environment.get_template("comparison.md.jinja").render(
        found,
        machine=overview.machine(results, found["audit"], named=False),
        sections=sections(results),
        weights=costs.weights_rows(results),
    )


def html(results: Results, drawn: Mapping[str, str]) -> str:
    """reports/index.html with the SVGs of the figures, ``drawn``, by their names."""
    environment = _environment(escaped=True)
    environment.filters["prose"] = prose
    found = context(results)
    contrasts = limits.contrasts(results)
    return environment.get_template("page.html.jinja").render(
        found,
        machine=overview.machine(results, found["audit"], named=True),
        references=references(results),
        figures=figures(results, found["answers"]),
        legend=legend(results),
        bracket_legend=bracket_legend(),
        forest_legend=forest_legend(),
        contrasts=contrasts,
        limits=limits,
        forest=contrast_forest(contrasts),
        forest_finding=forest_finding(results),
        forest_turned=forest_turned(results),
        figure_notes={"cost": [COST, *who_is_left_out(results)], "parameters": PARAMETERS},
        interval_notes=INTERVALS,
        cost_notes=[*costs.notes(results), *costs.narrower(results), estimates.cost_note(results)],
        pretraining=pretraining_costs.pretraining_rows(results),
        finetuning=costs.finetuning_rows(results),
        gains=gains.gain_rows(results),
        trials=tables.trials(results) if len(results.trials) <= limits.TRIALS else [],
        leaderboard=limits.leaderboard(tables.leaderboard(results)),
        confusions=confusions.confusions(results),
        passages=passages(results.params, results.progress),
        drawn=drawn,
        pictures=lambda kind: [name for name in drawn if name.startswith(kind)],
        svg=lambda name, label: _inline(drawn[name], name, label),
        runtime=charts.runtime(),
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
    filters: dict[str, Callable[..., str]] = {
        "shown": shown,
        "interval": interval_of_difference,
        "signed": lambda value, metric: scale_of(metric).signed(value),
        "metric": metric_name,
        "anchor": lambda name: name.lower().replace(" ", "-"),
    }
    environment.filters |= filters
    return environment


def prose(text: str) -> Markup:
    """A sentence as HTML, with the names in backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return re.sub(r"([\\|<>*_`])", r"\\\1", text)


def _inline(svg: str, name: str, label: str) -> Markup:
    """An SVG for the page: with unique ids, and a label for screen readers. It is not made smaller
    than it was drawn, so that its text stays legible."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = re.sub(r' aria-(label|roledescription)="[^"]*"| role="[^"]*"', "", svg)
    head = f'<svg class="picture" role="img" aria-label="{escape(label)}" '
    return Markup(re.sub(r"^<svg ", head, svg.strip()))
