"""The speed of trainings on this machine, in work (``costs.py``) per second: that of earlier
trainings of the same kind or, without any, of a second of training now."""

import heapq
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from tqdm import tqdm

from stages.budgets.budget import random_batch, trains, untrained, vocabulary_for
from stages.core import paths
from stages.core.artifacts import read_json, replacing, write_json
from stages.core.ending import die_with_parent
from stages.core.keys import TrialKey
from stages.core.parallel import cores
from stages.core.params import Method as MethodEntry
from stages.core.params import Model, Optimisation, Params
from stages.core.process import TIMES
from stages.core.seeding import stream, torch_stream
from stages.evaluation.records import read_texts
from stages.methods._method import METHODS, Method, TrainedMethod
from stages.models._backbone import MODELS, draw_weights
from stages.models._heads import ModelWithHead
from stages.planning.costs import PASSES, Amount, Cost, Texts, num_multiplied, num_weights
from stages.tasks._task import Example
from stages.tasks.classification import Classification
from stages.text.tokenizer import Tokenizer
from stages.training.device import resolve, side_by_side
from stages.training.loop import train

TRAININGS = ("pretrain", "finetune")  # stages
SPEEDS = paths.SCRATCH / "speeds.json"  # measured here by calibrations
MIN_STEPS, MAX_STEPS, SECONDS = 3, 200, 1.0  # of a calibration, after its first step
# The batch size and schedule with which a method without training settings is calibrated.
USUAL_EXAMPLES, USUAL_SCHEDULE = 8, Optimisation(lr=1e-4)


def add_times(study: Params, costs: Sequence[Cost], *, jobs: int) -> None:
    """Sets ``seconds`` of each cost of a study under the matched budget, by the speed of earlier
    trainings of the same model, task and method, else of the same kind, else of a calibration.
    ``jobs`` trainings run at once."""
    speeds = earlier_speeds(study, costs)
    for cost in tqdm(costs, desc="calibration", disable=None, leave=False):
        if cost.kind is None:
            continue
        speed = speeds.get((cost.model, cost.task, cost.method), speeds.get(cost.kind))
        if speed is None and cost.work:
            speed = speeds[cost.kind] = calibration(study, cost, jobs=jobs) or 0.0
        cost.seconds = 0.0 if not cost.work else cost.work / speed if speed else None


def earlier_speeds(study: Params, costs: Iterable[Cost]) -> dict[Any, float]:
    """Returns the speeds of earlier trainings of each model, task and method, and of each kind."""
    sums = defaultdict[Any, list[float]](lambda: [0.0, 0.0])  # work and seconds
    tune = study.finetune
    texts = {key: Texts.of(key, task, tune.max_tokens) for key, task in study.tasks.items()}
    for cost in costs:
        if cost.kind is None:
            continue
        rates = _pretrainings(cost)
        if cost.task:
            read = texts[cost.task][study.models[cost.model].is_hub]
            rates = _trials(cost, tune.methods[cost.method].of(cost.model), read)
        for work, seconds in rates:
            for key in ((cost.model, cost.task, cost.method), cost.kind):
                sums[key][0] += work
                sums[key][1] += seconds
    return {key: work / seconds for key, (work, seconds) in sums.items() if work and seconds}


def _pretrainings(cost: Cost) -> Iterator[tuple[float, float]]:
    """Yields the work and the seconds of a model's earlier pretrainings."""
    for path in sorted((paths.TIMINGS / "pretrain" / cost.model).glob("*.json")):
        account = paths.PRETRAINED / cost.model / path.stem / "metrics.json"
        if not account.is_file():  # the model is being trained again
            continue
        done = read_json(account)
        if tokens := done.get("tokens_of_all_rates"):
            yield float(PASSES * tokens * done["num_params"]), read_json(path)["wall_time_s"]


