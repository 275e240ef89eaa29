"""The answer in sentences, generated from the numbers and never stronger than they are.

Names are in backticks, as in Markdown.
"""

from dataclasses import dataclass
from statistics import median

from stages.evaluation.metrics import scale_of
from stages.evaluation.precision import doublings, sentence
from stages.evaluation.statistics import (
    AGREEING,
    POWER,
    PRETRAINING,
    ROWS,
    SINGLE,
    Interval,
)
from stages.reporting.comparison import contamination, convergence, inputs, screening
from stages.reporting.comparison.cells import Cell, seeds
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.verdicts import BEFORE_CORRECTION, NOT_SIGNIFICANT, ONE_SEED
from stages.reporting.number_format import compact, metric_name, percent
from stages.reporting.score_format import (
    in_parentheses,
    interval,
    interval_of_difference,
    shown,
    with_unit,
)


@dataclass(frozen=True)
class Advice:
    """The answer for one task and label budget."""

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
    tried = _tried(results, task, label_budget)
    best = best_cell(results, task, label_budget)
    mean = best.mean
    tied = [c for c in tried if c.mean.value == mean.value]
    ties = f" (tie of {len(tied)}, the first one listed)" if len(tied) > 1 else ""
    headline = (
        f"{extreme(best.metric).capitalize()} mean: `{best.group}` with `{best.method}`, "
        f"{shown(mean.value, best.metric)} {metric_name(best.metric)}"
        f"{_interval(best)}, {_count(best)}{ties}."
    )
    found: dict[str, list[Contrast]] = {}
    for contrast in results.contrasts:
        here = (contrast.task, contrast.label_budget) == (task, label_budget)
        if here and (contrast.method == best.method or best in (contrast.a, contrast.b)):
            found.setdefault(contrast.axis, []).append(contrast)
    evidence = [(axis, _evidence(results, members, best)) for axis, members in found.items()]
    return Advice(task, label_budget, headline, evidence + _beside_baselines(results, best))


def _tried(results: Results, task: str, label_budget: str) -> list[Cell]:
    return [
        cell
        for cell in results.cells
        if (cell.task, cell.label_budget) == (task, label_budget)
        and cell.group not in results.baselines
    ]


def best_cell(results: Results, task: str, label_budget: str) -> Cell:
    """Of all runs and methods there, the one with the best mean."""
    return max(_tried(results, task, label_budget), key=lambda cell: cell.merit)


def best_with(results: Results, task: str, label_budget: str, method: str) -> Cell | None:
    """Of all runs there with one method, the one with the best mean; None if there is none."""
    tried = [cell for cell in _tried(results, task, label_budget) if cell.method == method]
    return max(tried, key=lambda cell: cell.merit, default=None)


def _evidence(results: Results, contrasts: list[Contrast], best: Cell) -> list[str]:
    """The contrasts of the best cell or, if it has none, of the best cell that has one."""
    cells = [cell for contrast in contrasts for cell in (contrast.a, contrast.b)]
    leader = best if best in cells else max(cells, key=lambda c: c.merit)
    return [sentence_of(c, leader) for c in contrasts if leader in (c.a, c.b)]


def sentence_of(contrast: Contrast, leader: Cell) -> str:
    """One contrast as seen from one of its sides."""
    other = contrast.b if contrast.a is leader else contrast.a
    by_method = contrast.axis == "method"
    names = (leader.method, other.method) if by_method else (leader.group, other.group)
    size = size_of(contrast.effect, contrast.metric, turned=contrast.a is not leader)
    return f"`{names[0]}` against `{names[1]}`: {size}, {contrast.verdict_with_seeds}."


def size_of(effect: Interval, metric: str, *, turned: bool = False) -> str:
    """``+3.4 points (+0.7 to +6.1)``; ``turned``, as seen from the other side."""
    value = with_unit(-effect.value if turned else effect.value, metric)
    return value + in_parentheses(interval_of_difference(effect, metric, turned=turned))


def beside_baseline(results: Results, best: Cell) -> tuple[Cell, Interval] | None:
    """The strongest classical baseline, fitted to the same labels, and the difference of the run
    to it; None if no baseline fits the task."""
    fitted = [
        cell
        for name in results.baselines
        if (cell := results.cell(name, best.task, best.method, best.label_budget))
    ]
    if not fitted:
        return None
    strongest = max(fitted, key=lambda cell: cell.merit)
    # It is fitted once for each pretraining seed of the study, and the run may have fewer; and
    # once in all where there is one way to draw the labels.
    fitted_alike = strongest.sample.of_seeds(best.sample)
    if len(fitted_alike.keys) == 1:
        fitted_alike = fitted_alike.repeated()
    effect = results.moderation.difference(best.key, strongest.key, sample_b=fitted_alike)
    return strongest, effect


def _beside_baselines(results: Results, best: Cell) -> list[tuple[str, list[str]]]:
    found = beside_baseline(results, best)
    if found is None:
        return []
    strongest, effect = found
    ends = interval_of_difference(effect, best.metric)
    if not ends:
        beside = f"there is no interval of the difference ({effect.basis})"
    else:
        size = with_unit(effect.value, best.metric)
        beside = f"the best run against it: {size} ({ends}; {effect.basis})"
        beside += "" if effect.excludes_zero else f", {NOT_SIGNIFICANT}"
    beaten = "; no run here beats it" if strongest.merit > best.merit else ""
    reaches = f"`{strongest.group}` reaches {shown(strongest.mean.value, best.metric)}"
    return [("classical", [f"{reaches}; {beside}{beaten}."])]


