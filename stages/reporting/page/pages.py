"""The pages: reports/index.html, one self-contained file, and reports/comparison.md."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.findings.audit import Subject, audit
from stages.findings.confusions import Confusion, confusion
from stages.findings.costs import gains
from stages.findings.not_tried import not_tried
from stages.findings.pretraining_progress import passages
from stages.findings.results import Results
from stages.reporting.figures import style
from stages.reporting.formats import (
    interval_of_difference,
    metric_name,
    percent,
    shown,
    thousands,
)
from stages.reporting.page import charts, limits, reproduction
from stages.reporting.page.figures import (
    contrast_forest,
    figures,
    forest_finding,
    forest_turned,
    legends,
)
from stages.reporting.page.sections import (
    COST,
    INTERVALS,
    INTRODUCTIONS,
    PARAMETERS,
    appendix,
    sections,
)
from stages.reporting.page.tooltips import with_tooltips
from stages.reporting.words import costs, files, overview, tables
from stages.reporting.words.answer import ANY, RULE, answers
from stages.reporting.words.answer_limits import within
from stages.reporting.words.audit import in_order, objections, summary, told
from stages.reporting.words.caveats import caveats
from stages.reporting.words.glossary import TERMS
from stages.reporting.words.names import (
    reason,
    seeds_of_contrast,
    span,
    verdict,
    verdict_with_seeds,
)

SMALLEST = 11  # pixels; letters in a picture are at least this large


@lru_cache(maxsize=1)
def context(results: Results) -> Json:
    """Returns the variables of both templates."""
    scores, contrasts = results.scores, results.contrasts
    questions = told(audit(results))
    num_validation = [about["num_examples"]["validation"] for about in results.tasks.values()]
    return {
        "study": results.params.study,
        "title": results.params.title or overview.QUESTION,
        "lead": overview.compared(scores, len(results.trials), span(num_validation)),
        "draws_splits": any(about["split_seeds"] for about in results.tasks.values()),
        "seeds": overview.seeds(scores, contrasts, results.questions),
        "answers": answers(results),
        "metrics": scores.metrics,
        "unit": overview.units(scores.metrics.values()),
        "best": overview.best(scores.metrics.values()),
        "confidence": percent(results.confidence),
        "audit": in_order(questions.values()),
        "audit_summary": summary(questions.values()),
        "objections": objections(questions.values()),
        "power": questions[Subject.POWER].answer,
        "caveats": caveats(results),
        "gaps": overview.gaps(not_tried(results)),
        "plan": overview.PLAN,
        "use_it": overview.USE_IT,
        "rule": RULE + within(results.params.answer),
        "scores": {
            task: tables.by_task(scores, results.screened_out[task], task, [*results.params.runs])
            for task in scores.tasks
        },
        # Label budgets leave out the validation labels, which serve to choose epochs and settings.
        "validation_labels": {
            task: f"+{about['num_examples']['validation']:,} labels for validation"
            for task, about in results.tasks.items()
        },
        "num_contrasts": len(contrasts),
        "confounds": tables.confound_rows(contrasts),
        "ranks": tables.ranks(results.rankings),
        "rank_note": tables.rank_note(results.confidence),
        "appendix": appendix(results),
        "reproduction": reproduction,
    }


def markdown(results: Results) -> str:
    """Returns reports/comparison.md. Nothing in it depends on the machine, except the answer of a
    study with a limit on speed."""
    environment = _environment(escaped=False)
    environment.filters["cell"] = _cell
    values = context(results)
    return environment.get_template("comparison.md.jinja").render(
        values,
        machine=overview.machine(values["audit_summary"]),
        sections=sections(results.contrasts),
        introductions=INTRODUCTIONS,
        weights=costs.weights_rows(results.scores),
    )


def html(results: Results, drawn: Mapping[str, str]) -> str:
    """Returns reports/index.html. ``drawn`` has the SVGs of the figures by name."""
    environment = _environment(escaped=True)
    environment.filters["prose"] = prose
    scores, measured, best_runs = results.scores, results.costs, results.best_runs[None]
    values = context(results)
    contrasts = limits.contrasts(results.contrasts, best_runs.values(), scores)
    cards = [card for answer in values["answers"] if answer.method == ANY for card in answer.cards]
    page = environment.get_template("page.html.jinja").render(
        values,
        machine=overview.machine(values["audit_summary"], measured.machines),
        figures=figures(results, cards),
        legends=legends(scores),
        contrasts=contrasts,
        limits=limits,
        forest=contrast_forest(contrasts),
        forest_finding=forest_finding(results.contrasts),
        forest_turned=forest_turned(results.contrasts),
        figure_notes={"cost": [COST, *costs.left_out(scores)], "parameters": PARAMETERS},
        interval_notes=INTERVALS,
        cost_notes=costs.notes(measured, results.estimates, results.contrasts, results.trials),
        pretraining=costs.pretraining_rows(results.groups, results.trials, measured),
        finetuning=costs.finetuning_rows(scores, measured),
        gains=costs.gain_rows(gains(results.contrasts, results.groups, measured)),
        trials=files.trial_rows(results) if len(results.trials) <= limits.TRIALS else [],
        num_trials=len(results.trials),
        leaderboard=limits.leaderboard(tables.leaderboard(scores)),
        num_cells=len(scores.cells),
        confusions=[*_confusions(results)],
        finding_of_confusion=lambda each: tables.most_confused(each, scores.baselines),
        shades=tables.shades,
        examples=results.examples,
        compute=results.params.compute,
        passages=passages(results.params.runs, results.progress),
        drawn=drawn,
        pictures=lambda kind: [name for name in drawn if name.startswith(kind)],
        svg=lambda name, label: _inline(drawn[name], name, label),
        runtime=charts.runtime(),
        palette={"ink": style.INK, "muted": style.MUTED, "grid": style.GRID},
    )
    head, main, body = page.partition("<main>")
    return head + main + with_tooltips(body, TERMS)


def _confusions(results: Results) -> Iterator[Confusion]:
    """Yields for each task the confusion of its best run, then of its best baseline, over all
    trials with the most labels. Tasks without classes have none."""
    most = results.scores.label_budgets[-1]
    for task in results.scores.tasks:
        best = results.best_runs[None][task, most]
        for cell in filter(None, (best.run, best.strongest)):
            if confused := confusion(cell, results.confusion[task]):
                yield confused


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
        "thousands": thousands,
        "verdict": verdict,
        "reason": reason,
        "verdict_with_seeds": verdict_with_seeds,
        "seeds_of": seeds_of_contrast,
        "anchor": lambda name: name.lower().replace(" ", "-"),
    }
    environment.filters |= filters
    return environment


def prose(text: str) -> Markup:
    """Returns a sentence as HTML, in which names in backticks become code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _cell(text: str) -> str:
    """Returns a text escaped for a cell of a Markdown table."""
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", text)


def _inline(svg: str, name: str, label: str) -> Markup:
    """Returns an SVG for the page, with unique ids and a label for screen readers. It is as wide as
    its column, or wider if letters would be smaller than SMALLEST pixels."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = re.sub(r' aria-(label|roledescription)="[^"]*"| role="[^"]*"', "", svg)
    width = re.search(r'^<svg [^>]*?\bwidth="([\d.]+)"', svg.strip())
    letters = [float(size) for size in re.findall(r'font-size="([\d.]+)', svg)]
    least = float(width[1]) * SMALLEST / min(letters) if width and letters else 0
    head = f'<svg class="picture" style="min-width: {least:.0f}px" role="img" '
    return Markup(re.sub(r"^<svg ", f'{head}aria-label="{escape(label)}" ', svg.strip()))
