"""The answer for a task: the best run and baseline, runs that tie with the best, cheaper runs.

Two choices tie if the interval of their difference includes 0 (``tie_of``); the cheaper one is then
the better choice. If two means are equal, the cheaper choice comes first (``preference``). A
difference that is significant only before correction is neither a tie nor a lead.

With limits of size and speed (``answer:`` of params.yaml) the answer is the best choice within
them. The limits are ignored if no choice is within them.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy import special

from stages.core.params import AnswerLimits
from stages.evaluation.moderation import Moderation
from stages.evaluation.records import CLASSICAL
from stages.evaluation.statistics import holm, holm_threshold
from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.costs import Costs, total_flops
from stages.findings.scores import Scores
from stages.findings.verdicts import Family, Tested, Threshold

STEPS = 4000  # points of the numerical integral; even, so that 0 lies between two points
REACH = 9.0  # end of the integral, as a multiple of the largest standard deviation
FAR = 6.0  # standard errors; a cell this far below the best is never chosen
DIGITS = 9  # decimals of a mean that are compared; later ones are rounding errors


def cost_of(cell: Cell) -> float:
    """Returns the FLOPs of a cell: of pretraining its lineage and of one trial. A classical
    baseline trains no network and costs 0. An unknown cost (public checkpoint, external
    system) is infinite."""
    if cell.method == CLASSICAL:
        return math.inf if cell.is_external else 0.0
    flops = total_flops(cell)
    return math.inf if flops is None else flops


def preference(cell: Cell) -> tuple[float, float]:
    """Returns a key that sorts choices: the better mean first and, of equal means, the cheaper."""
    return -round(cell.merit, DIGITS), cost_of(cell)


class Excess(NamedTuple):
    """A limit that a cell exceeds, with the value of the cell."""

    limit: str  # the name of the setting in ``answer:``
    allowed: float
    measured: float | None  # in the unit of the limit; None is unknown


Excesses = Mapping[Cell, Sequence[Excess]]


def excesses(scores: Scores, costs: Costs, limits: AnswerLimits) -> Excesses:
    """Returns the cells outside the limits, each with the limits that it exceeds."""
    stated = limits.model_dump(exclude_none=True)
    by_cell = {cell: [*_excesses(cell, costs, stated)] for cell in scores.cells}
    return {cell: of_cell for cell, of_cell in by_cell.items() if of_cell}


def _excesses(cell: Cell, costs: Costs, stated: Mapping[str, float]) -> Iterator[Excess]:
    if cell.method == CLASSICAL and not cell.is_external:
        return
    records = costs.of_trials([cell])
    sizes = [trial.weights_bytes / 1e6 for trial in cell.trials if trial.weights_bytes]
    latencies = [1000 * record.latency_s for record in records if record.latency_s]
    speeds = [record.texts_per_s for record in records if record.texts_per_s]
    measured = {
        "max_weights_mb": max(sizes, default=None),
        "max_latency_ms": fmean(latencies) if latencies else None,
        "min_texts_per_s": fmean(speeds) if speeds else None,
    }
    for limit, allowed in stated.items():
        value, sign = measured[limit], -1 if limit.startswith("min_") else 1
        if value is None or sign * value > sign * allowed:
            yield Excess(limit, allowed, value)


class Tie(Enum):
    """How a run or baseline compares with the best run."""

    BEST = "the best run"
    TIED = "not told apart"  # the interval of the difference includes 0
    UNSURE = "told apart before correction only"
    APART = "told apart"
    UNTESTED = "not tested"


def tie_of(tested: Tested) -> Tie:
    """Returns how surely a test tells its two sides apart."""
    if not tested.is_tested:
        return Tie.UNTESTED
    if not tested.significant_before_correction:
        return Tie.TIED
    return Tie.APART if tested.significant else Tie.UNSURE


class Standing(Enum):
    """How sure it is that the best run is better than every baseline."""

    LEADS = "ahead of the baselines"
    UNSURE = "model first, ahead before correction only"
    OPEN = "model first, a baseline may be as good"
    BASELINE = "baseline first"
    BASELINES_ONLY = "a baseline, since no model is within the limits"
    UNTESTED = "not tested against a baseline"


@dataclass(frozen=True, kw_only=True)
class BestRun(Tested):
    """The best run of a task and label budget, compared with the strongest classical baseline.

    ``effect`` is the difference to ``strongest``, the best baseline within the study's limits. If
    there is none, ``strongest`` is None and ``effect`` is the mean of the run. ``run`` is within
    the limits if any run is. If neither a run nor a baseline is, the limits are ignored.
    """

    run: Cell
    strongest: Cell | None
    p_holm: float = 1.0  # corrected for the number of tasks and label budgets
    baselines_only: bool = False  # only baselines are within the limits, and ``run`` is not
    left_out: Cell | None = None  # the best run or baseline of all, if it is outside the limits

    @property
    def run_is_ahead(self) -> bool:
        if self.strongest is None:
            return True
        return not self.baselines_only and preference(self.run) < preference(self.strongest)

    @property
    def run_is_limited(self) -> bool:
        """Whether ``run`` is within the limits and the best choice of all is not."""
        return self.left_out is not None and not self.baselines_only

    @property
    def best(self) -> Cell:
        """The run or the baseline, whichever comes first by ``preference``; the baseline if only
        baselines are within the limits."""
        return self.run if self.strongest is None or self.run_is_ahead else self.strongest

    @property
    def has_one_pretraining_seed(self) -> bool:
        return self.run.has_one_pretraining_seed

    @property
    def of_published(self) -> bool:
        return self.run.checkpoints == "published"

    @property
    def is_tested(self) -> bool:
        return self.strongest is not None and super().is_tested

    @property
    def standing(self) -> Standing:
        if self.baselines_only:
            return Standing.BASELINES_ONLY
        if not self.run_is_ahead:
            return Standing.BASELINE
        standings = {
            Tie.TIED: Standing.OPEN,
            Tie.UNSURE: Standing.UNSURE,
            Tie.APART: Standing.LEADS,
        }
        return standings.get(tie_of(self), Standing.UNTESTED)


BestRuns = Mapping[tuple[str, str], BestRun]  # by task and label budget


def best_runs(
    scores: Scores, moderation: Moderation, methods: Sequence[str], outside: Excesses
) -> BestRuns:
    """Returns the best run of each task and label budget, among the runs that use one of the
    ``methods`` and are within the limits; ``outside`` has the cells that are not. A task and label
    budget without trials of these methods is left out."""
    best_by_place: dict[tuple[str, str], BestRun] = {}
    for task, budget in product(scores.tasks, scores.label_budgets):
        cells = [cell for cell in scores.run_cells(task, budget) if cell.method in methods]
        if cells:
            baselines = scores.baseline_cells(task, budget)
            best_by_place[task, budget] = _best_run(cells, baselines, moderation, outside)
    known = {place: best for place, best in best_by_place.items() if best.strongest is not None}
    p_values = [best.effect.p_value for best in known.values()]
    corrected = holm([1.0 if p_value is None else p_value for p_value in p_values])
    alpha = 1 - moderation.confidence
    limit = holm_threshold(corrected, alpha=alpha)
    threshold = Threshold(Family.BASELINES, len(corrected), limit)
    for place, p_holm in zip(known, corrected, strict=True):
        best = best_by_place[place]
        best_by_place[place] = replace(best, p_holm=p_holm, threshold=threshold)
    return best_by_place


def _best_run(
    runs: Sequence[Cell], baselines: Sequence[Cell], moderation: Moderation, outside: Excesses
) -> BestRun:
    runs_within, baselines_within = (
        [cell for cell in cells if cell not in outside] for cells in (runs, baselines)
    )
    if not runs_within and not baselines_within:
        return with_baseline(min(runs, key=preference), baselines, moderation)
    run = min(runs_within or runs, key=preference)
    best_of_all = min([*runs, *baselines], key=preference)
    return replace(
        with_baseline(run, baselines_within, moderation),
        baselines_only=not runs_within,
        left_out=best_of_all if best_of_all in outside else None,
    )


def with_baseline(run: Cell, baselines: Sequence[Cell], moderation: Moderation) -> BestRun:
    """Returns the comparison of a run with the strongest of ``baselines``, which have the run's
    task and label budget. Of the baseline, only trials on the run's labels are compared."""
    if not baselines:
        return BestRun(run=run, strongest=None, effect=run.mean)
    strongest = min(baselines, key=preference)
    # A baseline is fitted for every pretraining seed of the study, and the run may have fewer
    # seeds. Where all seeds draw the same labels, the baseline is fitted only once.
    fitted_alike = strongest.sample.of_seeds(run.sample)
    if len(fitted_alike.keys) == 1:
        fitted_alike = fitted_alike.repeated()
    effect = moderation.difference(run.key, strongest.key, sample_b=fitted_alike)
    return BestRun(run=run, strongest=strongest, effect=effect)


