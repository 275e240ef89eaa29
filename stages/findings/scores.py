"""The scores of a study: its cells, by run or baseline, task, method and label budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from stages.core.keys import CellKey
from stages.evaluation.records import CLASSICAL
from stages.findings.cells import Cell
from stages.findings.groups import Group


@dataclass(frozen=True, eq=False)
class Scores:
    """All cells of a study. Everything is in the order of params.yaml."""

    tasks: Sequence[str]
    methods: Sequence[str]
    label_budgets: Sequence[str]  # the smallest first
    groups: Sequence[Group]
    baselines: Sequence[str]  # those that are compatible with at least one task
    cells: Sequence[Cell]

    @property
    def names(self) -> list[str]:
        """The groups and then the baselines: the rows of every table and figure of scores."""
        return [*(group.name for group in self.groups), *self.baselines]

    @property
    def confidence(self) -> float:
        """The confidence of all intervals."""
        return self.cells[0].confidence

    @cached_property
    def metrics(self) -> dict[str, str]:
        """The metric of each task."""
        return {cell.task: cell.metric for cell in self.cells}

    @cached_property
    def group_of(self) -> dict[str, Group]:
        """The groups by their names."""
        return {group.name: group for group in self.groups}

    @cached_property
    def _cells(self) -> dict[CellKey, Cell]:
        return {cell.key: cell for cell in self.cells}

    def cell(self, name: str, task: str, method: str, label_budget: str) -> Cell | None:
        """Returns the cell of a group or of a baseline, or None if there is none. A baseline has
        the same cell for all methods."""
        method = CLASSICAL if name in self.baselines else method
        return self._cells.get(CellKey(name, task, method, label_budget))

    def run_cells(self, task: str, label_budget: str) -> list[Cell]:
        """Returns the cells of all groups, without the baselines."""
        return [
            cell
            for group in self.groups
            for method in self.methods
            if (cell := self.cell(group.name, task, method, label_budget))
        ]

    def baseline_cells(self, task: str, label_budget: str) -> list[Cell]:
        cells = (self.cell(name, task, CLASSICAL, label_budget) for name in self.baselines)
        return [cell for cell in cells if cell]

    @cached_property
    def external_systems(self) -> list[str]:
        """The baselines that are external systems, whose training data and cost are unknown."""
        external = {cell.group for cell in self.cells if cell.is_external}
        return [name for name in self.baselines if name in external]

    @cached_property
    def of_groups(self) -> list[Cell]:
        """All cells of groups."""
        return [cell for cell in self.cells if cell.group not in self.baselines]
