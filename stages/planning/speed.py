"""The estimated time of pending stages on this machine.

The time of a training is its operations divided by a speed in operations per second: the speed of
earlier trainings of its kind or, if there are none, of a short calibration.
"""

import heapq
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from torch import nn
from tqdm import tqdm

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.core.ending import die_with_parent
from stages.core.params import Compute, Corpus, Optimisation, Params, Run, Task
from stages.core.params import Method as MethodEntry
from stages.core.process import TIMES
from stages.core.seeding import stream, torch_stream
from stages.evaluation.records import read_texts
from stages.matching.budget import AnyEntry, trains, vocabulary_for
from stages.methods._method import METHODS, Method, SolvedMethod, TrainedMethod
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead
from stages.planning.finetuning_costs import Finetuning
from stages.planning.pretraining_costs import Pretraining, objective_of, random_batch
from stages.sources._source import SOURCES
from stages.tasks._task import Example
from stages.tasks.classification import Classification
from stages.text.batch import Batch
from stages.training.device import Device, resolve, side_by_side
from stages.training.flops import Counter
from stages.training.loop import Step, train
from stages.training.solver import solve
from stages.trials.prediction import PREDICTED_AT_ONCE

EARLIER, CALIBRATION = "others of its kind before", "a calibration"
TRAININGS = ("pretrain", "continue_pretraining", "finetune")
PRETRAINING = "pretraining"
MIN_STEPS, MAX_STEPS, SECONDS = 3, 200, 1.0  # of a calibration, after its first step
# The batch size and schedule with which a method without training settings is calibrated.
USUAL_EXAMPLES, USUAL_SCHEDULE = 8, Optimisation(lr=1e-4)
ITERATIONS = 50  # of the solver of a probe, about as many as each C needs


class Kind(NamedTuple):
    """A kind of training: trainings of one kind do about equally many operations per second."""

    work: str  # PRETRAINING, or a method of finetune.methods
    architecture: str | None
    d_model: int | None

    @staticmethod
    def of(cost: Pretraining | Finetuning) -> "Kind":
        work = PRETRAINING if isinstance(cost, Pretraining) else cost.method
        return Kind(work, cost.architecture, cost.d_model)


@dataclass
class Other:
    """A pending stage that trains nothing. Its time is None if unknown."""

    stage: str
    seconds: float | None
    speed_from: str | None


def add_times(
    runs: Mapping[str, Run],
    compute: Compute,
    calibration: "Calibration",
    pretrain: Sequence[Pretraining],
    finetune: Sequence[Finetuning],
) -> None:
    """Sets the time of each pending cost, and the memory of costs whose training ran before, where
    these are known. ``runs`` are those that ``matched`` returns."""
    earlier = _Earlier(runs, compute, finetune)
    for cost in (*pretrain, *finetune):
        cost.memory_bytes = earlier.memory.get(_training(cost)) or cost.memory_bytes
        if not cost.pending or cost.flops is None:
            continue
        if speed := earlier.speed(Kind.of(cost)):
            # Pretraining: the earlier times include validation, but the earlier operations do not.
            work = cost.flops if isinstance(cost, Pretraining) else operations(cost)
            cost.seconds, cost.speed_from = work / speed, EARLIER
        elif seconds := calibration.seconds(cost):
            cost.seconds, cost.speed_from = seconds, CALIBRATION
    for task in {cost.task for cost in finetune}:
        of_task = [cost for cost in finetune if cost.task == task and cost.seconds is not None]
        put_side_by_side(of_task, side_by_side(compute))


def operations(cost: Pretraining | Finetuning) -> int:
    """Returns the operations of a cost with validation and prediction; unknown ones count as 0."""
    is_pretraining = isinstance(cost, Pretraining)
    others = cost.validation_flops if is_pretraining else cost.prediction_flops
    return (cost.flops or 0) + (others or 0)


def put_side_by_side(costs: Sequence[Finetuning], at_once: int) -> None:
    """Scales the times of the trials of one stage so that their sum is the time of the stage with
    ``at_once`` trials side by side. The given times are for one trial after the other, and are kept
    as ``alone_s``."""
    groups = [share * (cost.seconds or 0.0) for cost in costs for share in cost.shares]
    together = makespan(groups, at_once)
    alone = sum(cost.seconds or 0.0 for cost in costs)
    for cost in costs:
        cost.alone_s = cost.seconds
        cost.seconds = (cost.seconds or 0.0) * together / alone if alone else 0.0


