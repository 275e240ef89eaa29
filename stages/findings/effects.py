"""Main effects of a study's axes, and the lead of a model over a baseline, with error rates that
hold (docs/statistics.md, benchmarks/coverage.md).

Every claim is a weighted sum of trials: a mean of differences over matched cells, tasks and seeds.
Its variance has two parts. *Seeds*: a pretraining seed is a block, and a model's trials of one seed
are a cluster. *Test rows*: all models predict the same rows, so the sum is taken row by row. Both
contain the noise of one trial on one row, so that is subtracted once (Cameron, Gelbach and Miller
2011, eq. 2.4). Three seeds give a poor variance, so it is averaged with that of all models (limma:
Smyth 2004, eq. 3). Degrees of freedom are those of Bell and McCaffrey (2002), so unequal numbers of
seeds need no rule of their own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from stages.core.keys import CellKey
from stages.evaluation.statistics import holm
from stages.findings.axes import AXES, WITHIN
from stages.findings.cells import Cell
from stages.findings.contrasts import Compared, unit_of
from stages.findings.facts import AxisName, Difference, Estimate, Interaction, MainEffect, Verdict

OWN = ("pretrained here", "none")  # checkpoints whose seeds change all weights
PRIOR_DF = 3.0  # most degrees of freedom that the variance of other models counts for
EFFECTS_LEVEL, LEADS_LEVEL = 0.04, 0.02  # two-sided; the two families of the first screen

Kind = Literal["between models", "within models", "lead"]
Match = Sequence[tuple[float, Cell]]  # the cells that are compared, each with its sign
Matrix = Float[np.ndarray, "_ trials"]


@dataclass(frozen=True)
class Weights:
    """A weighted sum of trials, and residual sums whose squares estimate its variance."""

    of_trials: Float[np.ndarray, " trials"]
    blocks: Matrix  # by seed: all that a seed changes, whatever models share
    clusters: Matrix  # by model and seed: its own models, as if independent
    pool: Matrix  # by model and seed: all models, on the same tasks
    kind: Kind


@dataclass(frozen=True)
class Measured:
    """A sum of trials with its standard error and degrees of freedom (0 if nothing is known)."""

    value: float
    error: float
    df: float

    @property
    def p(self) -> float | None:
        """The two-sided p-value of the hypothesis that the value is 0."""
        if self.error * self.df <= 0:
            return None
        return 2 * float(special.stdtr(self.df, -abs(self.value) / self.error))

    def estimate(self, confidence: float) -> Estimate:
        if self.error * self.df <= 0:
            return Estimate(self.value)
        half = -float(special.stdtrit(self.df, (1 - confidence) / 2)) * self.error
        return Estimate(self.value, self.value - half, self.value + half)


class Trials:
    """All trials of a study in one table. Trials of a cell that share a pretraining seed are one
    line, the mean over their fine-tuning seeds."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        units = [unit for cell in cells for unit in cell.sample.units]
        numbers = [cell.sample.num_units for cell in cells]
        ends = np.cumsum([0, *numbers])
        self._lines: dict[CellKey, np.ndarray] = {
            cell.key: np.arange(*ends[i : i + 2]) for i, cell in enumerate(cells)
        }
        self._of_cell = np.repeat(np.arange(len(cells)), numbers)
        self.seed = _codes(units)
        self.scores = np.concatenate([cell.sample.unit_values for cell in cells])
        self._residuals: dict[tuple[bool, bytes], np.ndarray] = {}

    def codes(self, *fields: str) -> Int[np.ndarray, " trials"]:
        """Returns a number for each trial, the same for trials that agree in ``fields`` (of Cell,
        or "seed")."""
        of_cell = [tuple(getattr(c, f) for f in fields if f != "seed") for c in self.cells]
        codes = _codes(of_cell)[self._of_cell]
        return codes * len(self.seed) + self.seed if "seed" in fields else codes

    @cached_property
    def rows(self) -> Mapping[str, Float[np.ndarray, "trials_of_task n"]]:
        """The scores of test rows (or of draws of the splits), by task, in the order of trials."""
        parts: dict[str, list[np.ndarray]] = {}
        for cell in self.cells:
            parts.setdefault(cell.task, []).append(cell.sample.unit_rows)
        return {task: np.concatenate(of_task) for task, of_task in parts.items()}

    @cached_property
    def overlaps(self) -> Mapping[str, float | None]:
        return {cell.task: cell.sample.overlap for cell in self.cells}

    def where(self, holds: Callable[[Cell], bool]) -> Bool[np.ndarray, " trials"]:
        return np.array([holds(cell) for cell in self.cells], dtype=bool)[self._of_cell]

    # Weights

    def weights(self, matches: Sequence[Match], kind: Kind) -> Weights:
        """Returns the mean over ``matches``.

        Cells of a match are compared on the seeds that they share (if there are two, or one for
        all): a seed draws the same labels for all models. Within models the checkpoint cancels, so
        that the clusters are draws of labels.
        """
        num_trials = len(self.scores)
        weights, blocks = np.zeros(num_trials), np.zeros((self.seed.max() + 1, num_trials))
        for match in matches:
            lines = [(sign, self._lines[cell.key]) for sign, cell in match]
            shared = set.intersection(*({*self.seed[at].tolist()} for _, at in lines))
            is_paired = len(shared) > 1 or all(len(at) == 1 for _, at in lines)
            for sign, at in lines:
                kept = at[np.isin(self.seed[at], [*shared])] if is_paired and shared else at
                share = sign / len(kept) / len(matches)
                weights[kept] += share
                for trial in kept:
                    blocks[self.seed[trial], kept] -= share / len(kept)
                    blocks[self.seed[trial], trial] += share
        names = {cell.group for match in matches for _, cell in match}
        tasks = {cell.task for match in matches for _, cell in match}
        member = self.where(
            lambda c: (
                c.task in tasks
                and (c.group in names or (not c.is_baseline and c.checkpoints in OWN))
            )
        )
        residual = self._residual(member, draws_cancel=self._draws_cancel(weights))
        fields = ("task", "seed") if kind == "within models" else ("group", "seed")
        clusters = self.codes(*fields)
        gather = (clusters == np.unique(clusters[member])[:, None]).astype(float)
        own = gather * weights @ residual
        column = self.codes("task", "method", "label_budget")
        usual = np.bincount(column, abs(weights)) / np.bincount(column, weights != 0).clip(1)
        pool = own if kind == "within models" else gather * usual[column] @ residual
        return Weights(weights, blocks, own, pool, kind)

    @cached_property
    def _draws(self) -> Int[np.ndarray, " trials"]:
        return _codes(self.codes("task", "label_budget", "seed").tolist())

    def _draws_cancel(self, weights: Float[np.ndarray, " trials"]) -> bool:
        return bool(np.allclose(np.bincount(self._draws, weights), 0))

    def _residual(self, member: Bool[np.ndarray, " trials"], *, draws_cancel: bool) -> np.ndarray:
        """Returns the matrix that subtracts the means of cells and, if the draws of labels cancel,
        of draws (by least squares), among members."""
        key = draws_cancel, member.tobytes()
        if key not in self._residuals:
            factors = [self._of_cell, *([self._draws] if draws_cancel else [])]
            dummies = np.hstack([(f[:, None] == np.unique(f[member])) for f in factors])
            dummies = dummies * member[:, None]
            fit = dummies @ np.linalg.pinv(dummies)
            self._residuals[key] = np.diag(member.astype(float)) - fit
        return self._residuals[key]

    # Variances

    def measured(self, weights: Weights) -> Measured:
        """Returns the value of a sum with its moderated variance."""
        w = weights.of_trials
        rows = interaction = squares = 0.0
        has_draws = False
        scale = float(w @ w) / max(float(np.square(weights.blocks).sum()), 1e-12)
        of_task = {task: self.where(lambda c, t=task: c.task == t) for task in self.rows}
        for task, at in of_task.items():
            if not w[at].any():
                continue
            scores, overlap = self.rows[task], self.overlaps[task]
            number = scores.shape[1]
            has_draws = has_draws or overlap is not None
            more = 1 + number * (overlap or 0.0)  # draws of the splits share rows
            of_rows = more * _variance_of_mean(w[at] @ scores)
            interaction += scale * _variance_of_mean(weights.blocks[:, at] @ scores)
            rows, squares = rows + of_rows, squares + of_rows**2 / max(number - 1, 1)
        row_df = rows**2 / squares if squares else 1.0
        seeds, df = self._between_seeds(weights)
        seeds, rows = max(seeds, interaction), max(rows - interaction, 0.0)
        if not df and has_draws:
            seeds, df = 0.0, 1.0
        total = seeds + rows
        known = total > 0 and df > 0
        total_df = total**2 / (seeds**2 / df + rows**2 / row_df) if known else 0.0
        return Measured(float(w @ self.scores), total**0.5, total_df)

    def _between_seeds(self, weights: Weights) -> tuple[float, float]:
        """Returns the variance between seeds and its degrees of freedom. The sum's own models are
        averaged with all models; for an effect that is the prior of the blocks, which alone see
        what models of one seed share."""
        own, own_df = self._quadratic(weights.clusters, weights)
        pool, pool_df = self._quadratic(weights.pool, weights)
        blocks, blocks_df = self._quadratic(weights.blocks, weights)
        df = min(own_df + PRIOR_DF, pool_df)
        variance = (own_df * own + PRIOR_DF * pool) / (own_df + PRIOR_DF) if df else 0.0
        if weights.kind != "lead" or not df:
            prior_df = min(PRIOR_DF, df)
            df = blocks_df + prior_df
            variance = (blocks_df * blocks + prior_df * variance) / df if df else 0.0
        return variance, df

    def _quadratic(self, parts: Matrix, weights: Weights) -> tuple[float, float]:
        """Returns the variance of a sum by residual sums, unbiased for equal variances, and its
        degrees of freedom."""
        gram = parts @ parts.T
        trace = float(np.trace(gram))
        if trace < 1e-12:
            return 0.0, 0.0
        scale = float(weights.of_trials @ weights.of_trials) / trace
        squares = float(np.square(parts @ self.scores).sum())
        return scale * squares, trace**2 / float(np.square(gram).sum())


