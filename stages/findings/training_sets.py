"""Training sets: their likeness to the tasks' texts, and the gain of pretraining on each of them
over training from scratch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from scipy.stats import rankdata, spearmanr

from stages.core.artifacts import Json
from stages.core.keys import RunKey
from stages.evaluation.metrics import merit
from stages.evaluation.records import TextBitsRecord
from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.groups import Group

FEWEST = 4  # corpora for a rank correlation
MOST_PERMUTED = 7  # up to this many corpora, the p-value comes from all permutations
# The measures of likeness and amount. Each measure times its sign grows with likeness or amount.
MEASURES = {
    "divergence": -1,
    "unseen_words": -1,
    "bits_per_byte": -1,
    "own_bits_per_byte": -1,
    "tokens": 1,
}


@dataclass(frozen=True, eq=False)
class TrainingSets:
    """The training sets that the runs of a study were pretrained on."""

    likeness: Mapping[tuple[str, str], Json]  # by corpus and tokenizer
    text_bits: Mapping[tuple[RunKey, str], TextBitsRecord]  # by checkpoint and task

    def about(self, group: Group) -> Json:
        """Returns the measurements of a group's training set."""
        return self.likeness[group.entry.corpus, group.entry.tokenizer]

    def own_bits(self, group: Group, task: str) -> float | None:
        """Returns the bits per byte of a task's texts under a group's own objective: the mean over
        its seeds, or None if it is unknown for a seed."""
        bits = [self.text_bits.get((checkpoint, task)) for checkpoint in group.checkpoints]
        known = [record.bits_per_byte for record in bits if record]
        return sum(known) / len(known) if len(known) == len(bits) else None

    def measured(self, group: Group, task: str) -> Json:
        """Returns the values of ``MEASURES`` and of other measurements, by name."""
        about, own = self.about(group), self.own_bits(group, task)
        return {"tokens": about["tokens"], **about["tasks"][task], "own_bits_per_byte": own}

    def correlation(
        self, gains: Sequence[tuple[Group, Contrast]], task: str, measure: str
    ) -> tuple[float, float] | None:
        """Returns the rank correlation, over groups, of a measure with the gain, and its p-value;
        None if the measure is unknown or all values of one side are equal."""
        measured = [self.measured(group, task)[measure] for group, _ in gains]
        if None in measured:
            return None
        alike = [MEASURES[measure] * value for value in measured]
        merits = [
            merit(gain.metric, gain.a.mean.value) - merit(gain.metric, gain.b.mean.value)
            for _, gain in gains
        ]
        return spearman(alike, merits)


def gain_of(cell: Cell | None, contrasts_of: Mapping[Cell, Sequence[Contrast]]) -> Contrast | None:
    """Returns the contrast of a pretrained cell with its model from scratch, or None."""
    own = contrasts_of.get(cell, []) if cell else []
    return next((c for c in own if c.axis == "pretrained" and c.a is cell), None)


def families(groups: Sequence[Group]) -> list[list[Group]]:
    """Returns lists of groups; the groups of one list differ in nothing but their training sets."""
    groups_by_rest: dict[str, list[Group]] = {}
    for group in groups:
        rest = repr((group.entry.model, group.entry.objective, group.settings))
        groups_by_rest.setdefault(rest, []).append(group)
    return list(groups_by_rest.values())


def spearman(one: Sequence[float], other: Sequence[float]) -> tuple[float, float] | None:
    """Returns the rank correlation and its two-sided p-value, or None if one side is constant.

    The p-value is the share of all orders whose correlation is at least as far from 0. For more
    than ``MOST_PERMUTED`` numbers it is taken from the t distribution.
    """
    if len({*one}) == 1 or len({*other}) == 1:
        return None
    rho, p_value = np.asarray(spearmanr(one, other)).tolist()
    if len(one) <= MOST_PERMUTED:
        middle = (len(one) + 1) / 2
        orders = np.array([*permutations(rankdata(other) - middle)])  # the first is the given one
        products = abs(orders @ (rankdata(one) - middle))
        p_value = float(np.mean(products >= products[0] - 1e-9))
    return rho, p_value
