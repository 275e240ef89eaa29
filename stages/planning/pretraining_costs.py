"""What each pretraining takes, computed from params.yaml alone."""

from dataclasses import dataclass

from stages.core.params import Params, Run
from stages.matching.budget import step_flops, trains
from stages.models._costs import FLOAT32
from stages.planning.run_sizes import (
    COPIES,
    backbone_of,
    kept_activation_bytes,
    num_weights,
    objective_of,
    planned_runs,
    random_batch,
)
from stages.training.pretraining import VALIDATION_ROWS


@dataclass
class Pretraining:
    """One run at all of its learning rates; None is a number that is unknown (a public checkpoint
    before its download) or does not apply."""

    run: str
    objective: str
    architecture: str | None
    num_layers: int | None
    num_params: int | None
    num_steps: int | None = None
    tokens: int | None = None
    flops: int | None = None
    validation_flops: int | None = None  # at most
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    pending: bool = False
    seconds: float | None = None
    speed_from: str | None = None


def pretrainings(params: Params) -> list[Pretraining]:
    return [_pretraining(params, key, run) for key, run in planned_runs(params).items()]


def _pretraining(params: Params, key: str, run: Run) -> Pretraining:
    backbone = backbone_of(params, run)
    cost = Pretraining(key, run.learnt[0], None, None, None)
    if backbone is None:
        return cost
    cost.architecture, cost.num_layers = backbone.architecture, backbone.num_layers
    cost.num_params = num_weights(backbone)
    cost.disk_bytes = FLOAT32 * cost.num_params
    if trains(run):
        training = run.training
        tries = len(training.rates)
        cost.num_steps = tries * training.num_steps
        cost.tokens = cost.num_steps * training.batch_rows * training.max_tokens
        each = step_flops(params, run)
        cost.flops = cost.num_steps * each
        validated = tries * training.num_validations * VALIDATION_ROWS / training.batch_rows
        cost.validation_flops = round(validated * each / 3)
        shape = {"rows": training.micro_batch_rows, "length": training.max_tokens}
        batch = random_batch(objective_of(params, run), **shape)
        copied = COPIES * FLOAT32 * cost.num_params
        labels = 0 if batch.labels is None else batch.labels.numel()
        kept = kept_activation_bytes(backbone, batch, labels)
        cost.memory_bytes = None if kept is None else copied + kept
    return cost