def _trials(cost: Cost, entry: MethodEntry, texts: Texts) -> Iterator[tuple[float, float]]:
    """Yields the work and the seconds of a model's earlier trials on a task with a method. With
    ``patience``, they have taken fewer steps than they might."""
    table = read_texts(paths.FINETUNED / cost.task / cost.model / "trials.csv")
    steps = {_key(row): int(row["num_steps"]) for row in table}
    for row in read_texts(paths.TIMINGS / "finetune" / cost.task / f"{cost.model}.csv"):
        if row["method"] != cost.method or (key := _key(row)) not in steps:
            continue
        amount = Amount.of(entry, key, texts)
        rows, predicted = float(amount.labels), float(amount.predicted)
        if training := entry.training:
            share = steps[key] * len(training.rates) / max(amount.steps, 1)
            rows = share * PASSES * amount.trained
            predicted = share * (amount.predicted - amount.tested) + amount.tested
        yield cost.multiplied * texts.work(rows, predicted), float(row["wall_time_s"])


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
    own training loop and compute settings, while ``jobs`` do the same; None without a model to
    train.

    A public checkpoint is assumed to be pretrained further as fast as the study's reference or, if
    that is public, as the first model that is not. A method that trains no weights counts as full
    fine-tuning. The speed is remembered, so that a second call says the same.
    """
    names = (cost.model, study.pretrain.reference, *study.models)
    own = (key for key in names if not study.models[key].is_public and trains(study.models[key]))
    model = cost.model if cost.task else next(own, None)
    if model is None:
        return None
    entry, training, tokens = study.models[model], study.models[model].training, 0.0
    if cost.task:
        training = study.finetune.methods[cost.method].of(model).training
        tokens = _tokens(study, cost.task, entry)
    rows = training and training.model_dump(include={"batch_examples", "micro_batch_rows"})
    about = [study.compute.model_dump(), jobs, cores(), entry.architecture, entry.objective]
    key = json.dumps([*about, cost.method, rows, round(tokens)])
    known = read_json(SPEEDS) if SPEEDS.is_file() else {}
    if key not in known:
        known[key] = _fastest(study, cost, model, jobs)
        with replacing(SPEEDS) as path:
            write_json(path, known)
    return known[key]


def _fastest(study: Params, cost: Cost, model: str, jobs: int) -> float:
    """Returns the speed of a training while ``jobs`` run at once: that of the slowest."""
    if resolve(study.compute, threads=1).device != "cpu":
        return _measured(study, cost, model)
    # Forked from a server that has computed nothing: a fork of this process would deadlock on
    # torch's threads.
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload(["stages.core.fork_server", __name__])
    copies = jobs if jobs > 1 or not cost.task else side_by_side(study.compute)
    with ProcessPoolExecutor(copies, context, initializer=die_with_parent) as pool:
        calls = [pool.submit(_measured, study, cost, model) for _ in range(copies)]
        return min(call.result() for call in calls)


def _tokens(study: Params, task: str, model: Model) -> float:
    """Returns the mean tokens of an example of the task for a model."""
    return Texts.of(task, study.tasks[task], study.finetune.max_tokens)[model.is_hub].tokens


def _measured(study: Params, cost: Cost, name: str) -> float:
    """Returns the speed of pretraining a model with its own objective (a teacher has random
    weights), or of adapting it to a task with two classes and texts of the mean length of the
    cost's task."""
    compute, declared = study.compute, study.models[name]
    device = resolve(compute, threads=compute.trial_threads if cost.task else compute.threads)
    vocabulary: Any
    if declared.is_hub:
        from stages.text.checkpoints import folder_of  # imports transformers

        pinned = str(declared.architecture["path"]), str(declared.architecture["revision"])
        vocabulary = Tokenizer(folder_of(*pinned))
    else:
        vocabulary = cast(Any, vocabulary_for(study.tokenizers[declared.tokenizer]))
    if cost.task:
        entry = study.finetune.methods[cost.method]
        length, training = round(_tokens(study, cost.task, declared)), entry.training
        backbone = MODELS.build(declared.architecture, vocabulary.vocab_size, where="architecture")
        draw_weights(backbone, seed=0)
        backbone.drop_output_layers()
        criterion: Any = Classification(["0", "1"], vocabulary, length)
        model, weights = ModelWithHead(backbone, criterion.head(backbone)), num_multiplied(backbone)
        method: Method = METHODS.build(entry.method, where="")
        if not isinstance(method, TrainedMethod) or method.incompatibility(backbone):
            method = METHODS.build({"name": "full"}, where="")
        method.apply(model, generator=torch_stream(0, "method"))
        number = training.batch_examples if training else USUAL_EXAMPLES
        texts = stream(0, "plan").choice(vocabulary.regular_ids, size=(number, length))
        examples = [Example(str(i), text, np.array([i % 2])) for i, text in enumerate(texts)]
        batch = criterion.collate(examples, rngs=[])
    else:
        training = declared.training
        model, criterion = untrained(
            declared, study.models.get(declared.parent), vocabulary, device
        )
        weights = num_weights(model.backbone)
        number, length = training.micro_batch_rows, training.max_tokens
        batch = random_batch(criterion, vocabulary, rows=number, length=length)
    schedule = training.at(training.rates[0]) if training else USUAL_SCHEDULE
    model, data = model.to(device.torch), SimpleNamespace(micro_batches=lambda step: [batch])
    steps = train(model, criterion, data, schedule, num_steps=MAX_STEPS, seed=0, device=device)
    with closing(steps):
        next(steps)
        began, measured = time.monotonic(), 0
        for step in steps:
            measured += 1
            if step.step > MIN_STEPS and time.monotonic() - began > SECONDS:
                break
        seconds = time.monotonic() - began
    return PASSES * number * length * weights * measured / seconds


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