def makespan(seconds: Iterable[float], at_once: int) -> float:
    """Returns how long trainings of these ``seconds`` take in ``at_once`` processes, if each
    free process starts the longest training that is left."""
    ends = [0.0] * at_once
    for taken in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + taken)
    return max(ends)


# Earlier trainings --------------------------------------------------------------------------------


class _Earlier:
    """Speeds of earlier trainings by kind, and their peak memory by training."""

    def __init__(
        self, runs: Mapping[str, Run], compute: Compute, finetune: Iterable[Finetuning]
    ) -> None:
        self._work = dict[Kind, tuple[float, float]]()
        self.memory = dict[tuple[str, ...], int]()  # by the key from ``_training``
        self._read_pretrainings(runs, resolve(compute, threads=compute.threads).device)
        self._read_finetunings(finetune)

    def speed(self, kind: Kind) -> float | None:
        flops, seconds = self._work.get(kind, (0.0, 0.0))
        return flops / seconds if flops > 0 and seconds > 0 else None

    def _add(self, kind: Kind, flops: float, seconds: float) -> None:
        before = self._work.get(kind, (0.0, 0.0))
        self._work[kind] = before[0] + flops, before[1] + seconds

    def _read_pretrainings(self, runs: Mapping[str, Run], device: str) -> None:
        for path in sorted((paths.TIMINGS / "pretrain").glob("*/*.json")):
            name, folder = path.parent.name, paths.PRETRAINED / path.parent.name / path.stem
            if not (folder / "metrics.json").is_file() or not (folder / "run.json").is_file():
                continue  # the run is being trained again
            timing, account = read_json(path), read_json(folder / "metrics.json")
            if timing["device"] != device or not account["pretrain_flops"]:
                continue
            about = read_json(folder / "run.json")
            kind = Kind(PRETRAINING, about["architecture"], about["d_model"])
            self._add(kind, account["pretrain_flops"], timing["wall_time_s"])
            if name in runs and _is_as_large(about["settings"], runs[name]):
                self.memory[(name,)] = max(timing["peak_memory_bytes"], self.memory.get((name,), 0))

    def _read_finetunings(self, costs: Iterable[Finetuning]) -> None:
        """Reads the earlier trials of each run, task and method in ``costs``. Their tables count
        only the operations of training; those of prediction are assumed to be as many as now."""
        for cost in costs:
            timing = paths.TIMINGS / "finetune" / cost.task / f"{cost.run}.csv"
            table = paths.FINETUNED / cost.task / cost.run / "trials.csv"
            if cost.prediction_flops_of_all is None:
                continue
            # Only the columns that are used are converted, so that files of earlier versions remain
            # readable.
            times, trials = (
                [row for row in read_texts(path) if row["method"] == cost.method]
                for path in (timing, table)
            )
            if not times or len(times) != len(trials):
                continue
            predicted = cost.prediction_flops_of_all * len(trials) / cost.num_trials
            flops = sum(int(trial["finetune_flops"]) for trial in trials) + predicted
            self._add(Kind.of(cost), flops, sum(float(row["wall_time_s"]) for row in times))
            self.memory[_training(cost)] = max(int(row["peak_memory_bytes"]) for row in times)


def _training(cost: Pretraining | Finetuning) -> tuple[str, ...]:
    """Returns the key by which the memory of earlier trainings is looked up."""
    return (cost.run,) if isinstance(cost, Pretraining) else (cost.run, cost.task, cost.method)


def _is_as_large(settings: Json, run: Run) -> bool:
    """Returns whether the earlier ``settings`` of a run have its present model and batch size."""
    now = run.model_dump()
    return settings["model"] == now["model"] and all(
        settings["training"][name] == now["training"][name]
        for name in ("micro_batch_rows", "max_tokens")
    )


# Calibration --------------------------------------------------------------------------------------


class _Speed(NamedTuple):
    """A speed in operations per second. The solver of a probe does not count its operations: its
    seconds are the operations for the states of the labelled texts, divided by ``solving``."""

    speed: float
    solving: float = math.inf


