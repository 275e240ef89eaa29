"""Fine-tune a run on a task: every method, label budget and seed, and predict the test inputs."""

import multiprocessing
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from stages.artifacts import read_json, read_jsonl, replacing
from stages.components import build, component_class
from stages.evaluation import metrics, trials
from stages.methods._method import Method
from stages.models._backbone import Backbone
from stages.models._heads import Headed, initialise_head
from stages.params import Params, entry
from stages.process import die_with_parent, run_stage
from stages.seeding import torch_stream
from stages.tasks._task import Example, Task
from stages.text.labelled import answer
from stages.training.checkpoint import WEIGHTS, load_weights, save_weights
from stages.training.device import Device, resolve
from stages.training.finetuning import FinetuningData, in_order_of_length
from stages.training.loop import Step, train

PRETRAINED, TASKS = Path("data/pretrained"), Path("data/tasks")
FINETUNED, TIMINGS = Path("data/finetuned"), Path("data/timings/finetune")
SPLITS = ("train", "validation", "test")
PREDICTED_AT_ONCE = 64  # examples in a batch of prediction


@dataclass(frozen=True)
class Cell:
    """Which trial of this run and task."""

    method: str
    label_budget: str
    finetune_seed: int


@dataclass(frozen=True)
class Outcome:
    """What a trial leaves behind, but for its weights."""

    trial: trials.Trial
    epochs: list[trials.Epoch]
    predictions: list[trials.Prediction]
    cost: trials.Cost


def main(params: Params, run_key: str, task_key: str) -> None:
    entry(params.pretrain, run_key, where="pretrain")
    entry(params.tasks, task_key, where="tasks")
    with replacing(FINETUNED / task_key / run_key) as folder:
        (folder / "weights").mkdir(parents=True)
        jobs = [(params, run_key, task_key, cells, folder / "weights") for cells in groups(params)]
        outcomes = sorted(_run_jobs(params, jobs, f"{run_key} on {task_key}"), key=_place(params))
        trials.write(folder / "trials.csv", trials.Trial, [o.trial for o in outcomes])
        trials.write(folder / "history.csv", trials.Epoch, [e for o in outcomes for e in o.epochs])
        predictions = [p for o in outcomes for p in o.predictions]
        trials.write(folder / "predictions.csv.gz", trials.Prediction, predictions)
    costs = [outcome.cost for outcome in outcomes]
    trials.write(TIMINGS / task_key / f"{run_key}.csv", trials.Cost, costs)


def groups(params: Params) -> list[list[Cell]]:
    """The trials, in groups that run one after the other in one process: those that share the
    states of a frozen backbone, else one trial each."""
    settings, result = params.finetune, []
    for name in settings.methods:
        cells = [
            Cell(name, str(budget), seed)
            for budget, seed in product(settings.label_budgets, settings.seeds)
        ]
        shared = _method(params, name).freezes_backbone
        result += [cells] if shared else [[cell] for cell in cells]
    return result


def _place(params: Params) -> Any:
    """The order of rows in files: that of params.yaml, whichever process was first."""
    order = [cell for group in groups(params) for cell in group]

    def place(outcome: Outcome) -> int:
        trial = outcome.trial
        return order.index(Cell(trial.method, trial.label_budget, trial.finetune_seed))

    return place


