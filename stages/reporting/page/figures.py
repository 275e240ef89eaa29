"""The figures of the page that are interactive, each with its finding as its title."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, product

from markupsafe import Markup

from stages.evaluation.metrics import scale_of
from stages.reporting.comparison.answer import ANY, BASELINE, Answer, Card
from stages.reporting.comparison.best_runs import best_runs
from stages.reporting.comparison.choice import name_of
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.ties import beside_best, sentence
from stages.reporting.comparison.verdicts import BEFORE_CORRECTION, SIGNIFICANT
from stages.reporting.figures import forest, score_dots, style, trade_offs
from stages.reporting.number_format import are, metric_name
from stages.reporting.page.charts import BRACKET, DOTTED, LINE, SYMBOLS, VARIABLES, as_json, chart
from stages.reporting.score_format import shown


@dataclass(frozen=True)
class Figure:
    name: str  # of its picture
    task: str
    label_budget: str
    finding: str
    note: str
    chart: Markup


@dataclass(frozen=True)
class Symbol:
    """A line of a legend."""

    symbol: str
    colour: str
    text: str


def legend(results: Results) -> list[Symbol]:
    """Of scores and costs: colours of architectures, shapes of methods."""
    colours = style.colours(results).items()
    shapes = zip(results.methods, cycle(style.SHAPES))
    return [
        *(Symbol(LINE, VARIABLES[colour], name) for name, colour in colours),
        *(Symbol(SYMBOLS[shape], VARIABLES[style.MUTED], name) for name, shape in shapes),
    ]


def bracket_legend() -> list[Symbol]:
    """Of the line at the right of scores."""
    texts = {BRACKET: "not told apart from the best run", DOTTED: "not tested against it"}
    return [Symbol(symbol, VARIABLES[style.MUTED], text) for symbol, text in texts.items()]


def forest_legend() -> list[Symbol]:
    return [
        Symbol(SYMBOLS[shape], VARIABLES[forest.COLOURS[kind]], kind)
        for kind, shape in forest.SHAPES.items()
    ]


@dataclass(frozen=True)
class Forest:
    rows: Sequence[dict[str, object]]
    choices: dict[str, list[str]]  # of each key that rows can be chosen by
    chosen: dict[str, str]
    chart: Markup
    data: Markup


def figures(results: Results, found: Sequence[Answer]) -> dict[str, list[Figure]]:
    """Scores and costs, for each task and label budget."""
    cards = {(c.task, c.label_budget): c for a in found if a.method == ANY for c in a.cards}
    best = best_runs(results)
    scores, costs = [], []
    for budget, task in product(reversed(results.label_budgets), results.params.tasks):
        place = results, task, budget
        spec = score_dots.scores(results, best[task, budget], width="container", title=False)
        beside = beside_best(results, best[task, budget])
        tied = sentence(beside)
        if len(beside) > score_dots.MOST_ROWS:
            tied += f" The best {score_dots.MOST_ROWS} are drawn; the table below has all."
        finding = _scores(results, cards[task, budget])
        name = f"scores_{task}_{budget}"
        scores.append(Figure(name, task, budget, finding, tied, chart(spec)))
        name = f"cost_{task}_{budget}"
        if name in trade_offs.pictures(*place):
            key = f"The front, cheapest first: {'; '.join(trade_offs.front_key(*place))}."
            spec = trade_offs.cost(*place, width="container", title=False)
            finding = _cost(results, cards[task, budget])
            costs.append(Figure(name, task, budget, finding, key, chart(spec)))
    return {"scores": scores, "cost": costs}


def _scores(results: Results, card: Card) -> str:
    """The first place, and whether it is sure."""
    best = card.best
    mean = f"{shown(best.mean.value, best.metric)} {metric_name(best.metric)}"
    comma = "," if best.group in results.baselines else ""
    named = f"{name_of(results, best)}{comma}"
    return f"`{card.task}`: {named} has the best mean, {mean} ({card.sure})"


def _cost(results: Results, card: Card) -> str:
    """How many runs have a better mean than all that costs less."""
    if card.sure == BASELINE:
        return f"`{card.task}`: no run has a better mean than the best classical baseline"
    number = len(trade_offs.front_beside_baselines(results, card.task, card.label_budget))
    runs = "run has" if number == 1 else "runs have"
    return f"`{card.task}`: {number} {runs} a better mean than all that costs less"


def contrast_forest(contrasts: Sequence[Contrast]) -> Forest:
    rows = forest.rows(contrasts)
    shown = forest.first_shown(rows)
    wide, narrow = (forest.interactive(shown, kind) for kind in ("wide", "narrow"))
    chosen = forest.first_choice(rows)
    return Forest(
        rows=rows,
        choices={key: list(dict.fromkeys(str(row[key]) for row in rows)) for key in chosen},
        chosen=chosen,
        chart=chart(wide, narrow),
        data=as_json({"rows": rows, "short": forest.short_values(rows)}),
    )


def forest_finding(results: Results) -> str:
    """How many contrasts are decided, and by which axis."""
    contrasts = results.contrasts
    after = [c for c in contrasts if c.verdict.startswith(SIGNIFICANT)]
    before = sum(c.verdict.startswith(BEFORE_CORRECTION) for c in contrasts)
    if not contrasts:
        return "No two runs differ in one thing alone"
    parts = Counter(c.axis for c in after)
    along = f" ({', '.join(f'{axis} {number}' for axis, number in parts.items())})" if parts else ""
    return (
        f"{len(after):,} of {len(contrasts):,} contrasts {are(len(after))} significant after Holm "
        f"correction{along}; {before:,} more {are(before)} before it"
    )


def forest_turned(results: Results) -> list[str]:
    """Of the metrics in which lower is better."""
    metrics = dict.fromkeys(contrast.metric for contrast in results.contrasts)
    lower = [metric_name(metric) for metric in metrics if scale_of(metric).lower_is_better]
    return [forest.TURNED.format(" and ".join(lower))] if lower else []
