"""The tables of transferability estimates: of each run and task, and what they took."""

from collections.abc import Iterable
from dataclasses import dataclass

from stages.core import paths
from stages.evaluation.records import read

ESTIMATES = ("h_score", "h_score_above_chance", "logme", "knn")
LAYERS = ("last", "mean", "best")


@dataclass(frozen=True, kw_only=True)
class EstimateRecord:
    """An estimate of how well a run would do on a task, from its frozen states. More is better.

    ``layers`` are the states: those of the ``last`` layer, the ``mean`` of all layers, or those of
    the ``best`` layer, which is the one with the highest estimate. Embeddings are no layer.
    """

    run: str
    estimate: str  # one of ESTIMATES
    layers: str  # one of LAYERS
    value: float | None  # None if the estimate is not defined for the task
    layer: int | None  # the best one, counted from 1; None of the others
    num_rows: int  # of train
    num_states: int
    flops: int  # of computing the states, which all estimates share
    reason: str  # why there is no value


@dataclass(frozen=True, kw_only=True)
class EstimateCostRecord:
    """What the estimates of a run took on the machine that computed them."""

    run: str
    wall_time_s: float


@dataclass(frozen=True)
class Estimates:
    """Those of a study."""

    records: dict[str, list[EstimateRecord]]  # of each task
    costs: list[EstimateCostRecord]  # of every run and task

    @staticmethod
    def of(tasks: Iterable[str]) -> "Estimates":
        """Raises ValueError with the path of a file that is missing."""
        tasks = [*tasks]
        costs = [paths.TIMINGS / "estimates" / f"{task}.csv" for task in tasks]
        return Estimates(
            {t: read(paths.EVALUATED / t / "estimates.csv", EstimateRecord) for t in tasks},
            [cost for path in costs for cost in read(path, EstimateCostRecord)],
        )