class Rival(NamedTuple):
    """A run or baseline with its best method, compared with the best run."""

    cell: Cell
    tie: Tie
    tested: Tested | None = None  # the comparison, if there is one


def rivals(
    best: BestRun,
    scores: Scores,
    contrasts_of: Mapping[Cell, Sequence[Contrast]],
    outside: Container[Cell] = (),
) -> list[Rival]:
    """Returns every run and baseline with trials on the best run's task and label budget, each with
    its best method, sorted by ``preference``. Cells ``outside`` the limits are left out, unless the
    best run is outside, too."""
    place = best.run.task, best.run.label_budget
    is_limited = best.run not in outside
    best_by_name: dict[str, Cell] = {}
    for cell in [*scores.run_cells(*place), *scores.baseline_cells(*place)]:
        if is_limited and cell in outside:
            continue
        best_by_name[cell.group] = min(best_by_name.get(cell.group, cell), cell, key=preference)
    cells = sorted(best_by_name.values(), key=preference)
    return [_rival(best, cell, contrasts_of.get(cell, [])) for cell in cells]


def _rival(best: BestRun, cell: Cell, contrasts: Sequence[Contrast]) -> Rival:
    if cell.group == best.run.group:
        return Rival(cell, Tie.BEST)
    if cell is best.strongest:
        return Rival(cell, tie_of(best), best)
    for contrast in contrasts:
        if best.run in contrast.sides:
            return Rival(cell, tie_of(contrast), contrast)
    return Rival(cell, Tie.UNTESTED)