def _run_jobs(params: Params, jobs: list[Any], description: str) -> Iterator[Outcome]:
    """Groups side by side, ``threads // trial_threads`` at a time.

    Their number changes no result: each trial has its own seed, threads and order of data.
    """
    device = resolve(params.compute, threads=params.compute.trial_threads)
    workers = max(params.compute.threads // params.compute.trial_threads, 1)
    if device.device != "cpu":
        workers = 1  # trials on one GPU would only wait for each other
    with tqdm(total=len(jobs), desc=description, unit="group", disable=None) as progress:
        if workers == 1:
            for job in jobs:
                yield from run_group(*job)
                progress.update()
            return
        # Forked children start in no time; this process has run nothing in parallel before.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        with ProcessPoolExecutor(workers, context, initializer=die_with_parent) as pool:
            for done in as_completed([pool.submit(run_group, *job) for job in jobs]):
                yield from done.result()
                progress.update()


def run_group(
    params: Params, run_key: str, task_key: str, cells: list[Cell], weights: Path
) -> list[Outcome]:
    """Train and predict with one method after the other, in this process."""
    device = resolve(params.compute, threads=params.compute.trial_threads)
    bench = Bench(params, run_key, task_key, device)
    method = _method(params, cells[0].method)
    return [bench.run(cell, method, weights) for cell in cells]


def _method(params: Params, name: str) -> Method:
    where = f"finetune.methods.{name}"
    return build("methods", params.finetune.methods[name].method, where=f"{where}.method")


class Bench:
    """A pretrained run and the encoded examples of a task, on which trials are run."""

    def __init__(self, params: Params, run_key: str, task_key: str, device: Device) -> None:
        self.params, self.run_key, self.task_key, self.device = params, run_key, task_key, device
        self.pretrained = PRETRAINED / run_key
        self.run_record = read_json(self.pretrained / "run.json")
        self.account = read_json(self.pretrained / "metrics.json")
        model = self.run_record["model"]
        kind: Any = component_class("models", model["name"], where=f"pretrain.{run_key}.model")
        self.tokenizer = kind.tokenizer_of(model, self.pretrained)

        examples = TASKS / task_key / "examples"
        self.task_record = read_json(examples / "task.json")
        self.task: Task = build(
            "tasks",
            self.task_record["task"],
            self.task_record["labels"],
            self.tokenizer,
            params.finetune.max_tokens,
            where=f"tasks.{task_key}.task",
        )
        self.rows = {split: read_jsonl(examples / f"{split}.jsonl") for split in SPLITS}
        self.train = self._encode("train", limit=self._largest_budget())
        self.validation = self._encode("validation")
        self.test = self._encode("test")

    def run(self, cell: Cell, method: Method, weights: Path) -> Outcome:
        """One trial: train, keep the weights of the best epoch, predict the test inputs."""
        began = time.monotonic()
        settings = self.params.finetune.methods[cell.method].training
        examples = self._first(self._budget(cell.label_budget))
        model = self._model(cell, method)
        method.before_training(model, self._batches(self.train + self.validation + self.test))
        num_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        data = FinetuningData(
            examples, self.task, batch_examples=settings.batch_examples, seed=cell.finetune_seed
        )
        watch = _Watch(self, cell, model, data.steps_per_epoch)
        history = train(
            model,
            self.task,
            data,
            settings,
            num_steps=settings.num_epochs * data.steps_per_epoch,
            seed=cell.finetune_seed,
            device=self.device,
            after_step=watch.after_step,
        )
        watch.restore_best()
        predictions = self.predict(model, self.rows["test"], self.test)
        if self._keeps(cell):
            name = f"{cell.method}-{cell.label_budget}-{cell.finetune_seed}.safetensors"
            save_weights(model, weights / name, trained_only=True)

        flops = sum(int(row["flops"]) for row in history)
        if method.freezes_backbone:
            flops += sum(model.backbone.backbone.flops(batch) for batch in self._batches(examples))
        return Outcome(
            trial=self._trial(cell, num_trained, flops, watch.best_epoch),
            epochs=watch.epochs,
            predictions=[
                trials.Prediction(**asdict(cell), id=row["id"], prediction=prediction)
                for row, prediction in zip(self.rows["test"], predictions, strict=True)
            ],
            cost=trials.Cost(
                **asdict(cell),
                wall_time_s=round(time.monotonic() - began, 3),
                peak_memory_bytes=self._peak_memory(),
            ),
        )

    @torch.no_grad()
    def predict(
        self, model: Headed, rows: Sequence[Mapping[str, Any]], examples: list[Example]
    ) -> list[str]:
        """A prediction for each row, in their order, from those for its examples."""
        model.eval()
        found: dict[str, dict[int, Any]] = defaultdict(dict)
        for part in in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE):
            batch = self.task.collate(part, rngs=[]).to(self.device.torch)
            with self.device.autocast():
                predictions = self.task.predict(model, batch, part)
            for example, prediction in zip(part, predictions, strict=True):
                found[example.id][example.window] = prediction
        return [
            self.task.combine(row, [found[row["id"]][i] for i in sorted(found[row["id"]])])
            for row in rows
        ]

    def score(self, model: Headed) -> float:
        """The task's metric on the validation rows."""
        rows = self.rows["validation"]
        predicted = self.predict(model, rows, self.validation)
        return metrics.score(self.task_record["metric"], [*map(answer, rows)], predicted)

    def _model(self, cell: Cell, method: Method) -> Headed:
        where = f"pretrain.{self.run_key}.model"
        backbone: Backbone = build(
            "models", self.run_record["model"], self.tokenizer.vocab_size, where=where
        )
        asked, most = self.params.finetune.max_tokens, backbone.max_positions
        if most is not None and asked > most:
            raise ValueError(f"finetune.max_tokens: {asked} is more than {where} takes, {most}")
        load_weights(backbone, self.pretrained / WEIGHTS)
        if self.task.generates:
            self._check_writes(backbone, method, cell)
            backbone.sees_prefix = self.run_record["sees_prefix"]
        else:
            backbone = backbone.for_tokens()
        head = self.task.head(backbone)
        initialise_head(head, generator=torch_stream(cell.finetune_seed, "head"))
        model = Headed(backbone, head)
        method.apply(model, generator=torch_stream(cell.finetune_seed, "method"))
        return model.to(self.device.torch)

    def _check_writes(self, backbone: Backbone, method: Method, cell: Cell) -> None:
        """Raises ValueError if the model cannot write text of the task's length, or the method not
        teach it."""
        task, run = f"tasks.{self.task_key}.task", f"pretrain.{self.run_key}.model"
        if not backbone.can_generate:
            raise ValueError(f"{task}: needs a model that writes text; {run} does not")
        if method.freezes_backbone:
            raise ValueError(
                f"finetune.methods.{cell.method}: trains a head alone, and {task} has none"
            )
        written, most = self.task.max_target_tokens, backbone.max_positions
        taken = backbone.positions_taken(self.params.finetune.max_tokens, written)
        if most is not None and taken > most:
            raise ValueError(
                f"{task}.max_target_tokens: {written} are with finetune.max_tokens {taken} "
                f"positions, more than {run} has, {most}"
            )

    def _encode(self, split: str, *, limit: int | None = None) -> list[Example]:
        return self.task.encode(self.rows[split][:limit])

    def _batches(self, examples: Iterable[Example]) -> Iterator[Any]:
        for part in in_order_of_length(list(examples), batch_examples=PREDICTED_AT_ONCE):
            yield self.task.collate(part, rngs=[]).to(self.device.torch)

    def _budget(self, label_budget: str) -> int:
        """The number of labels; 'all' and more than there are is all of them."""
        here = len(self.rows["train"])
        return here if label_budget == "all" else min(int(label_budget), here)

    def _first(self, num_labels: int) -> list[Example]:
        """The examples of the first rows of train."""
        ids = {row["id"] for row in self.rows["train"][:num_labels]}
        return [example for example in self.train if example.id in ids]

    def _largest_budget(self) -> int:
        return max(self._budget(str(b)) for b in self.params.finetune.label_budgets)

    def _keeps(self, cell: Cell) -> bool:
        keep = self.params.finetune.keep_weights
        first = cell.finetune_seed == self.params.finetune.seeds[0]
        return keep == "all" or (keep == "first_seed" and first)

    def _peak_memory(self) -> int:
        if self.device.device == "cuda":
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _trial(self, cell: Cell, num_trained: int, flops: int, best_epoch: int) -> trials.Trial:
        record = self.run_record
        return trials.Trial(
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
            finetune_flops=flops,
            d_model=record["d_model"],
            num_layers=record["num_layers"],
            best_epoch=best_epoch,
        )


