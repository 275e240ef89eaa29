"""Transferability: how well estimates from frozen states rank the models of a study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.stats import weightedtau

from stages.evaluation.transferability import ESTIMATES, EstimateRecord
from stages.findings.cells import Scores

FEWEST = 4  # models for a rank correlation


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """An estimate of each model on a task, and its rank correlation with the scores."""

    task: str
    estimate: str
    values: Mapping[str, float]  # model -> mean over its checkpoints
    tau: float | None  # weighted Kendall's tau (Vigna 2015); None for fewer than four models


def agreements(scores: Scores, records: Mapping[str, Sequence[EstimateRecord]]) -> list[Agreement]:
    """Returns the agreement of each estimate with the best scores of models at the largest label
    budget, by task. Estimates that are not defined for a task are left out."""
    listed = []
    for task in scores.tasks:
        best: dict[str, float] = {}
        for cell in scores.run_cells(task, scores.label_budgets[-1]):
            best[cell.group] = max(best.get(cell.group, cell.merit), cell.merit)
        for estimate in ESTIMATES:
            known: dict[str, list[float]] = {}
            for record in records[task]:
                if record.estimate == estimate and record.value is not None and record.run in best:
                    known.setdefault(record.run, []).append(record.value)
            values = {name: fmean(of_run) for name, of_run in known.items()}
            if values:
                merits = [best[name] for name in values]
                tau = _tau([*values.values()], merits) if len(values) >= FEWEST else None
                listed.append(Agreement(task=task, estimate=estimate, values=values, tau=tau))
    return listed


def _tau(values: Sequence[float], merits: Sequence[float]) -> float | None:
    tau = float(np.asarray(weightedtau(values, merits))[0])
    return tau if np.isfinite(tau) else None
