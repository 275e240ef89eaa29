"""Scores against training FLOPs, and the Pareto front."""

from collections.abc import Sequence

from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.results import Results


def cells_with_flops(results: Results, task: str, label_budget: str) -> list[tuple[Cell, int]]:
    """Each run and method, and the mean FLOPs of its lineage and a fine-tuning trial; without those
    of unknown cost, and those of cost 0, which have no place on a logarithmic axis."""
    cells = results.run_cells(task, label_budget)
    return [(cell, flops) for cell in cells if (flops := total_flops(cell))]


def total_flops(cell: Cell) -> int | None:
    """Of pretraining and fine-tuning; None is unknown."""
    lineage, finetuning = cell.amounts["lineage_flops"], cell.amounts["finetune_flops"]
    return None if lineage is None or finetuning is None else lineage + finetuning


def left_out(results: Results) -> tuple[list[str], list[tuple[str, str]]]:
    """The runs of unknown cost, and the (run, method) that cost nothing."""
    runs = [cell for cell in results.cells if cell.group not in results.baselines]
    unknown = [cell.group for cell in runs if total_flops(cell) is None]
    untrained = [(cell.group, cell.method) for cell in runs if total_flops(cell) == 0]
    return list(dict.fromkeys(unknown)), list(dict.fromkeys(untrained))


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (cost, merit) that no other point of the same or lower cost beats, cheapest
    first; of equal points the first."""
    front: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not front or points[i][1] > points[front[-1]][1]:
            front.append(i)
    return front
