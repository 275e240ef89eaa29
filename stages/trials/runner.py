"""Trials of a pretrained run on a task: each trains with a method, or solves a probe, keeps
what is best on validation, and predicts the test inputs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

from stages.core.artifacts import read_json, read_jsonl
from stages.core.params import Adaptation, Params
from stages.evaluation import metrics
from stages.kinds._cells import Row
from stages.kinds._kind import SPLITS
from stages.methods._method import (
    METHODS,
    Method,
    Predictor,
    PromptMethod,
    SolvedMethod,
    TrainedMethod,
)
from stages.models._heads import ModelWithHead
from stages.tasks._task import Example, Predicted
from stages.text.batch import Batch
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.finetuning import Encoded, in_order_of_length
from stages.training.meter import Meter
from stages.training.solver import solve
from stages.trials import kept
from stages.trials.inference_speed import measure_speed
from stages.trials.outcome import (
    Adapted,
    Fit,
    Outcome,
    TrialKey,
    at_edge,
    cost_record,
    prediction_records,
    trial_record,
)
from stages.trials.prediction import PREDICTED_AT_ONCE, predict
from stages.trials.search import search
from stages.trials.setup import TrialSetup
from stages.trials.validation import Validated, validate


def method_of(params: Params, name: str) -> Method:
    """The method of an entry of ``finetune.methods``."""
    entry = params.finetune.methods[name]
    return METHODS.build(entry.method, where=f"finetune.methods.{name}.method")


def is_first_seed(params: Params, key: TrialKey) -> bool:
    """Whether the speed of prediction is measured with this trial, for all seeds."""
    return key.finetune_seed == params.finetune.seeds[0]


def keeps_weights(params: Params, key: TrialKey) -> bool:
    """Whether the weights that the trial trained are kept."""
    keep = params.finetune.keep_weights
    return keep == "all" or (keep == "first_seed" and is_first_seed(params, key))


class TrialRunner:
    """Runs the trials ``keys`` of a pretrained run on the encoded examples of a task."""

    def __init__(
        self,
        params: Params,
        run_key: str,
        task_key: str,
        device: Device,
        *,
        keys: Sequence[TrialKey],
        text_to_text: bool = False,
    ) -> None:
        self.params, self.device = params, device
        self.setup = TrialSetup(
            run_key, task_key, max_tokens=params.finetune.max_tokens, text_to_text=text_to_text
        )
        self.task, self.metric = self.setup.task, self.setup.task_record["metric"]
        self.account = read_json(self.setup.pretrained / "metrics.json")
        self.rows = {s: read_jsonl(self.setup.examples / f"{s}.jsonl") for s in SPLITS}
        # What any of the trials learns from: a frozen backbone computes its states once.
        needed = {row["id"] for key in keys for row in self._labelled(key)}
        self.train = self.task.encode([row for row in self.rows["train"] if row["id"] in needed])
        self.validation = self.task.encode(self.rows["validation"])
        self.test = self.task.encode(self.rows["test"])
        self._as_pretrained = dict[int, tuple[ModelWithHead, list[Predicted]]]()

    def run(self, key: TrialKey, method: Method, weights: Path, unfinished: Resumable) -> Outcome:
        """Run one trial, or go on with what is ``unfinished`` of it; its trained weights go to the
        folder ``weights`` if they are kept.

        Raises ValueError if training diverges at every learning rate.
        """
        meter = Meter(self.device)
        adapted = self._adapted_by(key, method, unfinished)
        is_fitted = bool(adapted.num_trained_params)
        # Without trained weights the file says which trial it is.
        if keeps_weights(self.params, key) or not is_fitted:
            kept.save(adapted.model, self._kept_trial(key, adapted), weights)
        trial = trial_record(key, adapted, self.setup, self.account)
        usage, speed = replace(meter.read(), wall_time_s=unfinished.wall_time_s()), None
        if is_first_seed(self.params, key):
            speed = measure_speed(
                adapted.predictor, adapted.model, self.rows["test"], adapted.examples, self.device
            )
        return Outcome(
            trial=trial,
            epochs=adapted.epochs,
            predictions=prediction_records(key, self.rows["test"], adapted.predictions),
            cost=cost_record(key, usage, speed, self.device, self.params.compute),
        )

    def _adapted_by(self, key: TrialKey, method: Method, unfinished: Resumable) -> Adapted:
        match method:
            case TrainedMethod():
                return self._trained(key, method, unfinished)
            case SolvedMethod():
                return self._solved(key, method)
            case _:
                return self._untrained(key, method)

    def _trained(self, key: TrialKey, method: TrainedMethod, unfinished: Resumable) -> Adapted:
        """Train, restore the weights that are best on validation, predict the test inputs."""
        found = search(
            lambda: self._start(key, method),
            self._validate,
            method,
            self.task,
            self._examples_in_budget(key),
            settings=self._training_of(key),
            metric=self.metric,
            trial={"run": self.setup.run_key, "task": self.setup.task_key, **asdict(key)},
            seed=self.setup.seed_of(key.finetune_seed),
            device=self.device,
            unfinished=unfinished,
        )
        # In the last epoch a method may still have frozen weights: fewer epochs than layers.
        frozen = method.frozen(found.model, found.fit.num_epochs - 1)
        num_trained = sum(p.numel() for p in found.model.parameters() if p.requires_grad)
        num_trained -= sum(weight.numel() for weight in frozen)
        return Adapted(
            found.model,
            self.task,
            self.test,
            self._predict(found.model, self.task, self.test, threshold=found.threshold),
            num_trained_params=num_trained,
            flops=found.flops,
            fit=found.fit,
            threshold=found.threshold,
            epochs=found.epochs,
        )

    def _solved(self, key: TrialKey, method: SolvedMethod) -> Adapted:
        """Solve, predict the test inputs."""
        examples, model = self._examples_in_budget(key), self._start(key, method)
        batches = [*self._batches(examples)]
        solution = solve(
            model,
            self.task,
            batches,
            [*self._batches(self.validation)],
            inverse_strengths=method.C,
            merit=lambda: metrics.merit(self.metric, self._validate(model).value),
            device=self.device,
        )
        threshold = self._validate(model).threshold
        predictions = self._predict(model, self.task, self.test, threshold=threshold)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        states = sum(model.backbone.uncached.flops(batch) for batch in batches)
        return Adapted(
            model,
            self.task,
            self.test,
            predictions,
            num_trained_params=sum(weight.numel() for weight in weights),
            flops=states + solution.flops,
            fit=Fit(
                num_steps=solution.num_iterations,
                last_train_loss=solution.train_loss,
                converged=int(solution.converged),
                C=solution.C,
                num_tries=len(method.C),
                at_edge=at_edge(solution.C, method.C),
            ),
            threshold=threshold,
        )

    def _start(self, key: TrialKey, method: TrainedMethod | SolvedMethod) -> ModelWithHead:
        """The adapted model before training."""
        model = self._adapted(key, method)
        if isinstance(method, SolvedMethod):
            # The padding of a batch changes the last bit of states. So those of the labelled rows
            # are computed anew for each trial, as if it were alone, and the others apart.
            method.remember(model, self._batches(self._examples_in_budget(key)), anew=True)
            method.remember(model, chain(*map(self._batches, (self.validation, self.test))))
        return model

    def _validate(self, model: ModelWithHead) -> Validated:
        rows = self.rows["validation"]
        return validate(
            self.task, model, rows, self.validation, metric=self.metric, device=self.device
        )

    def _untrained(self, key: TrialKey, method: Method) -> Adapted:
        """A method without training: prompts, or the pretrained model as it is."""
        if not isinstance(method, PromptMethod):
            model, predictions = self._unchanged(key)
            return Adapted(model, self.task, self.test, predictions)
        model, predictor = self._adapted(key, method), self._prompts(key, method)
        examples = predictor.encode(self.rows["test"])
        predictions = self._predict(model, predictor, examples)
        # Another method of the same entry remembers no scores, which speed is measured without.
        unused = self._prompts(key, method_of(self.params, key.method))
        return Adapted(model, unused, examples, predictions)

    def _unchanged(self, key: TrialKey) -> tuple[ModelWithHead, list[Predicted]]:
        """The pretrained model and its predictions, for a task without a head: computed once, or
        for each draw of weights from scratch."""
        seed = key.finetune_seed if self.setup.from_scratch else 0  # a head has no weights
        if seed not in self._as_pretrained:
            model = self.setup.headed(seed=seed)
            model.requires_grad_(False).to(self.device.torch)
            self._as_pretrained[seed] = model, self._predict(model, self.task, self.test)
        return self._as_pretrained[seed]

    def _prompts(self, key: TrialKey, method: Method) -> Predictor:
        """The predictor of the method, from the labelled rows of the trial."""
        where = f"finetune.methods.{key.method}.method"
        seed = key.finetune_seed
        return self.setup.predictor(method, self._labelled(key), seed=seed, where=where)

    def _predict(
        self,
        model: ModelWithHead,
        predictor: Predictor,
        examples: Sequence[Encoded],
        *,
        threshold: float = 0.0,
    ) -> list[Predicted]:
        """A prediction for each test row, in their order."""
        predicted = predict(predictor, model, self.rows["test"], examples, self.device)
        return [each._replace(prediction=each.at(threshold)) for each in predicted]

    def _adapted(self, key: TrialKey, method: Method) -> ModelWithHead:
        return self.setup.adapted(method, seed=key.finetune_seed).to(self.device.torch)

    def _batches(self, examples: Iterable[Example]) -> Iterator[Batch]:
        for part in in_order_of_length(list(examples), batch_examples=PREDICTED_AT_ONCE):
            yield self.task.collate(part, rngs=[]).to(self.device.torch)

    def _labelled(self, key: TrialKey) -> list[Row]:
        """The rows that a trial learns from."""
        return self.setup.labelled(self.rows["train"], key.label_budget, seed=key.finetune_seed)

    def _examples_in_budget(self, key: TrialKey) -> list[Example]:
        ids = {row["id"] for row in self._labelled(key)}
        return [example for example in self.train if example.id in ids]

    def _training_of(self, key: TrialKey) -> Adaptation:
        settings = self.params.finetune.methods[key.method].training
        assert settings is not None, "check_params refuses a method that trains without"
        return settings

    def _kept_trial(self, key: TrialKey, adapted: Adapted) -> kept.KeptTrial:
        entry = self.params.finetune.methods[key.method]
        return kept.KeptTrial(
            run=self.setup.run_key,
            task=self.setup.task_key,
            method=key.method,
            label_budget=key.label_budget,
            finetune_seed=key.finetune_seed,
            component=entry.method,
            text_to_text=entry.text_to_text,
            max_tokens=self.setup.max_tokens,
            precision=self.device.precision,
            lr=adapted.fit.lr,
            threshold=adapted.threshold,
            drawn_weights=kept.drawn_weights(self.setup, adapted.model, seed=key.finetune_seed),
            **kept.fingerprints(self.setup),
        )