def next_best(
    best: Cell, scores: Scores, methods: Sequence[str], outside: Container[Cell] = ()
) -> Cell | None:
    """Returns the second choice: the best cell of another run (with one of the ``methods``) or of a
    baseline that is not ``outside`` the limits, or None if there is none."""
    others = [
        cell
        for cell in scores.cells
        if (cell.task, cell.label_budget) == (best.task, best.label_budget)
        and cell.group != best.group
        and cell not in outside
        and (cell.method in methods or cell.group in scores.baselines)
    ]
    return min(others, key=preference, default=None)


def smaller(
    best: Cell, scores: Scores, methods: Sequence[str], outside: Container[Cell] = ()
) -> Cell | None:
    """Returns the best cell of another run that uses fewer parameters than ``best``, with one of
    the ``methods`` and not ``outside`` the limits. Returns None if there is no such run or ``best``
    is a baseline. Another method of the best run does not count, even if it adds fewer parameters.
    """
    limit = best.amounts["num_params"]
    if best.group in scores.baselines or limit is None:
        return None
    candidates = []
    for cell in scores.run_cells(best.task, best.label_budget):
        size = cell.amounts["num_params"]
        is_other = cell.group != best.group and cell.method in methods
        if is_other and cell not in outside and size is not None and size < limit:
            candidates.append(cell)
    return min(candidates, key=preference, default=None)


def cheapest_run(
    best: Cell,
    contrasts: Sequence[Contrast],
    methods: Sequence[str],
    outside: Container[Cell] = (),
) -> Cell:
    """Returns the cheapest of the best run and the runs that tie with it. Those runs must use one
    of the ``methods`` and not be ``outside`` the limits. Returns the best run itself if none of
    them is known to cost less."""
    tied = [contrast.other(best) for contrast in contrasts if tie_of(contrast) is Tie.TIED]
    here = [
        cell
        for cell in tied
        if cell.label_budget == best.label_budget and cell.method in methods and cell not in outside
    ]
    return min([best, *here], key=lambda cell: (cost_of(cell), preference(cell)))


def lead(run: Cell, contrasts: Sequence[Contrast]) -> dict[Tie, list[Cell]]:
    """Groups the cells that the best run is contrasted with: it is ahead of them after correction
    (APART) or before it only (UNSURE), they are not told apart (TIED), or not tested (UNTESTED).
    Better cells that are told apart, even if before correction only, are left out."""
    others: dict[Tie, list[Cell]] = {tie: [] for tie in Tie}
    for contrast in contrasts:
        tie, other = tie_of(contrast), contrast.other(run)
        if tie in (Tie.TIED, Tie.UNTESTED) or run.merit >= other.merit:
            others[tie].append(other)
    return others


def selection_bias(cells: Sequence[Cell]) -> float | None:
    """Returns an upper bound on the selection bias of the best mean (the winner's curse), or None
    if the error of a contender is unknown, for example because it has one trial.

    The best cell is chosen by the same test scores that are reported for it, so part of its lead is
    chance. The bound is the expected maximum of the cells' errors in the worst case, in which all
    cells are equally good and their errors are independent. Errors that rise and fall together, as
    on the same test rows, have a smaller expected maximum (Sudakov-Fernique; Vershynin 2018,
    theorem 7.2.11). A cell far below the best would never be chosen, so its error may be unknown,
    like that of the baseline ``majority`` if all of its seeds agree.
    """
    best = max(cells, key=lambda cell: cell.merit)
    errors = {c: c.mean.variance.total**0.5 for c in cells if c.mean.variance is not None}
    if best not in errors:
        return None
    if any(c not in errors and c.merit > best.merit - FAR * errors[best] for c in cells):
        return None
    trial_errors = [*errors.values()]
    return largest_error(trial_errors) if len(trial_errors) > 1 and any(trial_errors) else 0.0


def largest_error(deviations: Sequence[float]) -> float:
    """Returns the expected maximum of independent normal errors with these standard
    deviations. At least one of them must be positive."""
    reach = REACH * max(deviations)
    x = np.linspace(-reach, reach, STEPS)
    below = np.ones_like(x)  # the probability that all errors are below x
    for deviation in deviations:
        below *= special.ndtr(x / deviation) if deviation else x > 0
    return float(((x > 0) - below).sum() * (x[1] - x[0]))
