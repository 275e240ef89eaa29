"""The speed of trainings on this machine, in work (``costs.py``) per second: that of earlier
trainings of the same kind or, without any, of a second of training now."""

import heapq
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
from tqdm import tqdm

from stages.budgets.budget import random_batch, trains, untrained, vocabulary_for
from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.ending import die_with_parent
from stages.core.keys import TrialKey
from stages.core.params import AnyTokenizer, Compute, Optimisation, Params, Run
from stages.core.params import Method as MethodEntry
from stages.core.process import TIMES
from stages.core.seeding import stream, torch_stream
from stages.evaluation.records import read_texts
from stages.methods._method import METHODS, Method, TrainedMethod
from stages.models._backbone import MODELS, draw_weights
from stages.models._heads import ModelWithHead
from stages.planning.costs import (
    PASSES,
    Amount,
    Cost,
    Kind,
    Texts,
    backbone_of,
    num_multiplied,
    num_weights,
)
from stages.tasks._task import Example
from stages.tasks.classification import Classification
from stages.text.batch import Batch
from stages.training.device import Device, resolve, side_by_side
from stages.training.loop import train

EARLIER, CALIBRATION = "earlier trainings", "a calibration"
TRAININGS = ("pretrain", "finetune")  # stages
MIN_STEPS, MAX_STEPS, SECONDS = 3, 200, 1.0  # of a calibration, after its first step
# The batch size and schedule with which a method without training settings is calibrated.
USUAL_EXAMPLES, USUAL_SCHEDULE = 8, Optimisation(lr=1e-4)


def add_times(study: Params, costs: Sequence[Cost], *, jobs: int) -> None:
    """Sets the seconds of each pending cost of a study under the matched budget. ``jobs`` train at
    once."""
    known = Earlier(study, costs)
    calibrated = dict[Kind, float | None]()
    waiting = {c.kind: c for c in costs if c.kind and c.work and known.speed(c) is None}
    for kind, cost in tqdm(waiting.items(), desc="calibration", disable=None, leave=False):
        calibrated[kind] = calibration(study, cost, jobs=jobs)
    for cost in costs:
        if cost.kind and not cost.work:
            cost.seconds = 0.0
        elif speed := known.speed(cost):
            cost.seconds, cost.speed_from = cost.work / speed, EARLIER
        elif cost.kind and (speed := calibrated.get(cost.kind)):
            cost.seconds, cost.speed_from = cost.work / speed, CALIBRATION


class Earlier:
    """The speeds of earlier trainings. Those of a model on the same task by the same method count
    first, then those of all models of its kind. Sets the memory of ``costs``, too."""

    def __init__(self, study: Params, costs: Iterable[Cost]) -> None:
        self._sums = defaultdict[Any, list[float]](lambda: [0.0, 0.0])  # work and seconds
        tune = study.finetune
        texts = {key: Texts.of(key, task, tune.max_tokens) for key, task in study.tasks.items()}
        for cost in costs:
            if cost.kind is None:
                continue
            if cost.task:
                entry = tune.methods[cost.method].of(cost.run)
                rates = _trials(cost, entry, texts[cost.task])
            else:
                rates = _pretrainings(cost)
            for work, seconds, memory in rates:
                cost.memory_bytes = max(memory, cost.memory_bytes or 0)
                for key in ((cost.run, cost.task, cost.method), cost.kind):
                    sums = self._sums[key]
                    sums[0], sums[1] = sums[0] + work, sums[1] + seconds

    def speed(self, cost: Cost) -> float | None:
        for key in ((cost.run, cost.task, cost.method), cost.kind):
            work, seconds = self._sums.get(key, (0.0, 0.0))
            if work and seconds:
                return work / seconds
        return None


def _pretrainings(cost: Cost) -> Iterator[tuple[float, float, int]]:
    """Yields the work, the seconds and the peak memory of a run's earlier pretrainings."""
    for path in sorted((paths.TIMINGS / "pretrain" / cost.run).glob("*.json")):
        account = paths.PRETRAINED / cost.run / path.stem / "metrics.json"
        if not account.is_file():  # the run is being trained again
            continue
        done, timing = read_json(account), read_json(path)
        if tokens := done.get("tokens_of_all_rates"):
            work = float(PASSES * tokens * done["num_params"])
            yield work, timing["wall_time_s"], timing["peak_memory_bytes"]


def _trials(cost: Cost, entry: MethodEntry, texts: Texts) -> Iterator[tuple[float, float, int]]:
    """Yields the same of a run's earlier trials on a task with a method. With ``patience``, they
    have taken fewer steps than they might."""
    table = read_texts(paths.FINETUNED / cost.task / cost.run / "trials.csv")
    steps = {_key(row): int(row["num_steps"]) for row in table}
    for row in read_texts(paths.TIMINGS / "finetune" / cost.task / f"{cost.run}.csv"):
        if row["method"] != cost.method or (key := _key(row)) not in steps:
            continue
        amount = Amount.of(entry, key, texts)
        rows = float(amount.labels + amount.predicted)
        if training := entry.training:
            share = steps[key] * len(training.rates) / max(amount.steps, 1)
            rows = share * (PASSES * amount.trained + amount.predicted - texts.test) + texts.test
        work = cost.multiplied * texts.tokens * rows
        yield work, float(row["wall_time_s"]), int(row["peak_memory_bytes"])


def _key(row: Mapping[str, str]) -> TrialKey:
    seeds = {name: int(row[name]) for name in ("pretrain_seed", "finetune_seed")}
    return TrialKey(**{name: row[name] for name in TrialKey._fields} | seeds)  # type: ignore[arg-type]


