"""Trials of a checkpoint on a task: each trains with a method, or solves a probe, and predicts the
test inputs."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from stages.core.artifacts import Json, read_json
from stages.core.keys import TrialKey
from stages.core.params import Finetune
from stages.core.plans import FinetunePlan
from stages.core.seeding import stream
from stages.evaluation import metrics
from stages.evaluation.calibration import at_temperature, fitted_temperature
from stages.evaluation.records import (
    CostRecord,
    EpochRecord,
    PredictionRecord,
    TrialRecord,
    ValidationRecord,
)
from stages.methods._method import (
    METHODS,
    Method,
    PromptMethod,
    Solution,
    SolvedMethod,
    TrainedMethod,
)
from stages.models._heads import ModelWithHead
from stages.tasks._cells import Row
from stages.tasks._task import SPLITS, Example, Predicted, Split
from stages.text.batch import Batch
from stages.training.checkpoint import WEIGHTS
from stages.training.device import Device, side_by_side
from stages.training.finetuning import FinetuningData, max_epochs, warmup_epochs
from stages.training.flops import counting
from stages.training.loop import Diverged, Step, train
from stages.training.meter import Meter, hardware
from stages.trials import kept
from stages.trials.prediction import FrozenStates, measured_speed, predict
from stages.trials.setup import TrialSetup
from stages.trials.validation import (
    Validated,
    at_edge,
    best_epoch,
    best_threshold,
    decided,
    is_over,
    merit,
    still_improving,
)

DECIMALS = 6  # of a probability
OF_RUN = ("architecture", "objective", "corpus", "d_model", "num_layers")
OF_PRETRAINING = (
    *("pretrain_tokens", "pretrain_flops"),
    *("lineage_tokens", "lineage_flops", "lineage_bytes"),
)
# A model that a method has adapted, its validation, and how: fields of ``TrialRecord``.
Fitted = tuple[ModelWithHead, Validated, Json]


@dataclass(frozen=True)
class Trial:
    """A trial: its rows in the tables of the study."""

    record: TrialRecord
    epochs: list[EpochRecord]  # at all learning rates
    predictions: list[PredictionRecord]
    validation: list[ValidationRecord]  # empty without probabilities
    cost: CostRecord

    @property
    def key(self) -> TrialKey:
        return self.record.key


def method_of(finetune: Finetune, name: str) -> Method:
    """Returns the method of an entry of ``finetune.methods``."""
    return METHODS.build(finetune.methods[name].method, where=f"finetune.methods.{name}.method")


def is_first_seed(finetune: Finetune, key: TrialKey) -> bool:
    """Returns whether the trial has the first fine-tuning seed, for which the speed of prediction
    is measured."""
    return key.finetune_seed == finetune.seeds[0]


def keeps_weights(finetune: Finetune, key: TrialKey) -> bool:
    """Returns whether the weights that the trial trained are kept."""
    keep = finetune.keep_weights
    return keep == "all" or (keep == "first_seed" and is_first_seed(finetune, key))


class TrialRunner:
    """Runs the trials ``keys``, all of one checkpoint, task, method and draw of the splits; from
    scratch, also of one draw of weights."""

    def __init__(self, plan: FinetunePlan, device: Device, *, keys: Sequence[TrialKey]) -> None:
        self.finetune, self.compute = plan.finetune, plan.compute
        first = keys[0]
        self.entry = self.finetune.methods[first.method]
        self.method = method_of(self.finetune, first.method)
        self.setup = TrialSetup(
            first.checkpoint,
            first.task,
            max_tokens=self.finetune.max_tokens,
            text_to_text=self.entry.text_to_text,
        )
        self.task, self.metric = self.setup.task, self.setup.task_record["metric"]
        self.device, self.frozen = device, None
        trains_head = isinstance(self.method, TrainedMethod) and self.method.probe is None
        if isinstance(self.method, SolvedMethod | TrainedMethod) and not trains_head:
            # States of new texts then equal those that the head was fitted to.
            self.device = replace(device, precision="float32")
            self.frozen = FrozenStates(self.task, self.device)
        self.rows = {s: self.setup.rows(s, seed=first.finetune_seed) for s in SPLITS}
        needed = {row["id"] for key in keys for row in self._labelled(key)}
        used = self.rows | {"train": [row for row in self.rows["train"] if row["id"] in needed]}
        self.encoded = {split: self.task.encode(rows) for split, rows in used.items()}
        self.gold = [self.task.kind.answer(row) for row in self.rows["validation"]]
        self._unchanged: list[Predicted] | None = None  # what the pretrained model predicts

    def run(self, key: TrialKey, folder: Path) -> Trial:
        """Runs one trial; its trained weights go to the ``folder`` if they are kept.

        Raises ValueError if training diverges at every learning rate.
        """
        meter, rows, epochs = Meter(self.device), self.rows["test"], list[EpochRecord]()
        predictor, examples, predicted = self.task, self.encoded["test"], None
        fit, validation, threshold, temperature = Json(), list[Predicted](), 0.0, None
        if isinstance(self.method, TrainedMethod | SolvedMethod):
            if isinstance(self.method, TrainedMethod):
                model, validated, fit = self._trained(key, self.method, epochs)
            else:
                model = self._start(key)
                validated, fit = self._solved(model, self._examples_in_budget(key), self.method)
            fit["validation_score"] = validated.value
            threshold, validation = validated.threshold, validated.predicted
            temperature = fit["temperature"] = _temperature(validation, self.gold)
        else:
            model = self._start(key)
            if isinstance(self.method, PromptMethod):
                predictor = self.setup.prompts(self.method, key, self.rows["train"])
                examples = predictor.encode(rows)
            else:  # it predicts the same in all trials
                predicted = self._unchanged = self._unchanged or self._predict(model, "test")
        if predicted is None:
            predicted = predict(predictor, model, rows, examples, self.device, frozen=self.frozen)
        predicted = decided(predicted, threshold)
        record = self._record(key, model, fit)
        # Without trained weights, the file only records the trial.
        if keeps_weights(self.finetune, key) or not record.num_trained_params:
            trial = kept.KeptTrial(
                **key._asdict(),
                component=self.entry.method,
                text_to_text=self.entry.text_to_text,
                max_tokens=self.setup.max_tokens,
                precision=self.device.precision,
                threshold=threshold,
                belongs_to=kept.fingerprint(self.setup),
            )
            kept.save(model, trial, folder)
        usage = meter.read()
        speed: Json = dict.fromkeys(("latency_s", "texts_per_s", "tokens_per_s"))
        if is_first_seed(self.finetune, key):
            if isinstance(self.method, PromptMethod):  # a new one, since it remembers scores
                method: Any = method_of(self.finetune, key.method)
                predictor = self.setup.prompts(method, key, self.rows["train"])
            speed = measured_speed(predictor, model, rows, examples, self.device)
        return Trial(
            record=record,
            epochs=epochs,
            predictions=[
                PredictionRecord(
                    **key._asdict(),
                    id=row["id"],
                    prediction=each.prediction,
                    probability=_rounded(each.probability),
                    calibrated=_calibrated(each, temperature),
                )
                for row, each in zip(rows, predicted, strict=True)
            ],
            validation=[
                ValidationRecord(
                    **key._asdict(),
                    probability=round(each.probability, DECIMALS),
                    right=int(each.prediction == answer),
                )
                for answer, each in zip(self.gold, validation, strict=False)
                if each.probability is not None
            ],
            cost=CostRecord(
                **key._asdict(),
                **speed,
                wall_time_s=round(usage.wall_time_s, 3),
                peak_memory_bytes=usage.peak_memory_bytes,
                processor_time_s=round(usage.processor_time_s, 3),
                hardware=hardware(self.device),
                threads=self.device.threads,
                side_by_side=side_by_side(self.compute),
            ),
        )

    def _trained(self, key: TrialKey, method: TrainedMethod, epochs: list[EpochRecord]) -> Fitted:
        """Trains a model at each learning rate, and keeps the epoch that is best on validation;
        without ``patience``, only the last epoch of each rate can be kept. The loss decides only
        between equal metrics: with few labels it rises, because the model becomes overconfident,
        long before the metric is at its best. Of equal epochs, the first is kept. The ``epochs`` of
        all rates are appended.

        Raises ValueError with the setting's path if training diverges at every rate.
        """
        settings, examples = self.entry.of(key.model).training, self._examples_in_budget(key)
        assert settings is not None, "the root stage refuses a method that trains without it"
        seed = self.setup.seed_of(key.finetune_seed)  # for the order of examples and for dropout
        lesson, learnt = method.lesson(self.task, examples, rng=stream(seed, "lesson"))
        data = FinetuningData(learnt, lesson, batch_examples=settings.batch_examples, seed=seed)
        per_epoch, num_epochs = data.steps_per_epoch, max_epochs(settings, len(learnt))
        warmup, flops = warmup_epochs(settings, len(learnt)), 0
        model, kept_epoch, best, of_head = None, None, None, Json()
        weights = dict[str, Tensor]()
        reason = "lr: the validation loss is not finite"
        for lr in settings.rates:
            model, curve, history = self._start(key), list[EpochRecord](), list[Step]()
            frozen = [*method.frozen(model, 0)]
            steps = train(
                model,
                lesson,
                data,
                settings.at(lr),
                num_steps=num_epochs * per_epoch,
                seed=seed,
                device=self.device,
                history=history,
                frozen=frozen,
            )
            try:
                for step in steps:
                    if step.step % per_epoch:
                        continue
                    if method.probe:
                        self.frozen = FrozenStates(self.task, self.device)
                        validated, solved = self._solved(model, examples, method.probe)
                        flops += solved["finetune_flops"]
                    else:
                        validated, solved = self._validate(model), Json()
                    step.validation_loss = validated.loss
                    if not math.isfinite(validated.loss):
                        continue  # ``train`` raises Diverged next
                    epoch = EpochRecord(
                        **key._asdict(),
                        lr=lr,
                        epoch=step.step // per_epoch,
                        train_loss=fmean(step.loss for step in history[-per_epoch:]),
                        validation_metric=validated.value,
                        validation_loss=validated.loss,
                    )
                    curve.append(epoch)
                    is_candidate = settings.patience != "none" or epoch.epoch == num_epochs
                    if is_candidate and (best is None or validated.merit > best.merit):
                        kept_epoch, best, of_head = epoch, validated, solved
                        weights = {
                            name: weight.detach().clone()
                            for name, weight in model.named_parameters()
                            if weight.requires_grad
                        }
                    if is_over(curve, settings.patience, self.metric, warmup=warmup):
                        break
                    frozen[:] = method.frozen(model, epoch.epoch)
            except Diverged as error:
                reason = str(error)
            finally:
                steps.close()
            epochs += curve
            flops += sum(step.flops for step in history)
        if model is None or kept_epoch is None or best is None:
            raise ValueError(f"finetune.methods.{key.method}.training.{reason}")
        self.frozen = None  # its states are of the last epoch
        model.load_state_dict(weights, strict=False)  # all other weights are equal at all rates
        curve = [epoch for epoch in epochs if epoch.lr == kept_epoch.lr]
        # Some weights are still frozen in the last epoch if there are fewer epochs than layers.
        trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        trained -= sum(weight.numel() for weight in method.frozen(model, len(curve) - 1))
        fit = of_head | {
            "num_trained_params": trained,
            "finetune_flops": flops,
            "lr": kept_epoch.lr,
            "best_epoch": kept_epoch.epoch,
            "num_epochs": len(curve),
            "num_steps": len(curve) * per_epoch,
            "last_train_loss": curve[-1].train_loss,
            "best_is_last": int(best_epoch(curve, self.metric) == curve[-1].epoch),
            "chosen_in_warmup": int(kept_epoch.epoch <= warmup),
            "still_improving": int(still_improving(curve, self.metric)),
            "num_tries": len(settings.rates) * of_head.get("num_tries", 1),
            "at_edge": at_edge(kept_epoch.lr, settings.rates),
        }
        return model, best, fit

    def _solved(
        self, model: ModelWithHead, examples: Sequence[Example], method: SolvedMethod
    ) -> tuple[Validated, Json]:
        """Solves the head at each C and keeps the C that is best on validation."""
        assert self.frozen is not None
        with counting() as counter:
            self.frozen.compute(model, examples, anew=True)
        candidates = list[tuple[Solution, Validated]]()
        for solution in method.solutions(
            *self.frozen.labelled(examples), num_outputs=model.head.linear.out_features
        ):
            _put(solution, model)
            candidates.append((solution, self._validate(model)))
        best, validated = max(candidates, key=lambda each: each[1].merit)
        _put(best, model)
        fit = {
            "num_trained_params": sum(weight.numel() for weight in model.head.parameters()),
            "finetune_flops": counter.flops,
            "num_steps": sum(solution.num_iterations for solution, _ in candidates),
            "converged": int(all(solution.converged for solution, _ in candidates)),
            "C": best.C,
            "num_tries": len(candidates),
            "at_edge": at_edge(best.C, method.C),
        }
        return validated, fit

    def _record(self, key: TrialKey, model: ModelWithHead, fit: Json) -> TrialRecord:
        """Returns the row of ``trials.csv`` of a trial. ``fit`` are the fields about fitting."""
        account = read_json(self.setup.pretrained / "metrics.json")
        weights = [*model.parameters()]
        # The files that are needed for predictions: the trained weights and, unless these are all,
        # the checkpoint, as which the initial weights of a model from scratch count.
        num_bytes = sum(w.numel() * w.element_size() for w in weights if w.requires_grad)
        if not all(weight.requires_grad for weight in weights):
            num_bytes += (self.setup.pretrained / WEIGHTS).stat().st_size
        return TrialRecord(
            **key._asdict(),
            **{name: self.setup.run_record[name] for name in OF_RUN},
            **{name: account[name] for name in OF_PRETRAINING},
            num_params=sum(weight.numel() for weight in weights),
            num_pretrained_params=account["num_params"],
            weights_bytes=num_bytes,
            used_architecture=model.backbone.architecture,
            design=sha256(model.backbone.design.encode()).hexdigest()[:12],
            **fit,
        )

    def _validate(self, model: ModelWithHead) -> Validated:
        """Returns the metric on the validation rows at the threshold that is best for it, and the
        loss as if their examples were one batch."""
        losses, targets = defaultdict[str, float](float), Counter[str]()

        def add(model: ModelWithHead, batch: Batch) -> None:
            for term, (weight, loss_sum) in self.task.loss(model, batch).items():
                losses[term] += weight * float(loss_sum)
            targets.update(batch.num_targets)

        predicted = self._predict(model, "validation", also=add)
        threshold = best_threshold(self.metric, self.gold, predicted)
        predicted = decided(predicted, threshold)
        value = metrics.score(self.metric, self.gold, [each.prediction for each in predicted])
        loss = sum(losses[term] / max(targets[term], 1) for term in losses)
        return Validated(value, loss, threshold, predicted, merit(self.metric, value, loss))

    def _predict(self, model: ModelWithHead, split: Split, **also: Any) -> list[Predicted]:
        """Returns the task's predictions for a split."""
        rows, examples, frozen = self.rows[split], self.encoded[split], self.frozen
        return predict(self.task, model, rows, examples, self.device, frozen=frozen, **also)

    def _start(self, key: TrialKey) -> ModelWithHead:
        """Returns the model before training."""
        return self.setup.adapted(self.method, seed=key.finetune_seed).to(self.device.torch)

    def _labelled(self, key: TrialKey) -> list[Row]:
        """Returns the rows that a trial learns from."""
        return self.setup.labelled(key, self.rows["train"])

    def _examples_in_budget(self, key: TrialKey) -> list[Example]:
        ids = {row["id"] for row in self._labelled(key)}
        return self.task.weighted([each for each in self.encoded["train"] if each.id in ids])


@torch.no_grad()
def _put(solution: Solution, model: ModelWithHead) -> None:
    """Puts a solution into the head."""
    linear = model.head.linear
    linear.weight.copy_(torch.from_numpy(solution.weight))
    linear.bias.copy_(torch.from_numpy(solution.bias))


def _temperature(predicted: Sequence[Predicted], gold: Sequence[str]) -> float | None:
    """Returns the temperature that fits the predictions of validation rows, if every row has one
    label with a probability."""
    scores = [each.scores for each in predicted if each.probability is not None and each.scores]
    has_scores = scores and len(scores) == len(predicted)
    return fitted_temperature(scores, gold) if has_scores else None


def _rounded(probability: float | None) -> float | None:
    return None if probability is None else round(probability, DECIMALS)


def _calibrated(predicted: Predicted, temperature: float | None) -> float | None:
    if temperature is None or predicted.scores is None:
        return None
    return _rounded(at_temperature(predicted.scores, temperature)[predicted.prediction])
