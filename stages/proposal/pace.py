"""Measures how fast the models of a study train on this machine, with a few steps of one model."""

from collections.abc import Sequence

from stages.core.artifacts import Json
from stages.core.parallel import most_jobs
from stages.core.params import Params
from stages.core.study_file import typed
from stages.matching.budget import matched
from stages.planning.finetuning_costs import Finetuning, finetunings
from stages.planning.pretraining_costs import Pretraining, pretrainings
from stages.planning.speed import Calibration, operations
from stages.proposal.design import Budget, Pace


def measured(raw: Json, budgets: Sequence[Budget]) -> Pace:
    """Measures the pretraining and the full fine-tuning of the first run, with the calibration of
    `make plan`. Other runs are assumed to take as many seconds per operation.

    ``raw`` is a study with one seed, one run of each architecture, and tasks that state their
    numbers of rows.
    """
    study = matched(typed(raw))
    architecture_of = {key: str(run.model["name"]) for key, run in study.runs.items()}
    costs_by_budget = {budget: finetunings(_at(study, budget)) for budget in budgets}
    trained = pretrainings(study, {key: run.seeds for key, run in study.runs.items()})
    first = costs_by_budget[budgets[0]][0]
    jobs = most_jobs(study.compute, study.distributed)
    calibration = Calibration(study, costs_by_budget[budgets[0]], jobs=jobs)

    step_pace = _seconds_per_operation(calibration, trained[0])
    step_s = {
        architecture_of[cost.run]: step_pace * (cost.flops or 0) / (cost.num_steps or 1)
        for cost in trained
    }
    trial_pace = _seconds_per_operation(calibration, first)
    trials_s: dict[tuple[str, Budget], float] = {
        (architecture_of[cost.run], budget): trial_pace * operations(cost)
        for budget, costs in costs_by_budget.items()
        for cost in costs
        if cost.method == first.method
    }
    return Pace(step_s=step_s, trials_s=trials_s, jobs=jobs)


def _at(study: Params, budget: Budget) -> Params:
    finetune = study.finetune.model_copy(update={"label_budgets": [budget]})
    return study.model_copy(update={"finetune": finetune})


def _seconds_per_operation(calibration: Calibration, cost: Pretraining | Finetuning) -> float:
    """Returns the measured seconds per operation, or 0 if nothing is trained or measured."""
    seconds = calibration.seconds(cost) if cost.flops else None
    return seconds / operations(cost) if seconds else 0.0