def makespan(seconds: Iterable[float], at_once: int) -> float:
    """Returns how long trainings of these ``seconds`` take in ``at_once`` processes, if each
    free process starts the longest training that is left."""
    ends = [0.0] * at_once
    for taken in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + taken)
    return max(ends)


# Calibration --------------------------------------------------------------------------------------


def calibration(study: Params, cost: Cost, *, jobs: int = 1) -> float | None:
    """Returns the work per second of about a second of training on random tokens, with the study's
    own training loop and compute settings, while ``jobs`` do the same; None without a run to train.

    A public checkpoint is assumed to be as fast as the study's reference or, if that is public, as
    the first run that is not. A method that trains no weights counts as full fine-tuning.
    """
    names = (cost.run, study.pretrain.reference, *study.runs)
    runs = [study.runs[name] for name in names if not study.runs[name].is_public]
    run = next((run for run in runs if cost.task or trains(run)), None)
    if run is None:
        return None
    compute, tune = study.compute, study.finetune
    if not cost.task:
        parts = (run, study.runs.get(run.parent), study.tokenizers, compute)
        return min(_in_processes(compute, _pretraining_speed, *parts, copies=jobs))
    length = round(Texts.of(cost.task, study.tasks[cost.task], tune.max_tokens).tokens)
    arguments = (run, tune.methods[cost.method], study.tokenizers, compute, length)
    copies = jobs if jobs > 1 else side_by_side(compute)
    return min(_in_processes(compute, _finetuning_speed, *arguments, copies=copies))


def _in_processes(
    compute: Compute, function: Callable[..., float], *arguments: object, copies: int
) -> list[float]:
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
    run: Run, parent: Run | None, tokenizers: Mapping[str, AnyTokenizer], compute: Compute
) -> float:
    """Returns the speed of training a run with its own objective. A teacher has random weights."""
    device, training = resolve(compute, threads=compute.threads), run.training
    vocabulary = vocabulary_for(run, tokenizers[run.tokenizer])
    backbone = backbone_of(run, tokenizers)
    assert vocabulary is not None and backbone is not None
    model, objective = untrained(run, parent, vocabulary, device)
    rows, length = training.micro_batch_rows, training.max_tokens
    batch = random_batch(objective, vocabulary, rows=rows, length=length)
    steps_per_s = _steps_per_s(model, objective, batch, training.at(training.rates[0]), device)
    return PASSES * rows * length * num_weights(backbone) * steps_per_s


def _finetuning_speed(
    run: Run,
    entry: MethodEntry,
    tokenizers: Mapping[str, AnyTokenizer],
    compute: Compute,
    length: int,
) -> float:
    """Returns the speed of adapting a run to a task with two classes and texts of ``length``
    tokens."""
    device = resolve(compute, threads=compute.trial_threads)
    vocabulary: Any = vocabulary_for(run, tokenizers[run.tokenizer])
    backbone = MODELS.build(run.architecture, vocabulary.vocab_size, where="architecture")
    draw_weights(backbone, seed=0)
    backbone.drop_output_layers()
    task = Classification(["0", "1"], vocabulary, length)
    model, multiplied = ModelWithHead(backbone, task.head(backbone)), num_multiplied(backbone)
    method: Method = METHODS.build(entry.method, where="")
    if not isinstance(method, TrainedMethod) or method.incompatibility(backbone):
        method = METHODS.build({"name": "full"}, where="")
    method.apply(model, generator=torch_stream(0, "method"))
    number = entry.training.batch_examples if entry.training else USUAL_EXAMPLES
    texts = stream(0, "plan").choice(vocabulary.regular_ids, size=(number, length))
    examples = [Example(str(i), text, np.array([i % 2])) for i, text in enumerate(texts)]
    batch = task.collate(examples, rngs=[])
    schedule = entry.training.at(entry.training.rates[0]) if entry.training else USUAL_SCHEDULE
    steps_per_s = _steps_per_s(model, task, batch, schedule, device)
    return PASSES * number * length * multiplied * steps_per_s


def _steps_per_s(
    model: ModelWithHead, criterion: Any, batch: Batch, schedule: Optimisation, device: Device
) -> float:
    """Measures the steps after the first, for about SECONDS."""
    number, model = 0, model.to(device.torch)
    data = SimpleNamespace(micro_batches=lambda step: [batch])  # the same batch in each step
    steps = train(model, criterion, data, schedule, num_steps=MAX_STEPS, seed=0, device=device)
    with closing(steps):
        next(steps)
        began = time.monotonic()
        for step in steps:
            number += 1
            if step.step > MIN_STEPS and time.monotonic() - began > SECONDS:
                break
        return number / (time.monotonic() - began)


# Other stages -------------------------------------------------------------------------------------


def other_stages(stages: Iterable[str]) -> dict[str, float | None]:
    """Returns the seconds of the ``stages`` that train nothing: the stage's last time here, else
    the mean of stages of its kind; None if there is none."""
    times = defaultdict[str, dict[str, float]](dict)
    for path in sorted(TIMES.glob("*.json")):
        times[path.stem.partition("@")[0]][path.stem] = read_json(path)["wall_time_s"]
    others = dict[str, float | None]()
    for stage in stages:
        kind = stage.partition("@")[0]
        if kind not in TRAININGS:
            known = times[kind]
            others[stage] = known.get(stage, fmean(known.values()) if known else None)
    return others
