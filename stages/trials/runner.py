"""Trials of a checkpoint on a task: each trains with a method, or solves a probe, and predicts the
test inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from stages.core.artifacts import Json, read_json
from stages.core.keys import TrialKey
from stages.core.params import Finetune
from stages.core.plans import FinetunePlan
from stages.evaluation import metrics
from stages.evaluation.calibration import fitted_temperature
from stages.evaluation.records import EpochRecord
from stages.methods._method import (
    METHODS,
    Method,
    Predictor,
    PromptMethod,
    Solution,
    SolvedMethod,
    TrainedMethod,
)
from stages.models._heads import ModelWithHead
from stages.tasks._cells import Row
from stages.tasks._kind import SPLITS
from stages.tasks._task import Example, Predicted
from stages.tasks._writing import Writing
from stages.training.device import Device
from stages.training.flops import counting
from stages.training.meter import Meter
from stages.trials import kept
from stages.trials.frozen import FrozenStates
from stages.trials.inference_speed import measure_speed
from stages.trials.outcome import (
    Outcome,
    cost_record,
    prediction_records,
    trial_record,
    validation_records,
)
from stages.trials.prediction import predict
from stages.trials.search import at_edge, search
from stages.trials.setup import TrialSetup
from stages.trials.validation import Validated, validate


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


@dataclass(frozen=True)
class _Adapted:
    """A model that a method adapted, with its predictor."""

    model: ModelWithHead
    predictor: Predictor
    examples: Sequence[Any]  # of the test rows, as the predictor encodes them
    validated: Validated | None = None  # None if nothing is fitted
    fit: Json = field(default_factory=dict)  # fields of ``TrialRecord``
    epochs: list[EpochRecord] = field(default_factory=list)
    predicted: list[Predicted] | None = None  # of the test rows, if they are known


class TrialRunner:
    """Runs the trials ``keys``, all of one checkpoint, task, method and draw of the splits."""

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
        if isinstance(self.method, SolvedMethod):
            # States of new texts then equal those that the head was fitted to.
            self.device = replace(device, precision="float32")
            self.frozen = FrozenStates(self.task, self.device)
        self.account = read_json(self.setup.pretrained / "metrics.json")
        self.rows = {s: self.setup.rows(s, seed=first.finetune_seed) for s in SPLITS}
        needed = {row["id"] for key in keys for row in self._labelled(key)}
        used = self.rows | {"train": [row for row in self.rows["train"] if row["id"] in needed]}
        self.encoded = {split: self.task.encode(rows) for split, rows in used.items()}
        self._as_pretrained = dict[int, tuple[ModelWithHead, list[Predicted]]]()

    def run(self, key: TrialKey, weights: Path) -> Outcome:
        """Runs one trial; its trained weights go to the folder ``weights`` if they are kept.

        Raises ValueError if training diverges at every learning rate.
        """
        meter = Meter(self.device)
        match self.method:
            case TrainedMethod():
                adapted = self._trained(key, self.method)
            case SolvedMethod():
                adapted = self._solved(key, self.method)
            case PromptMethod():
                adapted = self._prompted(key)
            case _:
                adapted = self._unchanged(key)
        threshold = adapted.validated.threshold if adapted.validated else 0.0
        validation, temperature = self._validation(adapted, threshold)
        predicted = adapted.predicted or predict(
            adapted.predictor,
            adapted.model,
            self.rows["test"],
            adapted.examples,
            self.device,
            frozen=self.frozen,
        )
        predicted = [each._replace(prediction=each.at(threshold)) for each in predicted]
        fit = adapted.fit | {"temperature": temperature}
        if adapted.validated:
            fit["validation_score"] = adapted.validated.value
        trial = trial_record(key, self.setup, adapted.model, self.account, fit)
        # Without trained weights, the file only records the trial.
        if keeps_weights(self.finetune, key) or not trial.num_trained_params:
            kept.save(adapted.model, self._kept_trial(key, adapted, threshold), weights)
        usage, speed = meter.read(), None
        if is_first_seed(self.finetune, key):
            speed = measure_speed(
                adapted.predictor, adapted.model, self.rows["test"], adapted.examples, self.device
            )
        return Outcome(
            trial=trial,
            epochs=adapted.epochs,
            predictions=prediction_records(key, self.rows["test"], predicted, temperature),
            validation=validation_records(key, self._gold, validation),
            cost=cost_record(key, usage, speed, self.device, self.compute),
        )

    def _trained(self, key: TrialKey, method: TrainedMethod) -> _Adapted:
        """Trains the model and restores the weights that are best on validation."""
        settings = self.entry.of(key.run).training
        assert settings is not None, "the root stage refuses a method that trains without it"
        searched = search(
            lambda: self._start(key),
            self._validate,
            method,
            self.task,
            self._examples_in_budget(key),
            settings=settings,
            metric=self.metric,
            key=key,
            seed=self.setup.seed_of(key.finetune_seed),
            device=self.device,
        )
        return _Adapted(
            searched.model,
            self.task,
            self.encoded["test"],
            searched.kept,
            searched.fit,
            searched.epochs,
        )

    def _solved(self, key: TrialKey, method: SolvedMethod) -> _Adapted:
        """Solves the probe at each C and keeps the C that is best on validation."""
        assert self.frozen is not None
        examples, model = self._examples_in_budget(key), self._start(key)
        with counting() as counter:
            self.frozen.compute(model, examples, anew=True)
        candidates = list[tuple[tuple[float, float], Solution, Validated]]()
        solutions = method.solutions(
            *self.frozen.labelled(examples), num_outputs=model.head.linear.out_features
        )
        for solution in solutions:
            _put(solution, model)
            validated = self._validate(model)
            merit = metrics.merit(self.metric, validated.value), -validated.loss
            candidates.append((merit, solution, validated))
        _, best, validated = max(candidates, key=lambda each: each[0])
        _put(best, model)
        fit = {
            "num_trained_params": sum(weight.numel() for weight in model.head.parameters()),
            "finetune_flops": counter.get_total_flops(),
            "num_steps": sum(solution.num_iterations for _, solution, _ in candidates),
            "converged": int(all(solution.converged for _, solution, _ in candidates)),
            "C": best.C,
            "num_tries": len(candidates),
            "at_edge": at_edge(best.C, method.C),
        }
        return _Adapted(model, self.task, self.encoded["test"], validated, fit)

    def _prompted(self, key: TrialKey) -> _Adapted:
        """Predicts with prompts. Speed is then measured with a new predictor, which does not
        remember scores of these rows."""
        model, predictor = self._start(key), self._prompts(key, self.method)
        rows, examples = self.rows["test"], predictor.encode(self.rows["test"])
        predicted = predict(predictor, model, rows, examples, self.device)
        unused = self._prompts(key, method_of(self.finetune, key.method))
        return _Adapted(model, unused, examples, predicted=predicted)

    def _prompts(self, key: TrialKey, method: Method) -> Predictor:
        where, seed = f"finetune.methods.{key.method}.method", key.finetune_seed
        return self.setup.predictor(method, self._labelled(key), seed=seed, where=where)

    def _unchanged(self, key: TrialKey) -> _Adapted:
        """Predicts with the pretrained model, for a task without a head; once or, in a run from
        scratch, once for each draw of weights."""
        seed = key.finetune_seed if self.setup.from_scratch else 0  # no weights are drawn
        if seed not in self._as_pretrained:
            model = self.setup.headed(seed=seed)
            model.requires_grad_(False).to(self.device.torch)
            rows, examples = self.rows["test"], self.encoded["test"]
            predicted = predict(self.task, model, rows, examples, self.device)
            self._as_pretrained[seed] = model, predicted
        model, predicted = self._as_pretrained[seed]
        return _Adapted(model, self.task, self.encoded["test"], predicted=predicted)

    def _validate(self, model: ModelWithHead) -> Validated:
        return validate(
            self.task,
            model,
            self.rows["validation"],
            self.encoded["validation"],
            metric=self.metric,
            device=self.device,
            frozen=self.frozen,
        )

    def _validation(
        self, adapted: _Adapted, threshold: float
    ) -> tuple[list[Predicted], float | None]:
        """Returns the predictions of a fitted model for the validation rows, and the temperature
        that fits them, if every row has one label with a probability. A writing task has none: its
        predictions have no probability and take long."""
        if adapted.validated is None or isinstance(self.task, Writing):
            return [], None
        rows, examples = self.rows["validation"], self.encoded["validation"]
        model = adapted.model
        predicted = predict(self.task, model, rows, examples, self.device, frozen=self.frozen)
        predicted = [each._replace(prediction=each.at(threshold)) for each in predicted]
        scores = [p.scores for p in predicted if p.probability is not None and p.scores]
        has_scores = scores and len(scores) == len(predicted)
        return predicted, fitted_temperature(scores, self._gold) if has_scores else None

    @cached_property
    def _gold(self) -> list[str]:
        """The correct answers of the validation rows."""
        return [self.task.kind.answer(row) for row in self.rows["validation"]]

    def _start(self, key: TrialKey) -> ModelWithHead:
        """Returns the model before training."""
        return self.setup.adapted(self.method, seed=key.finetune_seed).to(self.device.torch)

    def _labelled(self, key: TrialKey) -> list[Row]:
        """Returns the rows that a trial learns from."""
        return self.setup.labelled(self.rows["train"], key.label_budget, seed=key.finetune_seed)

    def _examples_in_budget(self, key: TrialKey) -> list[Example]:
        ids = {row["id"] for row in self._labelled(key)}
        return self.task.weighted([each for each in self.encoded["train"] if each.id in ids])

    def _kept_trial(self, key: TrialKey, adapted: _Adapted, threshold: float) -> kept.KeptTrial:
        seed = key.finetune_seed
        return kept.KeptTrial(
            **key._asdict(),
            component=self.entry.method,
            text_to_text=self.entry.text_to_text,
            max_tokens=self.setup.max_tokens,
            precision=self.device.precision,
            threshold=threshold,
            drawn_weights=kept.drawn_weights(self.setup, adapted.model, seed=seed),
            **kept.fingerprints(self.setup),
        )


@torch.no_grad()
def _put(solution: Solution, model: ModelWithHead) -> None:
    """Puts a solution into the head."""
    linear = model.head.linear
    linear.weight.copy_(torch.from_numpy(solution.weight))
    linear.bias.copy_(torch.from_numpy(solution.bias))
