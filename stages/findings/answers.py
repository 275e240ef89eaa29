"""The answer for a task: the best run and baseline, what ties with them, and what costs less."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product

import numpy as np
from scipy import special

from stages.evaluation.moderation import Moderation
from stages.evaluation.statistics import Interval, holm
from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.costs import total_flops
from stages.findings.scores import Scores
from stages.findings.verdicts import Tested, Verdict

STEPS = 4000  # points of the numerical integral; even, so that 0 lies between two points
REACH = 9.0  # limit of the integral, in standard deviations
FAR = 6.0  # standard errors; a cell this far below the best is never chosen


class Standing(Enum):
    """How sure it is that the best run is better than every baseline."""

    LEADS = "ahead of the baselines"
    OPEN = "model first, a baseline may be as good"
    BASELINE = "baseline first"
    UNTESTED = "not tested against a baseline"


@dataclass(frozen=True, kw_only=True)
class BestRun(Tested):
    """The best run of a task and label budget, compared with the strongest classical baseline.

    ``effect`` is the difference to the ``strongest`` baseline. If none fits the task, ``strongest``
    is None and ``effect`` the mean of the run.
    """

    run: Cell
    strongest: Cell | None
    p_holm: float = 1.0  # corrected for the number of tasks and label budgets

    @property
    def run_is_ahead(self) -> bool:
        return self.strongest is None or self.run.merit > self.strongest.merit

    @property
    def best(self) -> Cell:
        """The run or the baseline, whichever has the better mean; the baseline if they are equal,
        because it costs less."""
        return self.run if self.strongest is None or self.run_is_ahead else self.strongest

    @property
    def has_one_pretraining_seed(self) -> bool:
        return self.run.has_one_pretraining_seed

    @property
    def of_published(self) -> bool:
        return self.run.checkpoints == "published"

    @property
    def has_small_p_value(self) -> bool:
        """Whether the corrected p-value is small, even if the run has one pretraining seed and so
        no verdict."""
        return self.p_holm < 1 - self.run.confidence

    @property
    def is_tested(self) -> bool:
        return self.strongest is not None and super().is_tested

    @property
    def standing(self) -> Standing:
        if not self.run_is_ahead:
            return Standing.BASELINE
        if not self.is_tested:
            return Standing.UNTESTED
        return Standing.LEADS if self.has_small_p_value else Standing.OPEN

    @property
    def baseline_may_be_as_good(self) -> bool:
        """Whether the best baseline is first, or its difference from the best run may be 0."""
        return self.strongest is not None and (not self.run_is_ahead or includes_zero(self.effect))


BestRuns = Mapping[tuple[str, str], BestRun]  # by task and label budget


def best_runs(scores: Scores, moderation: Moderation, methods: Sequence[str]) -> BestRuns:
    """Returns the best run of each task and label budget with one of the ``methods``. A task and
    label budget without trials of these methods is left out."""
    best_by_place: dict[tuple[str, str], BestRun] = {}
    for task, budget in product(scores.tasks, scores.label_budgets):
        cells = [cell for cell in scores.run_cells(task, budget) if cell.method in methods]
        if cells:
            run = max(cells, key=lambda cell: cell.merit)
            best_by_place[task, budget] = with_baseline(run, scores, moderation)
    known = {place: best for place, best in best_by_place.items() if best.strongest is not None}
    p_values = [best.effect.p_value for best in known.values()]
    corrected = holm([1.0 if p_value is None else p_value for p_value in p_values])
    for place, p_holm in zip(known, corrected, strict=True):
        best_by_place[place] = replace(best_by_place[place], p_holm=p_holm)
    return best_by_place


def with_baseline(run: Cell, scores: Scores, moderation: Moderation) -> BestRun:
    """Returns the run and the strongest classical baseline, which is fitted to the same labels."""
    baselines = scores.baseline_cells(run.task, run.label_budget)
    if not baselines:
        return BestRun(run=run, strongest=None, effect=run.mean)
    strongest = max(baselines, key=lambda cell: cell.merit)
    # A baseline is fitted for every pretraining seed of the study, and the run may have fewer
    # seeds. Where all seeds draw the same labels, the baseline is fitted only once.
    fitted_alike = strongest.sample.of_seeds(run.sample)
    if len(fitted_alike.keys) == 1:
        fitted_alike = fitted_alike.repeated()
    effect = moderation.difference(run.key, strongest.key, sample_b=fitted_alike)
    return BestRun(run=run, strongest=strongest, effect=effect)


class Tie(Enum):
    """How a run or baseline compares with the best run."""

    BEST = "the best run"
    TIED = "not told apart"  # tested, but not significant after Holm correction
    UNTESTED = "not tested"
    APART = "told apart"


@dataclass(frozen=True)
class Rival:
    """A run or baseline with its best method, compared with the best run."""

    cell: Cell
    tie: Tie
    tested: Tested | None = None  # the comparison, if there is one


def rivals(
    best: BestRun, scores: Scores, contrasts_of: Mapping[Cell, Sequence[Contrast]]
) -> list[Rival]:
    """Returns every run and baseline with trials on the best run's task and label budget, each with
    its best method, the best mean first."""
    place = best.run.task, best.run.label_budget
    best_by_name: dict[str, Cell] = {}
    for cell in [*scores.run_cells(*place), *scores.baseline_cells(*place)]:
        known = best_by_name.get(cell.group)
        if known is None or cell.merit > known.merit:
            best_by_name[cell.group] = cell
    cells = sorted(best_by_name.values(), key=lambda cell: -cell.merit)
    return [_rival(best, cell, contrasts_of.get(cell, [])) for cell in cells]


def _rival(best: BestRun, cell: Cell, contrasts: Sequence[Contrast]) -> Rival:
    if cell.group == best.run.group:
        return Rival(cell, Tie.BEST)
    if cell is best.strongest:
        return Rival(cell, _tie(best, significant=best.has_small_p_value), best)
    for contrast in contrasts:
        if best.run in contrast.sides:
            return Rival(cell, _tie(contrast, significant=contrast.significant), contrast)
    return Rival(cell, Tie.UNTESTED)


def _tie(tested: Tested, *, significant: bool) -> Tie:
    if not tested.is_tested:
        return Tie.UNTESTED
    return Tie.APART if significant else Tie.TIED


def next_best(best: Cell, scores: Scores, methods: Sequence[str]) -> Cell | None:
    """Returns the best cell of all other runs (with one of the ``methods``) and baselines, or None
    if there are no others."""
    others = [
        cell
        for cell in scores.cells
        if (cell.task, cell.label_budget) == (best.task, best.label_budget)
        and cell.group != best.group
        and (cell.method in methods or cell.group in scores.baselines)
    ]
    return max(others, key=lambda cell: cell.merit, default=None)


def smaller(best: Cell, scores: Scores, methods: Sequence[str]) -> Cell | None:
    """Returns the best cell of the other runs that use fewer parameters, with one of the
    ``methods``, or None if there is no such run or ``best`` is a baseline. The same run with
    another method is no other run, although methods add different numbers of parameters."""
    limit = best.amounts["num_params"]
    if best.group in scores.baselines or limit is None:
        return None
    candidates = []
    for cell in scores.run_cells(best.task, best.label_budget):
        size = cell.amounts["num_params"]
        is_other = cell.group != best.group and cell.method in methods
        if is_other and size is not None and size < limit:
            candidates.append(cell)
    return max(candidates, key=lambda cell: cell.merit, default=None)


def cheapest_run(best: Cell, contrasts: Sequence[Contrast], methods: Sequence[str]) -> Cell:
    """Returns the run with the fewest FLOPs among the best run and the runs that may be as good,
    with one of the ``methods``. A run may be as good if the interval of its contrast with the best
    run includes 0. Runs of unknown cost are left out."""
    good = [best]
    for contrast in contrasts:
        other = contrast.other(best)
        here = other.label_budget == best.label_budget and other.method in methods
        if here and contrast.is_tested and includes_zero(contrast.effect):
            good.append(other)
    known = [(flops, cell) for cell in good if (flops := total_flops(cell)) is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else best


def includes_zero(effect: Interval) -> bool:
    return effect.variance is not None and not effect.excludes_zero


@dataclass(frozen=True)
class Lead:
    """The contrasts of the best run with other runs, by what they say about its first place."""

    ahead: list[Contrast]  # it is significantly better after Holm correction
    ahead_before_correction: list[Contrast]
    open: list[Contrast]  # the other run could be as good


def lead(run: Cell, contrasts: Sequence[Contrast]) -> Lead:
    better = [contrast for contrast in contrasts if contrast.better is run]
    return Lead(
        ahead=[c for c in better if c.verdict is Verdict.SIGNIFICANT],
        ahead_before_correction=[c for c in better if c.verdict is Verdict.BEFORE_CORRECTION],
        open=[c for c in contrasts if not c.significant_before_correction],
    )


def selection_bias(cells: Sequence[Cell]) -> float | None:
    """Upper bound on the selection bias of the best mean (the winner's curse), or None if a
    contender has one trial.

    The best mean is chosen on the test scores that it is shown with, so part of its lead is chance.
    The error of the chosen mean is on average no larger than the largest of all errors would be if
    they were independent and all runs equally good. Errors that rise and fall together, as those on
    the same test rows do, have a smaller largest one (Sudakov-Fernique; Vershynin 2018, theorem
    7.2.11). A cell far below the best is never chosen, so it is left out if its error is unknown.
    (The error of the baseline ``majority`` is unknown where all of its seeds agree.)
    """
    best = max(cells, key=lambda cell: cell.merit)
    errors = [_error(cell) for cell in cells]
    if (own := _error(best)) is None:
        return None
    if any(
        error is None and cell.merit > best.merit - FAR * own
        for cell, error in zip(cells, errors, strict=True)
    ):
        return None
    known = [error for error in errors if error is not None]
    return largest_error(known) if len(known) > 1 and any(known) else 0.0


def _error(cell: Cell) -> float | None:
    variance = cell.mean.variance
    return None if variance is None else variance.total**0.5


def largest_error(deviations: Sequence[float]) -> float:
    """Returns the expected maximum of independent normal errors with these standard deviations, of
    which at least one must be positive."""
    reach = REACH * max(deviations)
    x = np.linspace(-reach, reach, STEPS)
    below = np.ones_like(x)  # the probability that all errors are below x
    for deviation in deviations:
        below *= special.ndtr(x / deviation) if deviation else x > 0
    return float(((x > 0) - below).sum() * (x[1] - x[0]))
