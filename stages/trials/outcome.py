"""The outcome of a trial: an adapted model, and rows for the tables of the study."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256

from pydantic import TypeAdapter

from stages.core.components import Settings
from stages.core.keys import TrialKey
from stages.core.params import Compute
from stages.evaluation import metrics, records
from stages.evaluation.calibration import at_temperature
from stages.kinds._cells import Row
from stages.methods._method import Predictor
from stages.models._heads import ModelWithHead
from stages.tasks._task import Predicted
from stages.training.checkpoint import WEIGHTS
from stages.training.device import Device, side_by_side
from stages.training.finetuning import Encoded
from stages.training.meter import Usage, hardware
from stages.trials import kept
from stages.trials.inference_speed import Speed
from stages.trials.setup import TrialSetup
from stages.trials.validation import Validated
from stages.trials.variants import Variant

DECIMALS = 6  # of a probability


@dataclass(frozen=True)
class Fit:
    """The fields of TrialRecord that say how a model was fitted. The defaults are for a method
    without training."""

    lr: float = 0.0
    best_epoch: int = 0
    num_epochs: int = 0
    num_steps: int = 0
    last_train_loss: float | None = None
    best_is_last: int = 0
    chosen_in_warmup: int = 0
    still_improving: int = 0
    converged: int | None = None
    C: float | None = None
    num_tries: int = 1
    at_edge: int | None = None
    temperature: float | None = None


def at_edge(chosen: float, tried: Sequence[float]) -> int | None:
    """Returns 1 if the chosen value is the smallest or largest of several values tried, so that a
    better one may lie beyond them, else 0; None if only one value was tried."""
    return int(chosen in (min(tried), max(tried))) if len(tried) > 1 else None


@dataclass(frozen=True)
class Tried:
    """The result of one variant of a trial. If the method trains nothing, there are no epochs,
    FLOPs, trained parameters or validation."""

    variant: Variant
    predictions: list[records.PredictionRecord]  # of the test rows
    validated: Validated | None = None  # None if nothing is trained, or training diverged
    num_trained_params: int = 0
    flops: int = 0  # of training at all learning rates, or of solving at every C
    fit: Fit = Fit()  # noqa: RUF009 (it is frozen)
    epochs: list[records.EpochRecord] = field(default_factory=list)
    diverged: str = ""  # why there is no model; "" if there is one
    validation: list[records.ValidationRecord] = field(default_factory=list)

    @property
    def threshold(self) -> float:
        """The margin below which a prediction becomes no answer, or the other of two labels."""
        return self.validated.threshold if self.validated else 0.0

    def merit(self, metric: str) -> tuple[float, float]:
        """Returns a value that ranks variants, the best highest: the metric on validation (negative
        if lower is better), then the negative loss."""
        if self.diverged:
            return -math.inf, -math.inf
        if self.validated is None:
            return 0.0, 0.0
        return metrics.merit(metric, self.validated.value), -self.validated.loss


@dataclass(frozen=True)
class Adapted:
    """A model that a method adapted, and its predictor."""

    model: ModelWithHead
    predictor: Predictor
    examples: Sequence[Encoded]  # of the test rows, as the predictor encodes them
    setup: TrialSetup  # with the settings of the model's variant


@dataclass(frozen=True)
class Outcome:
    """The rows of a trial in the tables of the study."""

    trial: records.TrialRecord
    epochs: list[records.EpochRecord]
    predictions: list[records.PredictionRecord]
    cost: records.CostRecord
    tries: list[records.TryRecord]
    lost_predictions: list[records.LostPredictionRecord]
    validation: list[records.ValidationRecord] = field(default_factory=list)

    @property
    def key(self) -> TrialKey:
        return self.trial.key


TRIED_TYPE, OUTCOME_TYPE = TypeAdapter(Tried), TypeAdapter(Outcome)  # to read them from JSON


def trial_record(
    key: TrialKey, adapted: Adapted, kept_try: Tried, tries: Sequence[Tried], account: Settings
) -> records.TrialRecord:
    """Returns the row of ``trials.csv`` of a trial that keeps ``kept_try``. ``account`` is the
    ``metrics.json`` of its checkpoint: the tokens, FLOPs and parameters of pretraining."""
    setup, backbone = adapted.setup, adapted.model.backbone.uncached
    run, design = setup.run_record, backbone.design
    fit = replace(kept_try.fit, num_tries=sum(each.fit.num_tries for each in tries))
    return records.TrialRecord(
        **key._asdict(),
        architecture=run["architecture"],
        objective=run["objective"],
        corpus=run["corpus"],
        num_params=sum(weight.numel() for weight in adapted.model.parameters()),
        num_trained_params=kept_try.num_trained_params,
        pretrain_tokens=account["pretrain_tokens"],
        pretrain_flops=account["pretrain_flops"],
        lineage_tokens=account["lineage_tokens"],
        lineage_flops=account["lineage_flops"],
        finetune_flops=sum(each.flops for each in tries),
        d_model=run["d_model"],
        num_layers=run["num_layers"],
        weights_bytes=kept.weights_bytes(adapted.model, setup.pretrained / WEIGHTS),
        num_pretrained_params=account["num_params"],
        used_architecture=backbone.used_architecture,
        design=None if design is None else sha256(design.encode()).hexdigest()[:12],
        lineage_bytes=account["lineage_bytes"],
        **asdict(fit),
        **kept_try.variant.columns,
    )


def try_records(key: TrialKey, kept_try: Tried, tries: Sequence[Tried]) -> list[records.TryRecord]:
    """Returns the rows of ``tries.csv`` of a trial."""
    return [
        records.TryRecord(
            **key._asdict(),
            **each.variant.columns,
            fixed=each.variant.fixed_values,
            validation_metric=each.validated.value if each.validated else None,
            validation_loss=each.validated.loss if each.validated else None,
            kept=int(each is kept_try),
        )
        for each in tries
    ]


def lost_predictions(kept_try: Tried, tries: Sequence[Tried]) -> list[records.LostPredictionRecord]:
    """Returns the predictions of the variants that a trial has not kept."""
    return [
        records.LostPredictionRecord(**asdict(prediction), **each.variant.columns)
        for each in tries
        if each is not kept_try
        for prediction in each.predictions
    ]


def prediction_records(
    key: TrialKey,
    rows: Sequence[Row],
    predictions: Sequence[Predicted],
    *,
    temperature: float | None = None,
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
    if not predictions:
        return []
    return [
        records.ValidationRecord(
            **key._asdict(),
            probability=round(each.probability, DECIMALS),
            right=int(each.prediction == right),
        )
        for right, each in zip(gold, predictions, strict=True)
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
        gpu_energy_j=usage.gpu_energy_j,
        latency_s=round(speed.latency_s, 6) if speed else None,
        texts_per_s=round(speed.texts_per_s, 1) if speed else None,
        tokens_per_s=round(speed.tokens_per_s, 1) if speed else None,
        hardware=hardware(device),
        threads=device.threads,
        side_by_side=side_by_side(compute),
    )
