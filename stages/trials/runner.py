"""Trials of a checkpoint on a task: each trains with a method, or solves a probe, in every variant,
keeps the variant that is best on validation, and predicts the test inputs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from stages.core.artifacts import read_json
from stages.core.keys import TrialKey
from stages.core.params import Finetune
from stages.core.plans import FinetunePlan
from stages.evaluation import metrics
from stages.evaluation.calibration import fitted_temperature
from stages.evaluation.records import PredictionRecord
from stages.kinds._cells import Row
from stages.kinds._kind import SPLITS, Split
from stages.methods._method import (
    METHODS,
    Method,
    Predictor,
    PromptMethod,
    SolvedMethod,
    TrainedMethod,
)
from stages.models._heads import ModelWithHead
from stages.tasks._task import Example, Predicted, Task
from stages.tasks._writing import Writing
from stages.text.batch import Batch
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.finetuning import in_order_of_length
from stages.training.flops import Counter
from stages.training.meter import Meter
from stages.training.solver import solve
from stages.trials import kept
from stages.trials.inference_speed import measure_speed
from stages.trials.outcome import (
    TRIED_TYPE,
    Adapted,
    Fit,
    Outcome,
    Tried,
    at_edge,
    cost_record,
    lost_predictions,
    prediction_records,
    trial_record,
    try_records,
    validation_records,
)
from stages.trials.prediction import PREDICTED_AT_ONCE, predict
from stages.trials.search import DivergedAtEveryRate, search
from stages.trials.setup import TrialSetup
from stages.trials.validation import Validated, validate
from stages.trials.variants import Variant


def method_of(finetune: Finetune, name: str, variant: Variant | None = None) -> Method:
    """Returns the method of an entry of ``finetune.methods`` with the settings of a variant or,
    without a variant, with the first of the values that the entry lists for each setting."""
    entry = finetune.methods[name].method
    settings = {**entry, **variant.method} if variant else entry
    return METHODS.build(settings, where=f"finetune.methods.{name}.method")


def is_first_seed(finetune: Finetune, key: TrialKey) -> bool:
    """Returns whether the trial has the first fine-tuning seed, for which the speed of prediction
    is measured."""
    return key.finetune_seed == finetune.seeds[0]


def keeps_weights(finetune: Finetune, key: TrialKey) -> bool:
    """Returns whether the weights that the trial trained are kept."""
    keep = finetune.keep_weights
    return keep == "all" or (keep == "first_seed" and is_first_seed(finetune, key))


@dataclass(frozen=True)
class _Start:
    """The set-up, the method and the examples of one variant, common to all trials."""

    setup: TrialSetup  # of the variant
    method: Method
    encoded: dict[Split, list[Example]]  # in train, only rows that at least one trial uses
    shares_states: bool  # whether an earlier variant has the same states of a frozen backbone

    @property
    def task(self) -> Task:
        return self.setup.task

    def adapted(self, model: ModelWithHead) -> Adapted:
        """Returns ``model`` with the variant's task as its predictor."""
        return Adapted(model, self.task, self.encoded["test"], self.setup)


