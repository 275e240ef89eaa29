"""Trials of a pretrained run on a task: each trains by a method, keeps the epoch that is best on
validation, and predicts the test inputs."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from stages.core.artifacts import read_json, read_jsonl
from stages.core.params import Params
from stages.evaluation import metrics, records
from stages.kinds._kind import SPLITS, Split, rows_in_budget
from stages.methods._method import METHODS, Method, Predictor
from stages.models._heads import ModelWithHead
from stages.tasks._task import Example
from stages.training.checkpoint import WEIGHTS
from stages.training.device import Device, side_by_side
from stages.training.finetuning import FinetuningData, in_order_of_length
from stages.training.loop import Diverged, Step, train
from stages.training.meter import Meter, Usage, hardware
from stages.trials import kept
from stages.trials.inference_speed import measured
from stages.trials.no_answer import best_threshold
from stages.trials.prediction import PREDICTED_AT_ONCE, predict
from stages.trials.setup import TrialSetup


@dataclass(frozen=True)
class TrialKey:
    """Which trial of this run and task."""

    method: str
    label_budget: str
    finetune_seed: int


@dataclass(frozen=True)
class Outcome:
    """What a trial leaves behind, but for its weights."""

    trial: records.TrialRecord
    epochs: list[records.EpochRecord]
    predictions: list[records.PredictionRecord]
    cost: records.CostRecord


class TrialRunner:
    """A pretrained run and the encoded examples of a task, on which trials are run."""

    def __init__(
        self,
        params: Params,
        run_key: str,
        task_key: str,
        device: Device,
        *,
        text_to_text: bool = False,
    ) -> None:
        self.params, self.run_key, self.task_key, self.device = params, run_key, task_key, device
        self.setup = TrialSetup(
            run_key, task_key, max_tokens=params.finetune.max_tokens, text_to_text=text_to_text
        )
        self.task = self.setup.task
        self.account = read_json(self.setup.pretrained / "metrics.json")
        self.checkpoint = self.setup.pretrained / WEIGHTS
        self.rows = {s: read_jsonl(self.setup.examples / f"{s}.jsonl") for s in SPLITS}
        self.train = self._encode("train", limit=self._largest_budget())
        self.validation = self._encode("validation")
        self.test = self._encode("test")

    def run(self, cell: TrialKey, method: Method, weights: Path) -> Outcome:
        """One trial: train, take the best weights on validation, predict the test inputs."""
        if not method.trains:
            return self._run_untrained(cell, method, weights)
        meter = Meter(self.device)
        examples = self._first(self._budget(cell.label_budget))
        model, best, flops = self._search(cell, method, examples)
        settings = self.params.finetune.methods[cell.method].training
        assert settings is not None, "check_params has seen to it"
        waiting = method.frozen(model, settings.num_epochs - 1)  # for an epoch that never came
        num_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        num_trained -= sum(weight.numel() for weight in waiting)
        predictions = self.predict(model, self.task, self.test, threshold=best.threshold)
        if self._keeps(cell):
            trial = self._kept_trial(cell, lr=best.lr, threshold=best.threshold)
            kept.save(model, trial, weights)
        if method.freezes_backbone:
            flops += sum(model.backbone.uncached.flops(batch) for batch in self._batches(examples))
        trial = self._trial(
            cell,
            num_trained,
            flops,
            lr=best.lr,
            epoch=best.epoch,
            weights_bytes=kept.weights_bytes(model, self.checkpoint),
        )
        cost = self._cost(cell, meter.read(), model, self.task, self.test)
        return self._outcome(trial, cell, best.epochs, predictions, cost)

    def _run_untrained(self, cell: TrialKey, method: Method, weights: Path) -> Outcome:
        """One trial of a method that trains nothing: of no epochs, weights or FLOPs of training."""
        meter = Meter(self.device)
        if method.prompts:
            model = self._model(cell, method)
            predictor = self._predictor(cell, method)
            examples = predictor.encode(self.rows["test"])
            predictions = self.predict(model, predictor, examples)
            # One that remembers none of these prompts.
            predictor = self._predictor(cell, method_of(self.params, cell.method))
        else:
            model, predictions = self._as_pretrained
            predictor, examples = self.task, self.test
        # Which trial it is, and no weights.
        kept.save(model, self._kept_trial(cell, lr=0.0, threshold=0.0), weights)
        trial = self._trial(
            cell, 0, 0, lr=0.0, epoch=0, weights_bytes=self.checkpoint.stat().st_size
        )
        cost = self._cost(cell, meter.read(), model, predictor, examples)
        return self._outcome(trial, cell, [], predictions, cost)

    @cached_property
    def _as_pretrained(self) -> tuple[ModelWithHead, list[str]]:
        """The run as it is and its predictions of a task that needs no head."""
        model = self.setup.headed(seed=0)  # of a head that has no weights
        model.requires_grad_(False).to(self.device.torch)
        return model, self.predict(model, self.task, self.test)

    def _predictor(self, cell: TrialKey, method: Method) -> Predictor:
        """The method's own, from the labelled rows of the trial."""
        rows = self.rows["train"][: self._budget(cell.label_budget)]
        return self.setup.predictor(
            method, rows, seed=cell.finetune_seed, where=f"finetune.methods.{cell.method}.method"
        )

    def _outcome(
        self,
        trial: records.TrialRecord,
        cell: TrialKey,
        epochs: list[records.EpochRecord],
        predictions: list[str],
        cost: records.CostRecord,
    ) -> Outcome:
        return Outcome(
            trial=trial,
            epochs=epochs,
            predictions=[
                records.PredictionRecord(**asdict(cell), id=row["id"], prediction=prediction)
                for row, prediction in zip(self.rows["test"], predictions, strict=True)
            ],
            cost=cost,
        )

    def _cost(
        self,
        cell: TrialKey,
        usage: Usage,
        model: ModelWithHead,
        predictor: Predictor,
        examples: list[Any],
    ) -> records.CostRecord:
        """What the trial took; with the first seed also how fast its model predicts."""
        speed = None
        if cell.finetune_seed == self.params.finetune.seeds[0]:
            speed = measured(predictor, model, self.rows["test"], examples, self.device)
        return records.CostRecord(
            **asdict(cell),
            wall_time_s=round(usage.wall_time_s, 3),
            peak_memory_bytes=usage.peak_memory_bytes,
            processor_time_s=round(usage.processor_time_s, 3),
            gpu_energy_j=usage.gpu_energy_j,
            latency_s=round(speed.latency_s, 6) if speed else None,
            texts_per_s=round(speed.texts_per_s, 1) if speed else None,
            tokens_per_s=round(speed.tokens_per_s, 1) if speed else None,
            hardware=hardware(self.device),
            threads=self.device.threads,
            side_by_side=side_by_side(self.params.compute),
        )

    def _search(
        self, cell: TrialKey, method: Method, examples: list[Example]
    ) -> tuple[ModelWithHead, "_Best", int]:
        """Train from the same beginning at each learning rate; the model with the weights that
        were best on validation, and the operations of all. Training that diverges ends there.

        Raises ValueError if it does so at every rate before an epoch has ended.
        """
        settings = self.params.finetune.methods[cell.method].training
        assert settings is not None, "check_params has seen to it"
        data = FinetuningData(
            examples, self.task, batch_examples=settings.batch_examples, seed=cell.finetune_seed
        )
        model, best, flops = None, _Best(self, cell), 0
        for lr in settings.rates:
            model = self._model(cell, method)
            # Test inputs by themselves: their lengths would change the padding of the others, and
            # so the last bit of what a method remembers of them.
            seen = (self.train + self.validation, self.test)
            method.before_training(model, chain.from_iterable(map(self._batches, seen)))
            try:
                history = train(
                    model,
                    self.task,
                    data,
                    settings.at(lr),
                    num_steps=settings.num_epochs * data.steps_per_epoch,
                    seed=cell.finetune_seed,
                    device=self.device,
                    frozen=partial(_frozen, method, model, data.steps_per_epoch),
                    after_step=_Watch(best, model, lr, data.steps_per_epoch).after_step,
                )
            except Diverged as error:
                history = error.history
                if not best.epochs and lr == settings.rates[-1]:
                    raise ValueError(f"finetune.methods.{cell.method}.training.{error}") from None
            flops += sum(int(row["flops"]) for row in history)
        assert model is not None, "there is at least one rate"
        best.restore(model)  # the rates' models differ in what was trained alone
        return model, best, flops

    def predict(
        self,
        model: ModelWithHead,
        predictor: Predictor,
        examples: list[Any],
        *,
        threshold: float = 0.0,
    ) -> list[str]:
        """A prediction for each test row, in their order."""
        predicted = predict(predictor, model, self.rows["test"], examples, self.device)
        return [each.at(threshold) for each in predicted]

    def score(self, model: ModelWithHead) -> tuple[float, float]:
        """The task's metric on the validation rows, and the threshold that is best for it there."""
        rows, metric = self.rows["validation"], self.setup.task_record["metric"]
        predicted = predict(self.task, model, rows, self.validation, self.device)
        gold = [*map(self.task.kind.answer, rows)]
        threshold = best_threshold(metric, gold, predicted)
        return metrics.score(metric, gold, [each.at(threshold) for each in predicted]), threshold

    def _model(self, cell: TrialKey, method: Method) -> ModelWithHead:
        return self.setup.adapted(method, seed=cell.finetune_seed).to(self.device.torch)

    def _encode(self, split: Split, *, limit: int | None = None) -> list[Example]:
        return self.task.encode(self.rows[split][:limit])

    def _batches(self, examples: Iterable[Example]) -> Iterator[Any]:
        for part in in_order_of_length(list(examples), batch_examples=PREDICTED_AT_ONCE):
            yield self.task.collate(part, rngs=[]).to(self.device.torch)

    def _budget(self, label_budget: str) -> int:
        return rows_in_budget(label_budget, len(self.rows["train"]), task=self.task_key)

    def _first(self, num_labels: int) -> list[Example]:
        """The examples of the first rows of train."""
        ids = {row["id"] for row in self.rows["train"][:num_labels]}
        return [example for example in self.train if example.id in ids]

    def _largest_budget(self) -> int:
        return max(self._budget(str(b)) for b in self.params.finetune.label_budgets)

    def _keeps(self, cell: TrialKey) -> bool:
        keep = self.params.finetune.keep_weights
        first = cell.finetune_seed == self.params.finetune.seeds[0]
        return keep == "all" or (keep == "first_seed" and first)

    def _kept_trial(self, cell: TrialKey, *, lr: float, threshold: float) -> kept.KeptTrial:
        return kept.KeptTrial(
            run=self.run_key,
            task=self.task_key,
            method=cell.method,
            label_budget=cell.label_budget,
            finetune_seed=cell.finetune_seed,
            component=self.params.finetune.methods[cell.method].method,
            text_to_text=self.params.finetune.methods[cell.method].text_to_text,
            max_tokens=self.setup.max_tokens,
            precision=self.device.precision,
            lr=lr,
            threshold=threshold,
            **kept.fingerprints(self.setup),
        )

    def _trial(
        self,
        cell: TrialKey,
        num_trained: int,
        flops: int,
        *,
        lr: float,
        epoch: int,
        weights_bytes: int,
    ) -> records.TrialRecord:
        record = self.setup.run_record
        return records.TrialRecord(
            run=self.run_key,
            architecture=record["architecture"],
            objective=record["objective"],
            task=self.task_key,
            corpus=record["corpus"],
            pretrain_seed=record["settings"]["seed"],
            **asdict(cell),
            num_params=self.account["num_params"],
            num_trained_params=num_trained,
            pretrain_tokens=self.account["pretrain_tokens"],
            pretrain_flops=self.account["pretrain_flops"],
            lineage_tokens=self.account["lineage_tokens"],
            lineage_flops=self.account["lineage_flops"],
            finetune_flops=flops,
            lr=lr,
            d_model=record["d_model"],
            num_layers=record["num_layers"],
            best_epoch=epoch,
            weights_bytes=weights_bytes,
        )