def _codes(values: Sequence[object]) -> Int[np.ndarray, " n"]:
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=int)


def _variance_of_mean(values: Float[np.ndarray, "*claims n"]) -> float:
    """Returns the variance of the mean over test rows, summed over claims."""
    number = values.shape[-1]
    if number < 2:
        return 0.0
    centred = values - values.mean(axis=-1, keepdims=True)
    return float(np.square(centred).sum()) / (number - 1) / number


# Effects -------------------------------------------------------------------------------------


def main_effects(
    trials: Trials, found: Sequence[Compared], *, confidence: float
) -> list[MainEffect]:
    """Returns a main effect for each pair of levels of each axis, in the order of the axes. Tasks
    whose scores differ in unit have effects of their own."""
    members: dict[tuple[object, ...], list[Compared]] = {}
    for compared in found:
        key = compared.axis, compared.level_a, compared.level_b, unit_of(compared.metric)
        members.setdefault(key, []).append(compared)
    in_order = sorted(members.values(), key=lambda some: AXES.index(some[0].axis))
    effects = [_main_effect(trials, some, confidence=confidence) for some in in_order]
    tested = [e for e in effects if e.p is not None and e.verdict is not Verdict.ONE_SEED]
    corrected = holm([e.p or 0.0 for e in tested])
    p_holm = {id(e): p for e, p in zip(tested, corrected, strict=True)}
    return [
        replace(
            e, p_holm=p_holm[id(e)], verdict=verdict_at(e.estimate, p_holm[id(e)], EFFECTS_LEVEL)
        )
        if id(e) in p_holm
        else e
        for e in effects
    ]


