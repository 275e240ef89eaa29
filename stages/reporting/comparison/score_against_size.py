"""Scores against the number of parameters, and power laws through three sizes or more."""

from collections import defaultdict
from collections.abc import Sequence

from stages.evaluation.metrics import scale_of
from stages.evaluation.statistics import per_finetune_seed, per_pretrain_seed
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.power_law import PowerLaw, fit
from stages.reporting.comparison.results import Results


def cells_with_sizes(results: Results, task: str, label_budget: str) -> list[tuple[Cell, int]]:
    """Each pretrained group and the parameters that its trials use: the best of the methods that
    train most of these or, if none does, of all methods."""
    cells = results.run_cells(task, label_budget)
    found = []
    for group in results.groups:
        own = [cell for cell in cells if cell.group == group.name]
        if own and group.pretrained:
            best = max(own, key=lambda cell: (_trains_most(cell), cell.merit))
            found.append((best, cell_size(best)))
    return found


def cell_size(cell: Cell) -> int:
    """The parameters that its trials use, which are always known."""
    size = cell.amounts["num_params"]
    assert size is not None
    return size


def _trains_most(cell: Cell) -> bool:
    trained = cell.amounts["num_trained_params"]
    return trained is not None and 2 * trained > cell_size(cell)


def power_laws(
    results: Results, cells: Sequence[tuple[Cell, int]]
) -> list[tuple[Group, PowerLaw, list[int]]]:
    """A law for each architecture, objective, training set and tokenizer with three sizes, with
    the first of its groups and its sizes."""
    groups = {group.name: group for group in results.groups}
    families: dict[str, list[tuple[Cell, int]]] = defaultdict(list)
    for cell, size in cells:
        group = groups[cell.group]
        alike = (group.architecture, group.entry.objective, group.corpus, group.entry.tokenizer)
        families[repr(alike)].append((cell, size))
    found = []
    for members in families.values():
        sizes = [size for _, size in members]
        errors = _errors([cell for cell, _ in members])
        if law := fit(sizes, errors, confidence=results.confidence):
            found.append((groups[members[0][0].group], law, sizes))
    return found


def _errors(cells: Sequence[Cell]) -> list[list[float]]:
    """For each cell, the errors of the seeds that all cells have: of pretraining seeds if these are
    several, since they vary with both sources of chance, otherwise of fine-tuning seeds."""
    samples = [per_pretrain_seed(cell.values) for cell in cells]
    shared = set.intersection(*map(set, samples))
    if len(shared) < 2:
        samples = [per_finetune_seed(cell.values) for cell in cells]
        shared = set.intersection(*map(set, samples))
    metric = cells[0].metric
    return [[error(metric, sample[seed]) for seed in sorted(shared)] for sample in samples]


def error(metric: str, value: float) -> float:
    """1 minus the score, or the score itself where lower is better. It is its own inverse."""
    return value if scale_of(metric).lower_is_better else 1 - value