def method_of(params: Params, name: str) -> Method:
    where = f"finetune.methods.{name}"
    return METHODS.build(params.finetune.methods[name].method, where=f"{where}.method")


def _frozen(
    method: Method, model: ModelWithHead, steps_per_epoch: int, step: int
) -> Iterable[nn.Parameter]:
    return method.frozen(model, step // steps_per_epoch)


class _Best:
    """The weights that score best on the validation examples, of all rates and epochs of a trial;
    of equals those that came first."""

    def __init__(self, bench: TrialRunner, cell: TrialKey) -> None:
        self._bench, self._cell = bench, cell
        self._merit, self._weights = -math.inf, dict[str, Tensor]()
        self.lr, self.epoch, self.threshold = 0.0, 0, 0.0
        self.epochs: list[records.EpochRecord] = []

    def end_epoch(self, model: ModelWithHead, lr: float, epoch: int, train_loss: float) -> None:
        """Score the model, and keep what it learnt if that is the best so far."""
        value, threshold = self._bench.score(model)
        self.epochs.append(
            records.EpochRecord(
                run=self._bench.run_key,
                task=self._bench.task_key,
                **asdict(self._cell),
                lr=lr,
                epoch=epoch,
                train_loss=train_loss,
                validation_metric=value,
            )
        )
        merit = metrics.merit(self._bench.setup.task_record["metric"], value)
        if merit > self._merit:
            self._merit, self.lr, self.epoch, self.threshold = merit, lr, epoch, threshold
            named = model.named_parameters()
            self._weights = {name: w.detach().clone() for name, w in named if w.requires_grad}

    def restore(self, model: ModelWithHead) -> None:
        model.load_state_dict(self._weights, strict=False)


class _Watch:
    """Tells of each epoch of a training at one rate."""

    def __init__(self, best: _Best, model: ModelWithHead, lr: float, steps_per_epoch: int) -> None:
        self._best, self._model, self._lr = best, model, lr
        self._steps_per_epoch = steps_per_epoch
        self._losses: list[float] = []

    def after_step(self, done: Step) -> dict[str, float]:
        self._losses.append(done.loss)
        if done.step % self._steps_per_epoch == 0:
            train_loss = sum(self._losses) / len(self._losses)
            epoch = done.step // self._steps_per_epoch
            self._best.end_epoch(self._model, self._lr, epoch, train_loss)
            self._losses = []
        return {}