def _main_effect(trials: Trials, some: Sequence[Compared], *, confidence: float) -> MainEffect:
    first = some[0]
    measured = _mean(trials, [(c,) for c in some], first.axis)
    cells = [cell for c in some for cell in (c.a, c.b)]
    one_seed = any(cell.has_one_pretraining_seed for cell in cells)
    also: dict[str, Difference] = {}
    for difference in chain.from_iterable(c.also_differs for c in some):
        also.setdefault(difference.name, difference)
    return MainEffect(
        axis=first.axis,
        level_a=first.level_a,
        level_b=first.level_b,
        estimate=measured.estimate(confidence),
        metric=first.metric,
        tasks=tuple(dict.fromkeys(c.task for c in some)),
        pairs=tuple(dict.fromkeys((c.a.group, c.b.group) for c in some)),
        num_pairs=len(some),
        num_seeds=min(cell.sample.num_units for cell in cells),
        df=measured.df,
        p=measured.p,
        p_holm=None,
        verdict=Verdict.ONE_SEED if one_seed else Verdict.NOT_TESTED,
        of_published=any(cell.checkpoints == "published" for cell in cells),
        also_differs=tuple(also.values()),
    )


def _mean(trials: Trials, groups: Sequence[Sequence[Compared]], *axes: AxisName) -> Measured:
    """Returns the mean over groups of the last comparison of a group less its first, if it has
    two."""
    kind: Kind = "within models" if all(axis in WITHIN for axis in axes) else "between models"
    matches = [
        [
            (sign * of_side, cell)
            for sign, c in zip((1.0, -1.0), reversed(group), strict=False)
            for of_side, cell in ((1.0, c.b), (-1.0, c.a))
        ]
        for group in groups
    ]
    return trials.measured(trials.weights(matches, kind))


