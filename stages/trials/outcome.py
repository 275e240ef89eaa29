"""The outcome of a trial: rows for the tables of the study."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from pydantic import TypeAdapter

from stages.core.artifacts import Json
from stages.core.keys import TrialKey
from stages.core.params import Compute
from stages.evaluation import records
from stages.evaluation.calibration import at_temperature
from stages.models._heads import ModelWithHead
from stages.tasks._cells import Row
from stages.tasks._task import Predicted
from stages.training.checkpoint import WEIGHTS
from stages.training.device import Device, side_by_side
from stages.training.meter import Usage, hardware
from stages.trials import kept
from stages.trials.inference_speed import Speed
from stages.trials.setup import TrialSetup

DECIMALS = 6  # of a probability
NOT_FITTED: Json = {  # fields of TrialRecord for a method that fits nothing
    **dict.fromkeys(("num_trained_params", "finetune_flops", "best_epoch", "num_epochs"), 0),
    **dict.fromkeys(("num_steps", "best_is_last", "chosen_in_warmup", "still_improving"), 0),
    **dict.fromkeys(("last_train_loss", "converged", "C", "at_edge"), None),
    "lr": 0.0,
    "num_tries": 1,
}


@dataclass(frozen=True)
class Outcome:
    """The rows of a trial in the tables of the study."""

    trial: records.TrialRecord
    epochs: list[records.EpochRecord]
    predictions: list[records.PredictionRecord]
    validation: list[records.ValidationRecord]
    cost: records.CostRecord

    @property
    def key(self) -> TrialKey:
        return self.trial.key


OUTCOME_TYPE = TypeAdapter(Outcome)  # to read outcomes from JSON


def trial_record(
    key: TrialKey, setup: TrialSetup, model: ModelWithHead, account: Json, fit: Json
) -> records.TrialRecord:
    """Returns the row of ``trials.csv`` of a trial. ``account`` is the ``metrics.json`` of its
    checkpoint: the tokens, FLOPs and parameters of pretraining. ``fit`` are the fields that differ
    from NOT_FITTED."""
    run, backbone = setup.run_record, model.backbone
    of_pretraining = ("pretrain_tokens", "pretrain_flops")
    of_lineage = ("lineage_tokens", "lineage_flops", "lineage_bytes")
    return records.TrialRecord(
        **key._asdict(),
        **{name: run[name] for name in ("architecture", "objective", "corpus")},
        **{name: run[name] for name in ("d_model", "num_layers")},
        **{name: account[name] for name in (*of_pretraining, *of_lineage)},
        num_params=sum(weight.numel() for weight in model.parameters()),
        num_pretrained_params=account["num_params"],
        weights_bytes=kept.weights_bytes(model, setup.pretrained / WEIGHTS),
        used_architecture=backbone.used_architecture,
        design=sha256(backbone.design.encode()).hexdigest()[:12],
        **(NOT_FITTED | fit),
    )


def prediction_records(
    key: TrialKey, rows: Sequence[Row], predictions: Sequence[Predicted], temperature: float | None
) -> list[records.PredictionRecord]:
    return [
        records.PredictionRecord(
            **key._asdict(),
            id=row["id"],
            prediction=each.prediction,
            probability=None if each.probability is None else round(each.probability, DECIMALS),
            calibrated=_calibrated(each, temperature),
        )
        for row, each in zip(rows, predictions, strict=True)
    ]


def _calibrated(predicted: Predicted, temperature: float | None) -> float | None:
    if temperature is None or predicted.scores is None:
        return None
    return round(at_temperature(predicted.scores, temperature)[predicted.prediction], DECIMALS)


def validation_records(
    key: TrialKey, gold: Sequence[str], predictions: Sequence[Predicted]
) -> list[records.ValidationRecord]:
    """Returns a record for each prediction with a probability; ``predictions`` may be empty."""
    return [
        records.ValidationRecord(
            **key._asdict(),
            probability=round(each.probability, DECIMALS),
            right=int(each.prediction == right),
        )
        for right, each in zip(gold, predictions, strict=False)
        if each.probability is not None
    ]


def cost_record(
    key: TrialKey, usage: Usage, speed: Speed | None, device: Device, compute: Compute
) -> records.CostRecord:
    """Returns the cost of a trial and, if it was measured, the speed of its model."""
    return records.CostRecord(
        **key._asdict(),
        wall_time_s=round(usage.wall_time_s, 3),
        peak_memory_bytes=usage.peak_memory_bytes,
        processor_time_s=round(usage.processor_time_s, 3),
        latency_s=round(speed.latency_s, 6) if speed else None,
        texts_per_s=round(speed.texts_per_s, 1) if speed else None,
        tokens_per_s=round(speed.tokens_per_s, 1) if speed else None,
        hardware=hardware(device),
        threads=device.threads,
        side_by_side=side_by_side(compute),
    )
