"""The interactive figures of the page, each with its finding as the title."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import NamedTuple

from markupsafe import Markup

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.findings.answers import rivals
from stages.findings.contrasts import Contrast
from stages.findings.results import Results
from stages.findings.scores import Scores
from stages.findings.verdicts import Verdict
from stages.reporting.figures import forest, score_dots, style, trade_offs
from stages.reporting.formats import are, metric_name
from stages.reporting.page.charts import BRACKET, DOTTED, LINE, SYMBOLS, VARIABLES, as_json, chart
from stages.reporting.words.answer import Card, ties
from stages.reporting.words.names import run_or_baseline, shown_mean


class Figure(NamedTuple):
    name: str  # of the picture that replaces the chart
    task: str
    label_budget: str
    finding: str
    note: str
    chart: Markup


class Symbol(NamedTuple):
    """A line of a legend."""

    symbol: str
    colour: str
    text: str


def legends(scores: Scores) -> dict[str, list[Symbol]]:
    """Returns two legends: for scores and costs (colours of architectures, shapes of methods, and
    the line at the right of scores), and for the forest."""
    muted, colours = VARIABLES[style.MUTED], style.colours(scores).items()
    shapes = zip(scores.methods, cycle(style.SHAPES))
    return {
        "scores": [
            *(Symbol(LINE, VARIABLES[colour], name) for name, colour in colours),
            *(Symbol(SYMBOLS[shape], muted, name) for name, shape in shapes),
            Symbol(BRACKET, muted, "not told apart from the best run"),
            Symbol(DOTTED, muted, "in no contrast with it"),
        ],
        "forest": [
            Symbol(SYMBOLS[shape], VARIABLES[forest.COLOURS[kind]], kind)
            for kind, shape in forest.SHAPES.items()
        ],
    }


def figures(results: Results, cards: Iterable[Card]) -> dict[str, list[Figure]]:
    """Returns a figure of scores (key ``scores``) and one of costs (``cost``) for each card. Scores
    leave out cells outside the limits, unless the answer itself is outside. Titles of scores say
    which mean is best and how sure that is; titles of costs say how many runs have a better mean
    than everything that costs less."""
    scores, dots, costs = results.scores, [], []
    for card in cards:
        place = card.task, card.label_budget
        task_and_budget = f"{card.task}_{card.label_budget}"
        best_run = results.best_runs[None][place]
        ranked = rivals(best_run, scores, results.contrasts_of, results.outside)
        spec = score_dots.task_scores(scores, ranked, width="container", title=False)
        tied = ties(ranked, is_limited=best_run.run_is_limited)
        if len(ranked) > score_dots.MOST_ROWS:
            tied += f" The best {score_dots.MOST_ROWS} are drawn; the table below has all."
        best = card.best
        comma = "," if best.group in scores.baselines else ""
        within = " within the limits" if card.is_limited else ""
        finding = (
            f"`{card.task}`: {run_or_baseline(best, scores.baselines)}{comma} has the best "
            f"mean{within}, {shown_mean(best)} {metric_name(best.metric)} ({card.standing.value})"
        )
        dots.append(Figure(f"scores_{task_and_budget}", *place, finding, tied, chart(spec)))
        if (name := f"cost_{task_and_budget}") in trade_offs.pictures(scores, *place):
            key = f"The front, cheapest first: {'; '.join(trade_offs.front_key(scores, *place))}."
            spec = trade_offs.cost(scores, *place, width="container", title=False)
            number = len(trade_offs.front_beside_baselines(scores, *place))
            runs = "run has" if number == 1 else "runs have"
            finding = f"`{card.task}`: {number} {runs} a better mean than all that costs less"
            if not number:
                # The best run may not be drawn, as the FLOPs of a public checkpoint are unknown.
                drawn = "run of known FLOPs" if best_run.run_is_ahead else "run"
                finding = (
                    f"`{card.task}`: no {drawn} has a better mean than the best classical baseline"
                )
            costs.append(Figure(name, *place, finding, key, chart(spec)))
    return {"scores": dots, "cost": costs}


def contrast_forest(contrasts: Sequence[Contrast]) -> Json:
    """Returns the forest's chart and data, the values that a reader can choose for each key, and
    the values that are chosen at first."""
    rows = forest.rows(contrasts)
    shown = forest.first_shown(rows)
    wide, narrow = (forest.interactive(shown, kind) for kind in ("wide", "narrow"))
    chosen = forest.first_choice(rows)
    return {
        "choices": {key: list(dict.fromkeys(str(row[key]) for row in rows)) for key in chosen},
        "chosen": chosen,
        "chart": chart(wide, narrow),
        "data": as_json({"rows": rows, "short": forest.short_values(rows)}),
    }


def forest_finding(contrasts: Sequence[Contrast]) -> str:
    """Returns a sentence on how many contrasts are significant, in all and by axis."""
    after = [c for c in contrasts if c.verdict is Verdict.SIGNIFICANT]
    before = sum(c.verdict is Verdict.BEFORE_CORRECTION for c in contrasts)
    if not contrasts:
        return "No two runs differ in one thing alone"
    parts = Counter(c.axis for c in after)
    along = f" ({', '.join(f'{axis} {number}' for axis, number in parts.items())})" if parts else ""
    return (
        f"{len(after):,} of {len(contrasts):,} contrasts {are(len(after))} significant after Holm "
        f"correction{along}; {before:,} more only before it"
    )


def forest_turned(contrasts: Sequence[Contrast]) -> list[str]:
    """Returns, in a list, a note on the metrics whose lower values are better; [] without any."""
    metrics = dict.fromkeys(contrast.metric for contrast in contrasts)
    lower = [metric_name(metric) for metric in metrics if scale_of(metric).lower_is_better]
    return [forest.TURNED.format(" and ".join(lower))] if lower else []