def caveats(results: Results) -> list[str]:
    """What the intervals and verdicts cover, and what they do not."""
    found = []
    contrasts = results.contrasts
    if one_seed := sum(contrast.verdict == ONE_SEED for contrast in contrasts):
        found.append(
            f"{one_seed} of {len(contrasts)} contrasts have a side with one pretraining seed. "
            "Their intervals cover fine-tuning seeds and test rows: they compare these checkpoints "
            "and have no verdict, since another seed might give another result. A verdict about "
            "architecture, objective, size, training set or method needs several."
        )
    bases = {contrast.effect.basis for contrast in contrasts}
    bases |= {c.mean.basis for c in results.cells if c.group not in results.params.baselines}
    if PRETRAINING in bases:
        found.append(
            "Intervals cover pretraining seeds, fine-tuning seeds (and with them the labels that "
            "are drawn and, from scratch, the initial weights) and test rows, which are paired."
        )
    if any(cell.has_one_pretraining_seed for cell in results.cells) and not one_seed:
        found.append(
            "Intervals cover fine-tuning seeds and test rows where a run has one pretraining seed: "
            "they are about that checkpoint."
        )
    if any(cell.checkpoints == "published" for cell in results.cells):
        found.append(
            "Published checkpoints have no seeds: their verdicts are about these checkpoints, not "
            "about how they were made."
        )
    if SINGLE in bases:
        found.append("A single trial has no interval and supports no claim.")
    if ROWS in bases:
        found.append(
            f"'{ROWS}': the interval covers the drawing of test rows, and the number of seeds is "
            "no evidence. This happens, for example, if nothing was trained or if every trial "
            "predicts one constant answer."
        )
    if AGREEING in bases:
        found.append(
            "Where all seeds agree in every test row, there is no interval, and their number "
            "supports no claim."
        )
    found += screening.caveats(results)
    found += _tested(results)
    found += contamination.caveats(results)
    found += inputs.caveats(results)
    found += convergence.caveats(results.cells)
    found.append(
        "Each seed draws its labelled rows from the train split of the task, unless the label "
        "budget is all of it. All results hold for these tasks and corpora; the intervals do not "
        "cover the drawing of others. The highest mean of several runs is favoured by chance."
    )
    return found


def _tested(results: Results) -> list[str]:
    """What the tests found, and what would find more."""
    found = []
    tested = [c for c in results.contrasts if c.p_holm is not None]
    asked = [question for question in results.questions if question.is_tested]
    if tested:
        alpha = 1 - results.confidence
        before = sum(c.significant_before_correction for c in tested)
        after = sum(c.significant for c in tested)
        found.append(
            f"Tests come in two stages. First the {len(asked)} effects averaged over tasks: "
            f"{sum(question.significant for question in asked)} are significant after Holm "
            "correction for their number. Then the contrasts on single tasks of these, corrected "
            f"together: {after} are significant. Of all {len(tested)} contrasts, {before} have an "
            f"interval that excludes zero (at most about {alpha * len(tested):.0f} would if "
            f"nothing differed); the other {before - after} are marked '{BEFORE_CORRECTION}'."
        )
        found += _moderated(results)
    if any(c.seeds_needed for c in tested):
        found.append(
            "'About N seeds would be needed' estimates how many seeds on each side would find an "
            f"effect of the observed size in {percent(POWER)} of studies on as many test rows: "
            "pretraining seeds, or fine-tuning seeds where nothing was pretrained here. It is a "
            "rough estimate."
        )
    undecided = doublings(
        [contrast.row() for contrast in results.contrasts],
        [vars(trial) for trial in results.trials],
        pretraining="pretrain_flops",
        finetuning="finetune_flops",
    )
    return found + sentence(
        undecided, lambda flops: f"{compact(flops)} FLOPs", per="per TFLOP", unit=1e12
    )


def _moderated(results: Results) -> list[str]:
    """How much of what is known about variances comes from other cells."""
    variances = [c.effect.variance.between for c in results.contrasts if c.effect.variance]
    moderated = [between for between in variances if between.prior_df]
    if not moderated:
        return []
    own = median(between.df - between.prior_df for between in moderated)
    others = median(between.prior_df for between in moderated)
    return [
        "The variance between seeds of a contrast is shrunk towards that of comparable contrasts: "
        f"in the median it has {own:.3g} degrees of freedom of its own and {others:.3g} from other "
        f"cells, as from {others:.3g} more seeds. {len(variances) - len(moderated)} of "
        f"{len(variances)} contrasts have no comparable ones."
    ]


def extreme(metric: str) -> str:
    """Which mean is the best."""
    return "lowest" if scale_of(metric).lower_is_better else "highest"


def unit(results: Results) -> str:
    """The units of the scores: ``points``, or ``points or bits per byte``."""
    units = (scale_of(metric).unit or metric_name(metric) for metric in results.metrics.values())
    return " or ".join(dict.fromkeys(units))


def best(results: Results) -> str:
    """Which mean of a column is in bold."""
    found = {extreme(metric) for metric in results.metrics.values()}
    return found.pop() if len(found) == 1 else "best"


def _interval(cell: Cell) -> str:
    ends = interval(cell.mean, cell.metric)
    return f" ({percent(cell.confidence)} interval {ends})" if ends else ""


def _count(cell: Cell) -> str:
    unit = "trial" if seeds(cell) == "1" else "seeds"
    return f"{seeds(cell)} {unit}"
