"""The report's claims about planted studies, and how often they are right."""

import multiprocessing
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy import stats

from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.results import Results
from stages.findings.verdicts import Verdict
from tests.planted import GROUPS, Design, results_of

NO_INTERVAL = float("nan"), float("nan")
Side = tuple[str, str, str]  # group, method, label budget


@dataclass(frozen=True)
class Claim:
    """A claim of the report about one contrast of a study."""

    design: Design
    study: int
    axis: str
    sides: tuple[Side, Side]
    effect: float
    interval: tuple[float, float]
    over_finetune_seeds: tuple[float, float]  # of the first pretraining seed's trials alone
    before_correction: bool  # whether it is called significant
    after_correction: bool
    verdict: Verdict

    @property
    def is_null(self) -> bool:
        """Whether there is truly no difference."""
        (a, *one), (b, *other) = self.sides
        return one == other and GROUPS[a].truth == GROUPS[b].truth


def claims_of(design: Design, study: int) -> list[Claim]:
    """Runs a study and returns the claims of all its contrasts."""
    with TemporaryDirectory() as folder:
        results = results_of(design, study, Path(folder, "study"))
        return [*_claims(design, study, results)]


def claims_of_all(design: Design, studies: Iterable[int], processes: int) -> list[Claim]:
    """Returns the claims of several studies, in their order. Studies run in processes that do not
    check types: the checks would take longer than the studies."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(processes, context, initializer=_quiet) as pool:
        return [*chain.from_iterable(pool.map(partial(claims_of, design), studies))]


def _quiet() -> None:
    """Discards what stages print."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (as long as the process runs)


def _claims(design: Design, study: int, results: Results) -> Iterable[Claim]:
    for contrast in results.contrasts:
        low, high = contrast.effect.low, contrast.effect.high
        yield Claim(
            design,
            study,
            contrast.axis,
            (_side(contrast.a), _side(contrast.b)),
            contrast.effect.value,
            NO_INTERVAL if low is None or high is None else (low, high),
            _over_finetune_seeds(contrast),
            contrast.significant_before_correction,
            contrast.significant,
            contrast.verdict,
        )


def _side(cell: Cell) -> Side:
    return cell.group, cell.method, cell.label_budget


def _over_finetune_seeds(contrast: Contrast) -> tuple[float, float]:
    """Returns a paired t interval over the fine-tuning seeds of one checkpoint per side, which
    takes neither other checkpoints nor other test rows into account."""
    a, b = (next(iter(cell.values.values())) for cell in (contrast.a, contrast.b))
    if len(a) < 2:
        return NO_INTERVAL
    interval = stats.ttest_1samp([a[seed] - b[seed] for seed in a], 0).confidence_interval(0.95)
    return float(interval.low), float(interval.high)


def excludes_zero(interval: tuple[float, float]) -> bool:
    low, high = interval
    return low > 0 or high < 0


class Truth:
    """The true effects: 0 for null contrasts, else the mean over all other studies. Its expected
    value does not depend on the number of seeds, so all designs count."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._effects: dict[tuple[Side, Side], dict[tuple[Design, int], float]] = {}
        for claim in claims:
            of_pair = self._effects.setdefault(claim.sides, {})
            of_pair[claim.design, claim.study] = claim.effect

    def of(self, claim: Claim) -> float:
        return 0.0 if claim.is_null else float(np.mean(self._others(claim)))

    def standard_error(self, claim: Claim) -> float:
        return 0.0 if claim.is_null else float(stats.sem(self._others(claim)))

    def is_covered(self, claim: Claim, interval: tuple[float, float]) -> bool:
        """Whether an interval, widened by the true effect's standard error, covers that effect."""
        low, high = interval
        error = self.standard_error(claim)
        return low - error <= self.of(claim) <= high + error

    def has_wrong_sign(self, claim: Claim) -> bool:
        return bool(self.of(claim)) and claim.effect * self.of(claim) < 0

    def _others(self, claim: Claim) -> list[float]:
        of_pair = self._effects[claim.sides]
        return [v for key, v in of_pair.items() if key != (claim.design, claim.study)]


@dataclass(frozen=True)
class Rate:
    """The share of contrasts with an outcome. Contrasts of one study are correlated."""

    by_study: Mapping[int, Sequence[bool]]

    @classmethod
    def of(cls, claims: Collection[Claim], outcomes: Iterable[bool]) -> "Rate":
        by_study: dict[int, list[bool]] = {}
        for claim, outcome in zip(claims, outcomes, strict=True):
            by_study.setdefault(claim.study, []).append(outcome)
        return cls(by_study)

    @property
    def share(self) -> float:
        return float(np.mean([*chain.from_iterable(self.by_study.values())]))

    @property
    def of_studies(self) -> float:
        """The share of studies in which at least one contrast has the outcome."""
        return float(np.mean([any(study) for study in self.by_study.values()]))

    def is_at_most(self, nominal: float, *, doubt: float = 0.01) -> bool:
        """Whether chance explains the share, if the true share is ``nominal`` and all contrasts of
        a study have one outcome, in which case the share varies most."""
        studies = len(self.by_study)
        return bool(studies * self.share <= stats.binom.isf(doubt, studies, nominal))
