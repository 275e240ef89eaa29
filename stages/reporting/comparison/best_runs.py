"""The best run of each task, beside the strongest classical baseline there."""

from dataclasses import dataclass, replace
from itertools import product

from stages.evaluation.statistics import Interval, holm
from stages.reporting.comparison import advice
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.verdicts import ONE_SEED, verdict_of_test


@dataclass(frozen=True)
class BestRun:
    """``effect`` is the difference to the ``strongest`` classical baseline. If none fits the task,
    ``strongest`` is None and ``effect`` the mean of the run."""

    run: Cell
    strongest: Cell | None
    effect: Interval
    p_holm: float = 1.0  # corrected for the number of tasks and label budgets

    @property
    def run_is_ahead(self) -> bool:
        return self.strongest is None or self.run.merit > self.strongest.merit

    @property
    def best(self) -> Cell:
        """Of the run and the baseline the one with the better mean; of a tie the baseline, which
        costs less."""
        return self.run if self.strongest is None or self.run_is_ahead else self.strongest

    @property
    def significant(self) -> bool:
        """After Holm correction."""
        return self.p_holm < 1 - self.run.confidence

    @property
    def verdict(self) -> str:
        """On the difference to the baseline, as a contrast has it."""
        if self.effect.variance is None:
            return f"{self.effect.basis}: no interval"
        if self.run.has_one_pretraining_seed:
            return ONE_SEED
        return verdict_of_test(
            before_correction=self.effect.excludes_zero,
            after_correction=self.significant,
            published=self.run.checkpoints == "published",
        )


def best_runs(results: Results, method: str | None = None) -> dict[tuple[str, str], BestRun]:
    """Of each task and label budget, with one method or (None) with whichever is best. A method
    that is incompatible with every run has none."""
    found: dict[tuple[str, str], BestRun] = {}
    for task, budget in product(results.params.tasks, results.label_budgets):
        if method is None:
            run = advice.best_cell(results, task, budget)
        elif (run := advice.best_with(results, task, budget, method)) is None:
            continue
        strongest, effect = advice.beside_baseline(results, run) or (None, run.mean)
        found[task, budget] = BestRun(run, strongest, effect)
    known = {place: each for place, each in found.items() if each.strongest is not None}
    p_values = [each.effect.p_value for each in known.values()]
    corrected = holm([1.0 if p_value is None else p_value for p_value in p_values])
    for place, p_holm in zip(known, corrected, strict=True):
        found[place] = replace(found[place], p_holm=p_holm)
    return found