class TrialRunner:
    """Runs the trials ``keys``, all of one checkpoint, task, method and draw of the splits. Each
    trial tries all variants and keeps the one that is best on validation."""

    def __init__(self, plan: FinetunePlan, device: Device, *, keys: Sequence[TrialKey]) -> None:
        self.finetune, self.compute, self.device = plan.finetune, plan.compute, device
        first = keys[0]
        method, settings = first.method, plan.finetune
        self.setup = TrialSetup(
            first.checkpoint,
            first.task,
            max_tokens=settings.max_tokens,
            text_to_text=settings.methods[method].text_to_text,
        )
        self.metric = self.setup.task_record["metric"]
        self.account = read_json(self.setup.pretrained / "metrics.json")
        self.rows = {s: self.setup.rows(s, seed=first.finetune_seed) for s in SPLITS}
        # The rows that any of the trials uses: a frozen backbone computes their states once.
        needed = {row["id"] for key in keys for row in self._labelled(key)}
        self._encoded_rows = self.rows | {
            "train": [row for row in self.rows["train"] if row["id"] in needed]
        }
        self._starts = [*self._all_starts(self.setup.variants(settings, method), method)]
        # The pairs of a trial and a method that remembers the states of the trial's labelled rows.
        self._remembered = set[tuple[TrialKey, Method]]()
        self._as_pretrained = dict[int, tuple[ModelWithHead, list[Predicted]]]()

    def _all_starts(self, variants: Sequence[Variant], method: str) -> Iterator[_Start]:
        """Yields the start of each variant. Variants that differ in their heads alone share
        encoded rows, and variants with the same backbone share a method, which may remember the
        states of this backbone."""
        encoded = dict[str, dict[Split, list[Example]]]()
        methods = dict[str, Method]()
        for variant in variants:
            setup = self.setup.of(variant)
            by_head = setup.task.tried_by_head
            read = {k: value for k, value in variant.task.items() if k not in by_head}
            if (reading := json.dumps(read)) not in encoded:
                encoded[reading] = {
                    split: setup.task.encode(rows) for split, rows in self._encoded_rows.items()
                }
            shares_states = variant.backbone in methods
            if not shares_states:
                methods[variant.backbone] = method_of(self.finetune, method, variant)
            yield _Start(setup, methods[variant.backbone], encoded[reading], shares_states)

    def run(self, key: TrialKey, weights: Path, unfinished: Resumable) -> Outcome:
        """Runs one trial, or resumes it from ``unfinished``; its trained weights go to the folder
        ``weights`` if they are kept.

        Raises ValueError if training diverges at every learning rate of every variant.
        """
        meter = Meter(self.device)
        adapted, kept_try, tries = self._best(key, unfinished)
        # Without trained weights, the file only records the trial.
        if keeps_weights(self.finetune, key) or not kept_try.num_trained_params:
            kept.save(adapted.model, self._kept_trial(key, adapted, kept_try), weights)
        trial = trial_record(key, adapted, kept_try, tries, self.account)
        usage, speed = replace(meter.read(), wall_time_s=unfinished.wall_time_s()), None
        if is_first_seed(self.finetune, key):
            speed = measure_speed(
                adapted.predictor, adapted.model, self.rows["test"], adapted.examples, self.device
            )
        return Outcome(
            trial=trial,
            epochs=[epoch for each in tries for epoch in each.epochs],
            predictions=kept_try.predictions,
            cost=cost_record(key, usage, speed, self.device, self.compute),
            tries=try_records(key, kept_try, tries),
            lost_predictions=lost_predictions(kept_try, tries),
            validation=kept_try.validation,
        )

    def _best(self, key: TrialKey, unfinished: Resumable) -> tuple[Adapted, Tried, list[Tried]]:
        """Tries every variant; returns the model and the result of the variant that is best on
        validation (ties go to the first), and the results of all variants.

        Each of several variants has a state of its own in the ``unfinished`` trial, so that a trial
        that was interrupted resumes in the variant where it stopped.
        """
        if len(self._starts) == 1:
            adapted, tried = self._tried(key, self._starts[0], unfinished)
            if adapted is None:
                raise ValueError(tried.diverged)
            return adapted, tried, [tried]
        states = [unfinished.another(str(number)) for number, _ in enumerate(self._starts)]
        tries = list[Tried]()

        def best() -> int:
            return max(range(len(tries)), key=lambda number: tries[number].merit(self.metric))

        for number, (start, state) in enumerate(zip(self._starts, states, strict=True)):
            if (earlier := state.finished()) is not None:
                tries.append(TRIED_TYPE.validate_python(earlier[0]))
                continue
            adapted, tried = self._tried(key, start, state)
            tries.append(tried)
            is_best = adapted is not None and best() == number
            state.finish(adapted.model if adapted and is_best else None, [asdict(tried)])
            del adapted  # one model at a time is in memory
        if tries[best()].diverged:
            raise ValueError(tries[0].diverged)
        start = self._starts[best()]
        model = self._adapted(key, start)
        states[best()].restore(model)
        return start.adapted(model), tries[best()], tries

    def _tried(
        self, key: TrialKey, start: _Start, unfinished: Resumable
    ) -> tuple[Adapted | None, Tried]:
        """Returns the model of a variant (None if training diverged at every rate) and the result
        of the variant."""
        match start.method:
            case TrainedMethod():
                return self._trained(key, start, start.method, unfinished)
            case SolvedMethod():
                return self._solved(key, start, start.method)
            case _:
                return self._untrained(key, start)

    def _trained(
        self, key: TrialKey, start: _Start, method: TrainedMethod, unfinished: Resumable
    ) -> tuple[Adapted | None, Tried]:
        """Trains the model, restores the weights that are best on validation, and predicts the
        test inputs."""
        settings = self.finetune.methods[key.method].of(key.run).training
        assert settings is not None, "the root stage refuses a method that trains without it"
        try:
            trained = search(
                lambda: self._adapted(key, start),
                lambda model: self._validate(model, start),
                method,
                start.task,
                self._examples_in_budget(key, start),
                settings=settings,
                metric=self.metric,
                trial=key._asdict() | start.setup.variant.columns,
                seed=self.setup.seed_of(key.finetune_seed),
                device=self.device,
                unfinished=unfinished,
            )
        except DivergedAtEveryRate as error:
            return None, Tried(
                start.setup.variant,
                [],
                flops=error.flops,
                fit=Fit(num_tries=len(settings.rates)),
                epochs=error.epochs,
                diverged=str(error),
            )
        # Some weights are still frozen in the last epoch if there are fewer epochs than layers.
        frozen = method.frozen(trained.model, trained.fit.num_epochs - 1)
        num_trained = sum(p.numel() for p in trained.model.parameters() if p.requires_grad)
        num_trained -= sum(weight.numel() for weight in frozen)
        adapted, tried = self._fitted(key, start, trained.model, trained.kept, trained.fit)
        return adapted, replace(
            tried, num_trained_params=num_trained, flops=trained.flops, epochs=trained.epochs
        )

    def _solved(self, key: TrialKey, start: _Start, method: SolvedMethod) -> tuple[Adapted, Tried]:
        """Solves the probe and predicts the test inputs. The FLOPs of a backbone's states count for
        the first of the variants that share the backbone, even if a resumed trial computes the
        states again in a later variant."""
        examples, model = self._examples_in_budget(key, start), self._adapted(key, start)
        # Padding changes the last bit of a state. So the states of the labelled rows are computed
        # anew for each trial: results must not depend on which trials share a process.
        place = key, method
        batches = [*self._batches(examples, start)]
        validation = [*self._batches(start.encoded["validation"], start)]
        with Counter() as of_states:
            method.remember(model, batches, anew=place not in self._remembered)
        method.remember(model, chain(validation, self._batches(start.encoded["test"], start)))
        self._remembered.add(place)
        solution = solve(
            model,
            start.task,
            batches,
            validation,
            inverse_strengths=method.C,
            merit=lambda: metrics.merit(self.metric, self._validate(model, start).value),
            device=self.device,
        )
        fit = Fit(
            num_steps=solution.num_iterations,
            last_train_loss=solution.train_loss,
            converged=int(solution.converged),
            C=solution.C,
            num_tries=len(method.C),
            at_edge=at_edge(solution.C, method.C),
        )
        adapted, tried = self._fitted(key, start, model, self._validate(model, start), fit)
        return adapted, replace(
            tried,
            num_trained_params=sum(w.numel() for w in model.parameters() if w.requires_grad),
            flops=solution.flops + (0 if start.shares_states else of_states.total),
        )

    def _fitted(
        self, key: TrialKey, start: _Start, model: ModelWithHead, kept: Validated, fit: Fit
    ) -> tuple[Adapted, Tried]:
        """Fits a temperature on the validation rows and predicts the test rows with a fitted model.
        A writing task has no temperature: its predictions have no probability and take long."""
        validation, rows = list[Predicted](), self.rows["validation"]
        if not isinstance(start.task, Writing):
            predicted = predict(start.task, model, rows, start.encoded["validation"], self.device)
            validation = [each._replace(prediction=each.at(kept.threshold)) for each in predicted]
        scores = [p.scores for p in validation if p.probability is not None and p.scores]
        temperature = None
        if scores and len(scores) == len(validation):  # every row has one label, with a probability
            temperature = fitted_temperature(scores, self._gold)
        adapted = start.adapted(model)
        return adapted, Tried(
            start.setup.variant,
            self._predictions(key, adapted, threshold=kept.threshold, temperature=temperature),
            kept,
            fit=replace(fit, temperature=temperature),
            validation=validation_records(key, self._gold, validation),
        )

    def _validate(self, model: ModelWithHead, start: _Start) -> Validated:
        return validate(
            start.task,
            model,
            self.rows["validation"],
            start.encoded["validation"],
            metric=self.metric,
            device=self.device,
        )

    def _untrained(self, key: TrialKey, start: _Start) -> tuple[Adapted, Tried]:
        """Predicts with a method without training: prompts, or the pretrained model as it is."""
        if not isinstance(start.method, PromptMethod):
            model, predicted = self._unchanged(key, start)
            records = prediction_records(key, self.rows["test"], predicted)
            return start.adapted(model), Tried(start.setup.variant, records)
        model, predictor = self._adapted(key, start), self._prompts(key, start.method)
        examples = predictor.encode(self.rows["test"])
        predictions = self._predictions(key, Adapted(model, predictor, examples, start.setup))
        # Speed is measured with a new predictor, which does not remember scores of these rows.
        unused = self._prompts(key, method_of(self.finetune, key.method))
        tried = Tried(start.setup.variant, predictions)
        return Adapted(model, unused, examples, start.setup), tried

    def _unchanged(self, key: TrialKey, start: _Start) -> tuple[ModelWithHead, list[Predicted]]:
        """Returns the pretrained model and its predictions for a task without a head. They are
        computed once or, in a run from scratch, once for each draw of weights."""
        seed = key.finetune_seed if self.setup.from_scratch else 0  # no weights are drawn
        if seed not in self._as_pretrained:
            model = start.setup.headed(seed=seed)
            model.requires_grad_(False).to(self.device.torch)
            test = start.encoded["test"]
            predicted = predict(start.task, model, self.rows["test"], test, self.device)
            self._as_pretrained[seed] = model, predicted
        return self._as_pretrained[seed]

    def _prompts(self, key: TrialKey, method: Method) -> Predictor:
        """Returns the predictor of a prompt method, made from the trial's labelled rows."""
        where = f"finetune.methods.{key.method}.method"
        seed = key.finetune_seed
        return self.setup.predictor(method, self._labelled(key), seed=seed, where=where)

    def _predictions(
        self,
        key: TrialKey,
        adapted: Adapted,
        *,
        threshold: float = 0.0,
        temperature: float | None = None,
    ) -> list[PredictionRecord]:
        """Returns a prediction for each test row, in the order of the rows."""
        rows = self.rows["test"]
        predicted = predict(adapted.predictor, adapted.model, rows, adapted.examples, self.device)
        chosen = [each._replace(prediction=each.at(threshold)) for each in predicted]
        return prediction_records(key, rows, chosen, temperature=temperature)

    @cached_property
    def _gold(self) -> list[str]:
        """The correct answers of the validation rows."""
        return [self.setup.task.kind.answer(row) for row in self.rows["validation"]]

    def _adapted(self, key: TrialKey, start: _Start) -> ModelWithHead:
        """Returns the model before training."""
        model = start.setup.adapted(start.method, seed=key.finetune_seed)
        return model.to(self.device.torch)

    def _batches(self, examples: Iterable[Example], start: _Start) -> Iterator[Batch]:
        for part in in_order_of_length(list(examples), batch_examples=PREDICTED_AT_ONCE):
            yield start.task.collate(part, rngs=[]).to(self.device.torch)

    def _labelled(self, key: TrialKey) -> list[Row]:
        """Returns the rows that a trial learns from."""
        return self.setup.labelled(self.rows["train"], key.label_budget, seed=key.finetune_seed)

    def _examples_in_budget(self, key: TrialKey, start: _Start) -> list[Example]:
        ids = {row["id"] for row in self._labelled(key)}
        return start.task.weighted([e for e in start.encoded["train"] if e.id in ids])

    def _kept_trial(self, key: TrialKey, adapted: Adapted, tried: Tried) -> kept.KeptTrial:
        entry, setup = self.finetune.methods[key.method], adapted.setup
        return kept.KeptTrial(
            **key._asdict(),
            component={**entry.method, **tried.variant.method},
            task_settings=tried.variant.task,
            initial_weights=tried.variant.initial_weights,
            text_to_text=entry.text_to_text,
            max_tokens=setup.max_tokens,
            precision=self.device.precision,
            lr=tried.fit.lr,
            threshold=tried.threshold,
            drawn_weights=kept.drawn_weights(setup, adapted.model, seed=key.finetune_seed),
            **kept.fingerprints(setup),
        )