def verdict_at(estimate: Estimate, p_holm: float, level: float) -> Verdict:
    """Returns the verdict on a tested difference whose family has this error rate."""
    if p_holm < level:
        return Verdict.SIGNIFICANT
    return Verdict.UNSURE if estimate.excludes_zero else Verdict.NOT_SIGNIFICANT


def interactions(
    trials: Trials, found: Sequence[Compared], *, confidence: float
) -> list[Interaction]:
    """Returns the interaction of each two pairs of levels of two axes that the study crosses: four
    cells, of which each two neighbours differ in one of the axes."""
    by_first: dict[CellKey, list[Compared]] = {}
    for compared in found:
        by_first.setdefault(compared.a.key, []).append(compared)
    members: dict[tuple[object, ...], list[tuple[Compared, Compared]]] = {}
    for at_a, at_b, across in _squares(found, by_first):
        key = (at_a.axis, at_a.level_a, at_a.level_b, across.axis, across.level_a, across.level_b)
        members.setdefault((*key, unit_of(at_a.metric)), []).append((at_a, at_b))
    made = []
    for (_, _, _, axis, low, high, _), some in members.items():
        first = some[0][0]
        names: tuple[AxisName, ...] = (first.axis, axis)  # type: ignore[assignment]
        measured = _mean(trials, some, *names)
        sides = [_mean(trials, [(pair[i],) for pair in some], first.axis) for i in (0, 1)]
        at = [side.estimate(confidence) for side in sides]
        cells = [cell for pair in some for c in pair for cell in (c.a, c.b)]
        one_seed = any(cell.has_one_pretraining_seed for cell in cells)
        made.append(
            Interaction(
                axis=first.axis,
                level_a=first.level_a,
                level_b=first.level_b,
                second_axis=axis,  # type: ignore[arg-type]
                second_level_a=str(low),
                second_level_b=str(high),
                at_a=at[0],
                at_b=at[1],
                estimate=measured.estimate(confidence),
                num_pairs=len(some),
                p=measured.p,
                verdict=Verdict.ONE_SEED if one_seed else Verdict.NOT_TESTED,
            )
        )
    tested = [i for i in made if i.p is not None and i.verdict is not Verdict.ONE_SEED]
    corrected = dict(zip(map(id, tested), holm([i.p or 0.0 for i in tested]), strict=True))
    return [
        replace(i, verdict=verdict_at(i.estimate, corrected[id(i)], 1 - confidence))
        if id(i) in corrected
        else i
        for i in made
    ]


def _squares(
    found: Sequence[Compared], by_first: Mapping[CellKey, Sequence[Compared]]
) -> Iterator[tuple[Compared, Compared, Compared]]:
    """Yields the effect of an axis at both levels of a later axis, and a comparison on that."""
    for at_a in found:
        for across in by_first.get(at_a.a.key, ()):
            if AXES.index(across.axis) <= AXES.index(at_a.axis):
                continue
            for at_b in by_first.get(across.b.key, ()):
                closes = any(
                    c.b.key == at_b.b.key and _levels(c) == _levels(across)
                    for c in by_first.get(at_a.b.key, ())
                )
                if closes and _levels(at_b) == _levels(at_a):
                    yield at_a, at_b, across


def _levels(compared: Compared) -> tuple[AxisName, str, str]:
    return compared.axis, compared.level_a, compared.level_b


def lead(trials: Trials, model: Cell, baseline: Cell) -> Measured:
    """Returns the difference of a model less a baseline on their task."""
    return trials.measured(trials.weights([[(1.0, model), (-1.0, baseline)]], "lead"))
