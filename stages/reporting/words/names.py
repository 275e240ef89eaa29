"""Cells, contrasts, verdicts and confounds in words. Names are in backticks, as in Markdown."""

from collections.abc import Sequence

from stages.evaluation.metrics import scale_of
from stages.evaluation.statistics import Interval
from stages.findings.axes import TOKENS_OF_TEXT, Confound
from stages.findings.cells import AMOUNTS, Cell
from stages.findings.contrasts import Contrast
from stages.findings.convergence import FITTED_UNEQUALLY, NOT_CONVERGED, faults
from stages.findings.verdicts import Tested, Verdict
from stages.reporting.formats import (
    compact,
    in_parentheses,
    interval_of_difference,
    metric_name,
    shown,
    thousands,
    with_unit,
)

ABOUT_CHECKPOINTS = Verdict.SIGNIFICANT, Verdict.BEFORE_CORRECTION, Verdict.NOT_SIGNIFICANT
OF_CHECKPOINTS = " for these checkpoints"
NO_VERDICT = "no verdict"


def verdict(tested: Tested) -> str:
    """Returns the verdict as files and pages spell it."""
    verdict = tested.verdict
    if verdict is Verdict.NO_INTERVAL:
        return f"{tested.effect.basis}: {verdict.value}"
    of_checkpoints = tested.of_published and verdict in ABOUT_CHECKPOINTS
    return verdict.value + (OF_CHECKPOINTS if of_checkpoints else "")


def reason(tested: Tested) -> str:
    """Returns why an effect is significant only before correction: ``p must be under 0.003 among 17
    questions; this is 0.012``. Empty for every other effect."""
    threshold, p_value = tested.threshold, tested.effect.p_value
    if tested.verdict is not Verdict.BEFORE_CORRECTION or threshold is None or p_value is None:
        return ""
    if threshold.p_value is None:
        return "a single task is claimed only if the mean over tasks is significant"
    return (
        f"p must be under {threshold.p_value:.2g} among {threshold.num_tests:,} "
        f"{threshold.family.value}; this is {p_value:.2g}"
    )


def verdict_with_reason(tested: Tested) -> str:
    return verdict(tested) + in_parentheses(reason(tested))


def verdict_with_seeds(contrast: Contrast) -> str:
    """Returns the verdict with its reason, or with the number of seeds that would be needed."""
    needed = contrast.seeds_needed
    about = f"about {needed} seeds would be needed" if needed else ""
    return verdict_with_reason(contrast) + in_parentheses(about)


def seeds(cell: Cell) -> str:
    """Returns the number of seeds: ``5`` fine-tuning, or ``3 x 5`` pretraining x fine-tuning."""
    if cell.num_pretrain_seeds > 1:
        return f"{cell.num_pretrain_seeds} x {cell.num_finetune_seeds}"
    return str(cell.num_finetune_seeds)


def seeds_of_contrast(contrast: Contrast) -> str:
    one, other = map(seeds, contrast.sides)
    return one if one == other else f"{one} v. {other}"


def confound(found: Confound) -> str:
    """Returns a confound with both values: ``parameters: 2.55M v. 1.1M``."""
    return f"{found.name}: {_values(found)}"


def _values(found: Confound) -> str:
    if found.name in AMOUNTS.values():
        return " v. ".join(map(compact, found.values))
    if found.name == TOKENS_OF_TEXT:
        return " v. ".join(f"{tokens:,}" for tokens in found.values)
    if found.name == NOT_CONVERGED:
        (cell,) = found.values
        return f"{cell.group} ({', '.join(warnings(cell))})"
    if found.name == FITTED_UNEQUALLY:
        losses = " v. ".join(f"{loss:.2g}" for loss in found.values)
        return f"training loss at the end {losses}"
    return " v. ".join(map(str, found.values))


def faults_in_words(cell: Cell) -> list[str]:
    """Returns the cell's faults, each with its number of trials: ``still improving in 3 of 5``."""
    return [f"{fault.name} in {n} of {len(cell.trials)}" for fault, n in faults(cell).items()]


def warnings(cell: Cell) -> list[str]:
    """Returns signs that the cell's trials were not fitted for long enough: ``still improving in 3
    of 5``, ``best epoch last in 3 of 5``. Empty if there are none."""
    faults = faults_in_words(cell)
    last = sum(trial.best_is_last for trial in cell.trials)
    if faults and last:
        faults.append(f"best epoch last in {last} of {len(cell.trials)}")
    return faults


def place(cell: Cell) -> str:
    return f"{cell.group} on {cell.task}, {cell.method}, {thousands(cell.label_budget)} labels"


def run_or_baseline(cell: Cell, baselines: Sequence[str]) -> str:
    """Returns the name of a run with its method, or that of a baseline with its kind."""
    if cell.is_external:
        return f"`{cell.group}`, an external system"
    if cell.group in baselines:
        return f"`{cell.group}`, a classical baseline"
    return f"`{cell.group}` with `{cell.method}`"


def best_baseline(*, may_be_external: bool) -> str:
    """Returns the phrase for the strongest baseline, which may be an external system."""
    return "the best baseline" if may_be_external else "the best classical baseline"


def shown_mean(cell: Cell) -> str:
    return shown(cell.mean.value, cell.metric)


def size_of(effect: Interval, metric: str) -> str:
    """Returns an effect with its unit and interval: ``+3.4 points (+0.7 to +6.1)``."""
    inside = in_parentheses(interval_of_difference(effect, metric))
    return with_unit(effect.value, metric) + inside


def unit_of_scores(metric: str) -> str:
    """Returns the unit ``points``, or the name of the metric if its scores have no unit."""
    return scale_of(metric).unit or metric_name(metric)


def span(numbers: Sequence[int]) -> str:
    """Returns the range of the numbers: ``1 to 3``, or ``3`` if all are equal."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def counted(number: int, name: str) -> str:
    """Returns a number with a noun: ``1 model``, ``3 models``."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
