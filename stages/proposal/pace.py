"""Measures how fast the models of a study train on this machine, with a few steps of one model."""

from collections.abc import Sequence

from stages.budgets.budget import matched
from stages.core.artifacts import Json
from stages.core.parallel import most_jobs
from stages.core.params import Params
from stages.core.study_file import typed
from stages.planning.costs import finetunings, pretrainings
from stages.planning.speed import calibration
from stages.proposal.design import Budget, Pace


def measured(raw: Json, budgets: Sequence[Budget]) -> Pace:
    """Measures the pretraining and the full fine-tuning of the first run, with the calibration of
    `make plan`. Other runs are assumed to do as much work per second.

    ``raw`` is a study with one seed, one run of each architecture, and tasks that state their
    numbers of rows.
    """
    study = matched(typed(raw))
    architecture_of = {key: str(run.architecture["name"]) for key, run in study.runs.items()}
    costs_by_budget = {budget: finetunings(_at(study, budget)) for budget in budgets}
    trained = pretrainings(study, {key: run.seeds for key, run in study.runs.items()})
    first = costs_by_budget[budgets[0]][0]
    jobs = most_jobs(study.compute, study.distributed)

    step_speed = calibration(study, trained[0], jobs=jobs) if trained[0].work else None
    step_s = {
        architecture_of[cost.run]: cost.work / step_speed / cost.steps
        if step_speed and cost.steps
        else 0.0
        for cost in trained
    }
    trial_speed = calibration(study, first, jobs=jobs)
    trials_s: dict[tuple[str, Budget], float] = {
        (architecture_of[cost.run], budget): cost.work / trial_speed if trial_speed else 0.0
        for budget, costs in costs_by_budget.items()
        for cost in costs
        if cost.method == first.method
    }
    return Pace(step_s=step_s, trials_s=trials_s, jobs=jobs)


def _at(study: Params, budget: Budget) -> Params:
    finetune = study.finetune.model_copy(update={"label_budgets": [budget]})
    return study.model_copy(update={"finetune": finetune})