class Calibration:
    """Estimates times from a training of about a second for each kind, on random tokens, with the
    study's own training loop and compute settings. A public checkpoint is assumed to be as fast as
    the study's reference run or, if the reference is public, as the first run that is not."""

    def __init__(self, study: Params, finetune: Iterable[Finetuning], *, jobs: int = 1) -> None:
        self._study, self._jobs = study, jobs  # jobs that train at once
        lengths = [cost.text_tokens for cost in finetune if cost.text_tokens]
        self._length = max(round(fmean(lengths)), 1) if lengths else 1
        self._speeds = dict[Kind, _Speed | None]()
        self._progress = tqdm(desc="calibration", unit="kind", disable=None, leave=False)

    def seconds(self, cost: Pretraining | Finetuning) -> float | None:
        """Returns the sum of the seconds of a cost's trainings, even if some run at once; their
        speed is measured with as many trainings at once as in the study. None if the study has no
        run to calibrate with."""
        kind = Kind.of(cost)
        if kind not in self._speeds:
            self._speeds[kind] = self._measured(cost)
            self._progress.update()
        measured = self._speeds[kind]
        if measured is None:
            return None
        return operations(cost) / measured.speed + (cost.flops or 0) / measured.solving

    def _measured(self, cost: Pretraining | Finetuning) -> _Speed | None:
        study, is_pretraining = self._study, isinstance(cost, Pretraining)
        names = (cost.run, study.budget.reference, *study.runs)
        runs = [study.runs[name] for name in names if not study.runs[name].is_public]
        run = next((run for run in runs if not is_pretraining or trains(run)), None)
        if run is None:
            return None
        compute, tokenizers = study.compute, study.tokenizers
        if isinstance(cost, Pretraining):
            parts = (run, study.runs.get(run.parent), tokenizers, compute)
            return min(in_processes(compute, _pretraining_speed, *parts, copies=self._jobs))
        entry = study.finetune.methods[cost.method]
        parts = (run, entry, tokenizers[run.tokenizer], compute, self._length)
        copies = self._jobs * side_by_side(compute)
        return min(in_processes(compute, _finetuning_speed, *parts, copies=copies))


def in_processes(
    compute: Compute, function: Callable[..., Any], *arguments: object, copies: int
) -> list[Any]:
    """Calls ``function`` in ``copies`` processes at once and returns the results. On a GPU, calls
    it once, in this process."""
    if resolve(compute, threads=1).device != "cpu":
        return [function(*arguments)]
    # Forked from a server that has computed nothing: a fork of this process would deadlock on
    # torch's threads.
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload(["stages.core.fork_server", __name__])
    with ProcessPoolExecutor(copies, context, initializer=die_with_parent) as pool:
        calls = [pool.submit(function, *arguments) for _ in range(copies)]
        return [call.result() for call in calls]


def _pretraining_speed(
    run: Run, parent: Run | None, tokenizers: Mapping[str, AnyEntry], compute: Compute
) -> _Speed:
    """Returns the speed of training a run with its own objective. A teacher has random weights."""
    device = resolve(compute, threads=compute.threads)
    objective = objective_of(run, tokenizers)
    vocab_size = objective.vocabulary.vocab_size
    model = _model(run, vocab_size)
    if objective.has_teacher:
        assert parent is not None
        teacher = _model(parent, vocab_size).backbone.to(device.torch)
        objective.learn_from(teacher.requires_grad_(False).eval(), model.backbone.to(device.torch))
    model.head = objective.head(model.backbone)
    training = run.training
    batch = random_batch(objective, rows=training.micro_batch_rows, length=training.max_tokens)
    return _speed(
        train(
            model.to(device.torch),
            objective,
            _Repeated(batch),
            training.at(training.rates[0]),
            num_steps=MAX_STEPS,
            seed=0,
            device=device,
        )
    )