class _Watch:
    """Scores a model on the validation examples after each epoch and keeps its best weights."""

    def __init__(self, bench: Bench, cell: Cell, model: Headed, steps_per_epoch: int) -> None:
        self._bench, self._cell, self._model = bench, cell, model
        self._steps_per_epoch = steps_per_epoch
        self._losses: list[float] = []
        self._best: tuple[float, dict[str, Tensor]] = (-1.0, {})
        self.best_epoch = 0
        self.epochs: list[trials.Epoch] = []

    def after_step(self, done: Step) -> dict[str, float]:
        self._losses.append(done.loss)
        if done.step % self._steps_per_epoch == 0:
            self._end_epoch(done.step // self._steps_per_epoch)
        return {}

    def _end_epoch(self, epoch: int) -> None:
        value = self._bench.score(self._model)
        self.epochs.append(
            trials.Epoch(
                run=self._bench.run_key,
                task=self._bench.task_key,
                **asdict(self._cell),
                epoch=epoch,
                train_loss=sum(self._losses) / len(self._losses),
                validation_metric=value,
            )
        )
        self._losses = []
        if value > self._best[0]:  # of equals the earliest
            self._best, self.best_epoch = (value, self._trained()), epoch

    def _trained(self) -> dict[str, Tensor]:
        weights = self._model.named_parameters()
        return {name: w.detach().clone() for name, w in weights if w.requires_grad}

    def restore_best(self) -> None:
        self._model.load_state_dict(self._best[1], strict=False)


if __name__ == "__main__":
    run_stage(main, "run", "task", repeats=lambda raw, run, task: [raw["finetune"], raw["compute"]])
