"""The answer in sentences, generated from the numbers and never stronger than they are.

Names stand in backticks, as in Markdown.
"""

from dataclasses import dataclass

from stages.evaluation.metrics import POINTS, scale_of
from stages.evaluation.statistics import AGREEING, FINETUNING, POWER, SINGLE
from stages.reporting.comparison import contamination
from stages.reporting.comparison.cells import Cell, seeds
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.results import Results


@dataclass(frozen=True)
class Advice:
    """What the study says about one task with one label budget."""

    task: str
    label_budget: str
    best: str
    evidence: list[tuple[str, list[str]]]  # axis, sentences


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
    best = max(tried, key=lambda cell: cell.merit)
    mean = best.mean
    tied = [c for c in tried if c.mean.value == mean.value]
    ties = f" (a tie of {len(tied)}: this one is listed first)" if len(tied) > 1 else ""
    headline = (
        f"{extreme(best.metric).capitalize()} mean: `{best.group}` with `{best.method}`, "
        f"{scale_of(best.metric).shown(mean.value)} {metric_name(best.metric)}"
        f"{interval(mean.low, mean.high, results.confidence, best.metric)}, {_count(best)}{ties}."
    )
    found: dict[str, list[Contrast]] = {}
    for contrast in results.contrasts:
        here = (contrast.task, contrast.label_budget) == (task, label_budget)
        if here and (contrast.method == best.method or best in (contrast.a, contrast.b)):
            found.setdefault(contrast.axis, []).append(contrast)
    evidence = [(axis, _evidence(results, members, best)) for axis, members in found.items()]
    return Advice(task, label_budget, headline, evidence + _beside_baselines(results, best))


def _evidence(results: Results, contrasts: list[Contrast], best: Cell) -> list[str]:
    """The contrasts of the best run or, where it has none, of the best that has."""
    cells = [cell for contrast in contrasts for cell in (contrast.a, contrast.b)]
    leader = best if best in cells else max(cells, key=lambda c: c.merit)
    return [_sentence(c, leader) for c in contrasts if leader in (c.a, c.b)]


def _sentence(contrast: Contrast, leader: Cell) -> str:
    """One contrast as seen from one of its sides."""
    mine = contrast.a is leader
    effect, other = contrast.effect, contrast.b if mine else contrast.a
    low, high = effect.low, effect.high
    if not mine and low is not None and high is not None:
        low, high = -high, -low
    by_method = contrast.axis == "method"
    names = (leader.method, other.method) if by_method else (leader.group, other.group)
    scale = scale_of(contrast.metric)
    bounds = ""
    if low is not None and high is not None:
        bounds = f" ({scale.signed(low)} to {scale.signed(high)})"
    value = effect.value if mine else -effect.value
    size = f"{scale.signed(value)} {scale.unit}".strip() + bounds
    return f"`{names[0]}` against `{names[1]}`: {size}, {contrast.shown}."


def _beside_baselines(results: Results, best: Cell) -> list[tuple[str, list[str]]]:
    """Where the best run stands beside the strongest classical model, which has no seeds."""
    fitted = [
        cell
        for name in results.baselines
        if (cell := results.cell(name, best.task, best.method, best.label_budget))
    ]
    if not fitted:
        return []
    strongest = max(fitted, key=lambda cell: cell.merit)
    value = strongest.mean.value
    mean = best.mean
    beaten = ": no run here beats it" if strongest.merit > best.merit else ""
    if mean.low is None or mean.high is None:
        where = f"{mean.basis}, so there is no interval to compare it with"
    elif mean.low > value:
        where = f"below the interval of the best run{beaten}"
    elif mean.high < value:
        where = f"above the interval of the best run{beaten}"
    else:
        where = "within the interval of the best run: not resolved"
    return [
        (
            "classical",
            [f"`{strongest.group}` reaches {scale_of(best.metric).shown(value)}, {where}."],
        )
    ]


def caveats(results: Results) -> list[str]:
    """What the intervals do and do not cover; said once, before everything else."""
    found = []
    bases = {contrast.effect.basis for contrast in results.contrasts}
    bases |= {c.mean.basis for c in results.cells if c.group not in results.params.baselines}
    if FINETUNING in bases:
        found.append(
            "Where a run was pretrained with one seed, its intervals cover fine-tuning seeds only: "
            "they compare these checkpoints and make no claim about architecture, size or training "
            "set beyond them. More pretraining seeds would."
        )
    if SINGLE in bases:
        found.append("A single trial has no interval; nothing is claimed from it.")
    if AGREEING in bases:
        found.append(
            "Where all seeds agree, for instance since nothing was trained or every trial gave one "
            "constant answer, there is no interval; nothing is claimed from their number."
        )
    tested = [c for c in results.contrasts if c.p_holm is not None]
    if tested:
        alpha = 1 - results.confidence
        resolved = sum(c.resolved for c in tested)
        stand = sum(c.verdict == "resolved" for c in tested)
        found.append(
            f"Of {len(tested)} contrasts, {resolved} intervals exclude zero (about "
            f"{alpha * len(tested):.0f} would if nothing differed); {stand} also stand after "
            "Holm's correction for their number; only these are called resolved without more words."
        )
    if any(c.effect.seeds_needed and not c.resolved for c in tested):
        found.append(
            "Beside what is not resolved stands how many seeds of each side would find an effect "
            f"of the size that was seen, in {percent(POWER)} of studies; it is a rough number."
        )
    found += contamination.caveats(results)
    found.append(
        "All of it holds for these labelled samples and test sets: drawing others is not covered. "
        "The run with the highest mean is favoured by chance among the runs compared."
    )
    return found


def extreme(metric: str) -> str:
    """Where the best mean is."""
    return "lowest" if scale_of(metric).lower_is_better else "highest"


def unit(results: Results) -> str:
    """What scores are in."""
    units = {scale_of(metric) for metric in results.metrics.values()}
    return "points" if units == {POINTS} else "points, or of likelihoods in their own unit"


def best(results: Results) -> str:
    """Which mean of a column is the best."""
    found = {extreme(metric) for metric in results.metrics.values()}
    return found.pop() if len(found) == 1 else "best"


def interval(low: float | None, high: float | None, confidence: float, metric: str) -> str:
    if low is None or high is None:
        return ""
    return f" ({percent(confidence)} interval {_bound(low, metric)} to {_bound(high, metric)})"


def percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _bound(value: float, metric: str) -> str:
    return scale_of(metric).shown(value).replace("-", "\N{MINUS SIGN}")


SPELT = {"f1": "F1", "squad": "SQuAD", "bleu": "BLEU", "chrf": "chrF", "rouge": "ROUGE", "l": "L"}


def metric_name(metric: str) -> str:
    """``rouge_l`` as people write it, ROUGE L."""
    return " ".join(SPELT.get(word, word) for word in metric.split("_"))


def _count(cell: Cell) -> str:
    unit = "trial" if seeds(cell) == "1" else "seeds"
    return f"{seeds(cell)} {unit}"