def _finetuning_speed(
    run: Run, entry: MethodEntry, tokenizer: AnyEntry, compute: Compute, length: int
) -> _Speed:
    """Returns the speed of adapting a run to a task with two classes and texts of ``length``
    tokens. A method that trains nothing is assumed to be as fast as full fine-tuning."""
    device = resolve(compute, threads=compute.trial_threads)
    vocabulary: Any = vocabulary_for(run, tokenizer)
    method: Method = METHODS.build(entry.method, where="")
    model = _model(run, vocabulary.vocab_size)
    model.backbone.drop_output_layers()
    is_fitted = isinstance(method, TrainedMethod | SolvedMethod)
    if not is_fitted or method.incompatibility(model.backbone):
        method = METHODS.build({"name": "full"}, where="")
    task = Classification(["0", "1"], vocabulary, length)
    model.head = task.head(model.backbone)
    method.apply(model, generator=torch_stream(0, "method"))
    ids = vocabulary.regular_ids
    number = entry.training.batch_examples if entry.training else USUAL_EXAMPLES
    if isinstance(method, SolvedMethod):
        number = PREDICTED_AT_ONCE
    texts = ids[stream(0, "plan").integers(len(ids), size=(number, length))]
    examples = [Example(str(i), text, np.array([i % 2])) for i, text in enumerate(texts)]
    batch, model = task.collate(examples, rngs=[]), model.to(device.torch)
    if isinstance(method, SolvedMethod):
        return _solving_speed(model, task, method, batch.to(device.torch), device)
    schedule = entry.training.at(entry.training.rates[0]) if entry.training else USUAL_SCHEDULE
    return _speed(
        train(
            model,
            task,
            _Repeated(batch),
            schedule,
            num_steps=MAX_STEPS,
            seed=0,
            device=device,
        )
    )


def _solving_speed(
    model: ModelWithHead, task: Classification, method: SolvedMethod, batch: Batch, device: Device
) -> _Speed:
    """Measures how fast the states of a batch are computed and a probe is solved at one C. Both are
    done twice; the first time is a warm-up."""
    began = remembered = time.monotonic()
    num_iterations, flops = 1, 0
    for _ in range(2):
        began = time.monotonic()
        with Counter() as counter:
            method.remember(model, [batch], anew=True)
        remembered = time.monotonic()
        solution = solve(
            model,
            task,
            [batch],
            [batch],
            inverse_strengths=[1.0],
            merit=lambda: 0.0,
            device=device,
        )
        num_iterations, flops = max(solution.num_iterations, 1), counter.total
    iteration = (time.monotonic() - remembered) / num_iterations
    return _Speed(flops / (remembered - began), flops / (iteration * ITERATIONS * len(method.C)))


def _model(run: Run, vocab_size: int) -> ModelWithHead:
    backbone = MODELS.build(run.model, vocab_size, where="model")
    backbone.initialise(generator=torch_stream(0, "weights"))
    return ModelWithHead(backbone, nn.Identity())


def _speed(steps: Generator[Step, None, None]) -> _Speed:
    """Measures the operations per second of the steps after the first, for about SECONDS."""
    flops = 0
    with closing(steps):
        next(steps)
        began = time.monotonic()
        for step in steps:
            flops += step.flops
            if step.step > MIN_STEPS and time.monotonic() - began > SECONDS:
                break
        return _Speed(flops / (time.monotonic() - began))


@dataclass(frozen=True)
class _Repeated:
    """Training data that is the same batch in each step."""

    batch: Batch

    def micro_batches(self, step: int) -> list[Batch]:
        return [self.batch]


# Other stages -------------------------------------------------------------------------------------


def other_stages(
    corpora: Mapping[str, Corpus], tasks: Mapping[str, Task], stages: Iterable[str]
) -> list[Other]:
    """Returns the ``stages`` that train nothing, each with a time: its source's estimate, if the
    source is slow to read; else the stage's last time here; else the mean of stages of its kind."""
    kinds: dict[str, dict[str, float]] = {}
    for path in sorted(TIMES.glob("*.json")):
        times = kinds.setdefault(path.stem.partition("@")[0], {})
        times[path.stem] = read_json(path)["wall_time_s"]
    read = set[str]()  # names of what earlier stages read, which is counted only once
    entries: dict[str, Mapping[str, Corpus | Task]] = {
        "prepare_corpus": corpora,
        "prepare_task": tasks,
    }
    others = []
    for stage in stages:
        kind, _, key = stage.partition("@")
        if kind in TRAININGS:
            continue
        entry, seconds = entries.get(kind, {}).get(key), 0.0
        if entry is not None:
            seconds = SOURCES.build(entry.source, where=stage).reading_s(read)
        if seconds:
            others.append(Other(stage, seconds, CALIBRATION))
        elif times := kinds.get(kind):
            others.append(Other(stage, times.get(stage, fmean(times.values())), EARLIER))
        else:
            others.append(Other(stage, None, None))
    return others
