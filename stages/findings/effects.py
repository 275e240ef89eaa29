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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy import special

from stages.core.keys import CellKey
from stages.evaluation.statistics import Estimate, holm
from stages.findings.axes import AXES, WITHIN
from stages.findings.cells import Cell
from stages.findings.facts import (
    AxisName,
    Claim,
    Contrast,
    Difference,
    Interaction,
    MainEffect,
    Verdict,
)

if TYPE_CHECKING:
    from stages.findings.results import Results

OWN = ("pretrained here", "none")  # checkpoints whose seeds change all weights
PRIOR_DF = 3.0  # most degrees of freedom that the variance of other models counts for
EFFECTS_LEVEL, LEADS_LEVEL = 0.04, 0.02  # two-sided; the two families of the first screen

T = TypeVar("T", bound=Claim)
Task = Literal["between models", "within models", "lead"]
Match = Sequence[tuple[float, Cell]]  # the cells that are compared, each with its sign
Matrix = Float[np.ndarray, "_ trials"]  # weighted sums of trials
Component = tuple[float, float]  # a variance and its degrees of freedom


class Trials:
    """All trials of a study in one table. Trials of a cell that share a pretraining seed are one
    line, the mean over their fine-tuning seeds."""

    def __init__(self, cells: Sequence[Cell], *, confidence: float) -> None:
        self._confidence, samples = confidence, [cell.sample for cell in cells]
        self._of_cell = np.repeat(np.arange(len(cells)), [s.num_units for s in samples])
        fields = ("task", "model", "method", "label_budget")
        table = pd.DataFrame({name: [getattr(cell, name) for cell in cells] for name in fields})
        table["is_own"] = [c.sample.checkpoints in OWN and not c.is_baseline for c in cells]
        self.table = table.iloc[self._of_cell].reset_index(drop=True)
        codes: dict[object, int] = {}
        units = [unit for sample in samples for unit in sample.units]
        self.seed = np.array([codes.setdefault(unit, len(codes)) for unit in units])
        self.table["seed"] = self.seed
        self.scores = np.concatenate([sample.unit_values for sample in samples])
        self._lines = {c.key: np.flatnonzero(self._of_cell == i) for i, c in enumerate(cells)}
        tasks = dict.fromkeys(cell.task for cell in cells)
        # The scores of test rows (or of draws of the splits), by task, in the order of trials.
        self.rows: Mapping[str, Float[np.ndarray, "trials_of_task n"]] = {
            task: np.concatenate([c.sample.unit_rows for c in cells if c.task == task])
            for task in tasks
        }
        self.overlaps = {cell.task: cell.sample.overlap for cell in cells}
        self._residuals: dict[tuple[bool, bytes], np.ndarray] = {}

    def _codes(self, *columns: str) -> Int[np.ndarray, " trials"]:
        """Returns a number for each trial, the same for trials that agree in ``columns``."""
        return self.table.groupby(list(columns), sort=False).ngroup().to_numpy()

    @cached_property
    def _draws(self) -> Int[np.ndarray, " trials"]:
        return self._codes("task", "label_budget", "seed")

    def measured(self, matches: Sequence[Match], kind: Task) -> Claim:
        """Returns the mean over ``matches`` with its moderated variance, not yet with a verdict.

        Within models the checkpoint cancels, so that the clusters are draws of labels.
        """
        weights, blocks = self._weights(matches)
        table, compared = self.table, [cell for match in matches for _, cell in match]
        is_compared = table["model"].isin({cell.model for cell in compared})
        member = table["task"].isin({cell.task for cell in compared})
        member = (member & (is_compared | table["is_own"])).to_numpy()
        cancel = bool(np.allclose(np.bincount(self._draws, weights), 0))
        residual = self._residual(member, draws_cancel=cancel)
        clusters = self._codes("task" if kind == "within models" else "model")
        clusters = clusters * len(self.seed) + self.seed
        gather = (clusters == np.unique(clusters[member])[:, None]).astype(float)
        own = gather * weights @ residual  # its own models, as if independent
        column = self._codes("task", "method", "label_budget")
        usual = np.bincount(column, abs(weights)) / np.bincount(column, weights != 0).clip(1)
        pool = own if kind == "within models" else gather * usual[column] @ residual  # all models
        square = float(weights @ weights)
        parts = [self._quadratic(part, square) for part in (own, pool, blocks)]
        seeds, df = _moderated(*parts, kind=kind)
        rows, row_df, interaction = self._between_rows(weights, blocks)
        seeds, rows = max(seeds, interaction), max(rows - interaction, 0.0)
        if not df and any(self.overlaps[cell.task] is not None for cell in compared):
            seeds, df = 0.0, 1.0
        total = seeds + rows
        is_known, value = total > 0 and df > 0, float(weights @ self.scores)
        df = total**2 / (seeds**2 / df + rows**2 / row_df) if is_known else 0.0
        half = -float(special.stdtrit(df, (1 - self._confidence) / 2)) * total**0.5
        one_seed = any(cell.sample.is_fixed for cell in compared)
        return Claim(
            estimate=Estimate(value, value - half, value + half) if df else Estimate(value),
            df=df,
            p=2 * float(special.stdtr(df, -abs(value) / total**0.5)) if df else None,
            verdict=Verdict.ONE_SEED if one_seed else Verdict.NOT_TESTED,
        )

    def _weights(self, matches: Sequence[Match]) -> tuple[Float[np.ndarray, " trials"], Matrix]:
        """Returns the weight of each trial in the mean over matches, and the same weights of the
        trials' deviations from the means of their cells, [seeds, trials]: what each seed adds.

        Cells of a match are compared on the seeds that they share (if there are two, or one for
        all): a seed draws the same labels for all models.
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
        return weights, blocks

    def _residual(self, member: Bool[np.ndarray, " trials"], *, draws_cancel: bool) -> np.ndarray:
        """Returns the matrix that subtracts from each member the mean of its cell and, if
        ``draws_cancel``, that of its draw of labels (by least squares)."""
        key = draws_cancel, member.tobytes()
        if key not in self._residuals:
            factors = [self._of_cell, *([self._draws] if draws_cancel else [])]
            dummies = np.hstack([(f[:, None] == np.unique(f[member])) for f in factors])
            dummies = dummies * member[:, None]
            fit = dummies @ np.linalg.pinv(dummies)
            self._residuals[key] = np.diag(member.astype(float)) - fit
        return self._residuals[key]

    def _between_rows(
        self, weights: Float[np.ndarray, " trials"], blocks: Matrix
    ) -> tuple[float, float, float]:
        """Returns the variance between test rows, its degrees of freedom, and the part that the
        variance between seeds also contains."""
        rows = interaction = squares = 0.0
        scale = float(weights @ weights) / max(float(np.square(blocks).sum()), 1e-12)
        for task, scores in self.rows.items():
            at, number = (self.table["task"] == task).to_numpy(), scores.shape[1]
            if weights[at].any():
                more = 1 + number * (self.overlaps[task] or 0.0)  # draws of the splits share rows
                of_rows = more * _variance_of_mean(weights[at] @ scores)
                interaction += scale * _variance_of_mean(blocks[:, at] @ scores)
                rows, squares = rows + of_rows, squares + of_rows**2 / max(number - 1, 1)
        return rows, rows**2 / squares if squares else 1.0, interaction

    def _quadratic(self, parts: Matrix, square: float) -> Component:
        """Returns the variance of a sum, estimated from the sums ``parts`` of residuals (unbiased
        if all trials vary equally), and its degrees of freedom. ``square`` is the sum of the
        squared weights."""
        gram = parts @ parts.T
        trace = float(np.trace(gram))
        if trace < 1e-12:
            return 0.0, 0.0
        squares = float(np.square(parts @ self.scores).sum())
        return square / trace * squares, trace**2 / float(np.square(gram).sum())


def _moderated(own: Component, pool: Component, blocks: Component, *, kind: Task) -> Component:
    """Returns the variance between seeds and its degrees of freedom. The variance of the sum's own
    models is averaged with that of all models. For an effect, this is the prior of the variance
    between blocks, which includes what the models of a seed share."""
    df = min(own[1] + PRIOR_DF, pool[1])
    variance = (own[1] * own[0] + PRIOR_DF * pool[0]) / (own[1] + PRIOR_DF) if df else 0.0
    if kind != "lead" or not df:
        prior_df = min(PRIOR_DF, df)
        df = blocks[1] + prior_df
        variance = (blocks[1] * blocks[0] + prior_df * variance) / df if df else 0.0
    return variance, df


def _variance_of_mean(values: Float[np.ndarray, "*claims n"]) -> float:
    """Returns the variance of the mean over test rows, summed over claims."""
    number = values.shape[-1]
    if number < 2:
        return 0.0
    centred = values - values.mean(axis=-1, keepdims=True)
    return float(np.square(centred).sum()) / (number - 1) / number


# Effects -------------------------------------------------------------------------------------


def main_effects(results: "Results") -> list[MainEffect]:
    """Returns a main effect for each pair of levels of each axis, in the order of the axes. Tasks
    whose scores differ in unit have effects of their own."""
    members: dict[tuple[object, ...], list[Contrast]] = {}
    for contrast in sorted(results.compared, key=lambda c: AXES.index(c.axis)):
        members.setdefault(contrast.family, []).append(contrast)
    effects = []
    for some in members.values():
        also: dict[str, Difference] = {}
        for difference in chain.from_iterable(c.also_differs for c in some):
            also.setdefault(difference.name, difference)
        effects.append(
            MainEffect(
                **_mean(results, [(c,) for c in some], some[0].axis),
                **_levels(some[0]),
                tasks=tuple(dict.fromkeys(c.a.task for c in some)),
                pairs=tuple(dict.fromkeys((c.a.model, c.b.model) for c in some)),
                num_pairs=len(some),
                num_seeds=min(cell.sample.num_units for c in some for cell in (c.a, c.b)),
                also_differs=tuple(also.values()),
            )
        )
    return judged(effects, EFFECTS_LEVEL)


def _levels(c: Contrast) -> dict[str, Any]:
    return {"axis": c.axis, "level_a": c.level_a, "level_b": c.level_b, "metric": c.metric}


def judged(family: Sequence[T], level: float) -> list[T]:
    """Returns the facts of a family with their verdicts: p-values are corrected (Holm) and compared
    with ``level``."""
    corrected = holm([None if fact.verdict is Verdict.ONE_SEED else fact.p for fact in family])
    facts = []
    for fact, p in zip(family, corrected, strict=True):
        sure = Verdict.UNSURE if fact.estimate.excludes_zero else Verdict.NOT_SIGNIFICANT
        verdict = Verdict.SIGNIFICANT if p is not None and p < level else sure
        facts.append(fact if p is None else replace(fact, p_holm=p, verdict=verdict))
    return facts


def _mean(
    results: "Results", groups: Sequence[Sequence[Contrast]], *axes: AxisName
) -> dict[str, Any]:
    """Returns the fields of a claim about the mean over groups. A group counts as its contrast or,
    if it has two, as the last less the first."""
    kind: Task = "within models" if all(axis in WITHIN for axis in axes) else "between models"
    matches = [
        [
            (sign * of_side, cell)
            for sign, c in zip((1.0, -1.0), reversed(group), strict=False)
            for of_side, cell in ((1.0, c.b), (-1.0, c.a))
        ]
        for group in groups
    ]
    return vars(results.lines.measured(matches, kind))


def interactions(results: "Results") -> list[Interaction]:
    """Returns the interaction of each two pairs of levels of two axes that the study crosses."""
    members: dict[tuple[object, ...], list[tuple[Contrast, Contrast, Contrast]]] = {}
    for at_a, at_b, across in _squares(results.compared):
        square = at_a, at_b, across
        members.setdefault((*at_a.family, *across.family), []).append(square)
    made = []
    for some in members.values():
        first, _, across = some[0]
        effects = [
            _mean(results, [(square[i],) for square in some], first.axis)["estimate"]
            for i in (0, 1)
        ]
        pairs = [(at_a, at_b) for at_a, at_b, _ in some]
        made.append(
            Interaction(
                **_mean(results, pairs, first.axis, across.axis),
                **_levels(first),
                second_axis=across.axis,
                second_level_a=across.level_a,
                second_level_b=across.level_b,
                at_a=effects[0],
                at_b=effects[1],
                num_pairs=len(some),
            )
        )
    return judged(made, 1 - results.confidence)


def _squares(every: Sequence[Contrast]) -> Iterator[tuple[Contrast, Contrast, Contrast]]:
    """Yields (contrast of an axis at level a of a later axis, the same at level b, the contrast of
    the later axis that leads from one to the other)."""
    by_first: dict[CellKey, list[Contrast]] = {}
    for contrast in every:
        by_first.setdefault(contrast.a.key, []).append(contrast)
    for at_a in every:
        for across in by_first[at_a.a.key]:
            if AXES.index(across.axis) <= AXES.index(at_a.axis):
                continue
            opposite = [c.b for c in by_first.get(at_a.b.key, ()) if c.family == across.family]
            for at_b in by_first.get(across.b.key, ()):
                if at_b.family == at_a.family and at_b.b in opposite:
                    yield at_a, at_b, across


def lead(trials: Trials, model: Cell, baseline: Cell) -> Claim:
    """Returns the difference of a model less a baseline on their task."""
    return trials.measured([[(1.0, model), (-1.0, baseline)]], "lead")
