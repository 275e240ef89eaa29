"""The tables of transferability estimates and of their costs."""

from collections.abc import Iterable
from dataclasses import dataclass

from stages.core import paths
from stages.evaluation.records import CheckpointRow, read

ESTIMATES = ("h_score", "h_score_above_chance", "logme", "knn")
LAYERS = ("last", "mean", "best")


@dataclass(frozen=True, kw_only=True)
class EstimateRecord(CheckpointRow):
    """An estimate, from frozen states, of how well a checkpoint would do on a task. Higher is
    better.

    ``layers`` says which states are used: those of the ``last`` layer, the ``mean`` of the states
    of all layers, or those of the ``best`` layer, the one with the highest estimate. Embeddings do
    not count as a layer.
    """

    estimate: str  # one of ESTIMATES
    layers: str  # one of LAYERS
    value: float | None  # None if the estimate is not defined for the task
    layer: int | None  # the best layer, counted from 1; None unless ``layers`` is "best"
    num_rows: int  # rows of train
    num_states: int
    flops: int  # for computing the states, which all estimates share
    reason: str  # why the value is None, or ""


@dataclass(frozen=True, kw_only=True)
class EstimateCostRecord(CheckpointRow):
    """The time that the estimates of a checkpoint took on the machine that computed them."""

    wall_time_s: float


@dataclass(frozen=True)
class Estimates:
    """The estimates of a study and their costs."""

    records: dict[str, list[EstimateRecord]]  # by task
    costs: list[EstimateCostRecord]  # one for each checkpoint and task

    @staticmethod
    def of(tasks: Iterable[str]) -> "Estimates":
        """Reads the estimates of ``tasks``.

        Raises ValueError with the path of a missing file.
        """
        tasks = [*tasks]
        costs = [paths.TIMINGS / "estimates" / f"{task}.csv" for task in tasks]
        return Estimates(
            {t: read(paths.EVALUATED / t / "estimates.csv", EstimateRecord) for t in tasks},
            [cost for path in costs for cost in read(path, EstimateCostRecord)],
        )
