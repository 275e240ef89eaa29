"""How fast the models of a study train here, from a few steps of one of them."""

from collections.abc import Sequence
from functools import cached_property

from stages.core.artifacts import Json
from stages.core.params import Params, typed
from stages.planning.calibration import Calibration, TimeAndMemory
from stages.planning.finetuning_costs import Finetuning, finetunings
from stages.planning.pretraining_costs import pretrainings
from stages.proposal.design import Budget, Pace
from stages.training.device import side_by_side

PROBE = 0.25  # of the time of full fine-tuning; a fifth in the default study


class _Speed(Calibration):
    """Without the memory of MLflow's client, whose import takes as long as all else."""

    @cached_property
    def _tracking_bytes(self) -> int:
        return 0


def measured(raw: Json, budgets: Sequence[Budget], text_tokens: int) -> Pace:
    """By the calibration of `make plan`, of the first run alone: the others are as fast in
    operations. ``raw`` is a study with a run of each architecture and full fine-tuning, whose task
    says how many rows it has; its texts have ``text_tokens``."""
    # Texts of tasks that are not prepared are planned to have the maximum length.
    whole = typed(raw | {"finetune": raw["finetune"] | {"max_tokens": text_tokens}})
    by_budget: dict[Budget, list[Finetuning]] = {
        budget: finetunings(_at(whole, budget)) for budget in budgets
    }
    calibration = _Speed(whole, by_budget[budgets[0]])
    architecture_of = {key: str(run.model["name"]) for key, run in whole.pretrain.items()}
    trained = pretrainings(whole)
    pace = _seconds_per_flop(calibration.pretraining(trained[0]), trained[0].flops)
    step_s = {
        architecture_of[cost.run]: pace * (cost.flops or 0) / (cost.num_steps or 1)
        for cost in trained
    }
    first = by_budget[budgets[0]][0]
    pace = _seconds_per_flop(calibration.finetuning(first), _operations(first))
    probed = PROBE if len(raw["finetune"]["methods"]) > 1 else 0.0
    per_flop = pace * (1 + probed) / side_by_side(whole.compute)
    trials_s: dict[tuple[str, Budget], float] = {
        (architecture_of[cost.run], budget): per_flop * _operations(cost)
        for budget, costs in by_budget.items()
        for cost in costs
        if cost.method == first.method
    }
    return Pace(step_s=step_s, trials_s=trials_s)


def _at(params: Params, budget: Budget) -> Params:
    chosen = params.finetune.model_copy(update={"label_budgets": [budget]})
    return params.model_copy(update={"finetune": chosen})


def _operations(cost: Finetuning) -> int:
    return (cost.flops or 0) + (cost.prediction_flops or 0)


def _seconds_per_flop(cost: TimeAndMemory | None, flops: int | None) -> float:
    return cost.seconds / flops if cost is not None and flops else 0.0
