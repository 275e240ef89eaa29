"""The answer in sentences, generated from the numbers and never stronger than they are.

Names stand in backticks, as in Markdown.
"""

from dataclasses import dataclass

from stages.evaluation.statistics import FINETUNING, SINGLE
from stages.reporting.contrasts import Cell, Contrast, seeds
from stages.reporting.results import Results


@dataclass(frozen=True)
class Advice:
    """What the study says about one task with one label budget."""

    task: str
    label_budget: str
    best: str
    evidence: list[tuple[str, str]]  # axis, sentence


def advice(results: Results) -> list[Advice]:
    return [
        _advise(results, task, budget)
        for task in results.params.tasks
        for budget in results.label_budgets
    ]


def _advise(results: Results, task: str, label_budget: str) -> Advice:
    tried = [
        cell
        for cell in results.cells
        if (cell.task, cell.label_budget) == (task, label_budget)
        and cell.group not in results.baselines
    ]
    best = max(tried, key=lambda cell: cell.mean(results.confidence).value)
    mean = best.mean(results.confidence)
    tied = [c for c in tried if c.mean(results.confidence).value == mean.value]
    ties = f" (a tie of {len(tied)}: this one is listed first)" if len(tied) > 1 else ""
    headline = (
        f"Highest mean: `{best.group}` with `{best.method}`, "
        f"{points(mean.value)} {metric_name(results.metrics[task])}"
        f"{interval(mean.low, mean.high, results.confidence)}, {_count(best)}{ties}."
    )
    evidence = []
    touching = [c for c in results.contrasts if best in (c.a, c.b) and c.axis != "label budget"]
    for axis in dict.fromkeys(contrast.axis for contrast in touching):
        against = [_against(c, best) for c in touching if c.axis == axis]
        evidence.append((axis, _sentence(" ".join(f"{text};" for text in against))))
    return Advice(task, label_budget, headline, evidence + _beside_baselines(results, best))


def _against(contrast: Contrast, best: Cell) -> str:
    """One contrast as seen from the best cell."""
    sign = 1 if contrast.a is best else -1
    other = contrast.b if contrast.a is best else contrast.a
    name = f"`{other.method}`" if contrast.axis == "method" else f"`{other.group}`"
    low, high = contrast.effect.low, contrast.effect.high
    if sign < 0 and low is not None and high is not None:
        low, high = -high, -low
    size = f"{signed(sign * contrast.effect.value)} points"
    return f"{size} against {name}{interval(low, high, contrast.confidence)}: {contrast.verdict}"


def _beside_baselines(results: Results, best: Cell) -> list[tuple[str, str]]:
    """Where the best run stands beside the strongest classical model, which has no seeds."""
    fitted = [
        cell
        for name in results.baselines
        if (cell := results.cell(name, best.task, best.method, best.label_budget))
    ]
    if not fitted:
        return []
    strongest = max(fitted, key=lambda cell: cell.mean(results.confidence).value)
    value = strongest.mean(results.confidence).value
    mean = best.mean(results.confidence)
    if mean.low is None or mean.high is None:
        where = "one trial, so there is no interval to compare it with"
    elif mean.low > value:
        where = "below the interval of the best run"
    elif mean.high < value:
        where = "above the interval of the best run: no run here beats it"
    else:
        where = "within the interval of the best run: not resolved"
    return [("classical", f"`{strongest.group}` reaches {points(value)}, {where}.")]


def caveats(results: Results) -> list[str]:
    """What the intervals do and do not cover; said once, before everything else."""
    found = []
    bases = {contrast.effect.basis for contrast in results.contrasts}
    if FINETUNING in bases:
        found.append(
            "Where a run was pretrained with one seed, its intervals cover fine-tuning seeds only: "
            "they compare these checkpoints and make no claim about architecture, size or training "
            "set beyond them. More pretraining seeds would."
        )
    if SINGLE in bases:
        found.append("A single trial has no interval; nothing is claimed from it.")
    tested = [c for c in results.contrasts if c.p_holm is not None]
    if tested:
        alpha = 1 - results.confidence
        resolved = sum(c.resolved for c in tested)
        stand = sum(c.verdict == "resolved" for c in tested)
        found.append(
            f"Of {len(tested)} contrasts, {resolved} intervals exclude zero (about "
            f"{alpha * len(tested):.0f} would if nothing differed); {stand} also stand after Holm's "
            "correction for their number, and only these are called resolved without a qualifier."
        )
    found.append(
        "All of it holds for these labelled samples and test sets: drawing others is not covered. "
        "The run with the highest mean is favoured by chance among the runs compared."
    )
    return found


def points(value: float) -> str:
    """A score of 0..1 in points of 0 to 100."""
    return f"{100 * value:.1f}"


def signed(value: float) -> str:
    text = f"{100 * value:+.1f}"
    return text.replace("-", "\N{MINUS SIGN}") if float(text) else "0.0"


def interval(low: float | None, high: float | None, confidence: float) -> str:
    if low is None or high is None:
        return ""
    return f" ({confidence:.0%} interval {_bound(low)} to {_bound(high)})"


def _bound(value: float) -> str:
    return points(value).replace("-", "\N{MINUS SIGN}")


def metric_name(metric: str) -> str:
    return metric.replace("_", " ").replace("f1", "F1")


def _count(cell: Cell) -> str:
    unit = "trial" if seeds(cell) == "1" else "seeds"
    return f"{seeds(cell)} {unit}"


def _sentence(text: str) -> str:
    return text.rstrip(";") + "."
