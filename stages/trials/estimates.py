"""Estimates of how well a checkpoint would do on a task, from the frozen states that a probe
reads."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace

import numpy as np
from threadpoolctl import threadpool_limits

from stages.core.artifacts import read_json, write_json
from stages.core.keys import RunKey
from stages.core.params import Compute, Finetune
from stages.core.seeding import stream
from stages.evaluation.transferability import ESTIMATES, EstimateRecord, h_score, logme, one_hot
from stages.tasks._cells import Row
from stages.tasks._labelled_rows import labelled_rows, most_rows
from stages.tasks._task import Example
from stages.text.batch import IGNORE_INDEX
from stages.training.device import Device, resolve
from stages.training.flops import counting
from stages.trials import store
from stages.trials.frozen import FrozenStates
from stages.trials.setup import TrialSetup

TASKS = ("classification", "tagging", "regression")  # whose labels are each of one state
MAX_ROWS = 1000  # more rows would take more than seconds and hardly change the estimates
MAX_STATES = 5000  # for tasks whose rows have many states (one for each word)
OTHER_KIND = "a label is no class or number of one state"
FOR_CLASSES = "defined for classes, not for numbers"
ONE_CLASS = "the labelled rows have fewer than two classes"


def estimated(
    finetune: Finetune, compute: Compute, checkpoint: RunKey, task: str
) -> list[EstimateRecord]:
    """Returns the estimates from the store of trials, where they have an address of their own, or
    computes and stores them.

    All checkpoints have the same labelled rows: as many as the largest label budget, but at most
    ``MAX_ROWS``. They are drawn as for a trial whose pretraining and fine-tuning seeds are both
    the first of ``finetune.seeds``.
    """
    setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens)
    device = replace(resolve(compute, threads=compute.trial_threads), precision="float32")
    seed = finetune.seeds[0]
    train = setup.rows("train", seed=seed)
    most = min(most_rows(finetune.label_budgets, len(train), task=task), MAX_ROWS)
    seeds = {"pretrain_seed": seed, "finetune_seed": seed}
    rows = labelled_rows(train, most, setup.task.kind, **seeds, task=task)
    settings = {"rows": [row["id"] for row in rows], "seed": seed}
    address = store.Addresses(finetune, setup, device).of_other(settings, "trials/estimates")
    file = store.root() / "estimates" / f"{address}.json"
    with suppress(OSError, json.JSONDecodeError, TypeError, KeyError):  # missing or damaged
        return [EstimateRecord(**record) for record in read_json(file)["records"]]
    with threadpool_limits(1):  # numpy's sums depend on the number of threads
        records = _records(setup, rows, seed, device)
    with store.unfinished() as folder:  # any number of processes may write at once
        write_json(folder / file.name, {"records": [asdict(record) for record in records]})
        file.parent.mkdir(exist_ok=True)
        (folder / file.name).replace(file)
    return records


def _records(
    setup: TrialSetup, rows: Sequence[Row], seed: int, device: Device
) -> list[EstimateRecord]:
    values, reasons = dict[str, float](), dict.fromkeys(ESTIMATES, OTHER_KIND)
    num_rows = num_states = flops = 0
    if setup.task.kind.name in TASKS and not setup.task.scores_text:
        examples = _few(setup.task.encode(rows), seed)
        frozen = FrozenStates(setup.task, device)
        model = setup.headed(seed=seed).to(device.torch)
        with counting() as counter:
            frozen.compute(model, examples)
        states, labels, _ = frozen.labelled(examples)
        num_rows, num_states = len({each.id for each in examples}), len(labels)
        flops = counter.get_total_flops()
        if labels.dtype.kind == "f":
            values, reasons = {"logme": logme(states, labels[:, None])}, {"h_score": FOR_CLASSES}
        elif len(np.unique(labels)) < 2:
            reasons = dict.fromkeys(ESTIMATES, ONE_CLASS)
        else:
            values = {"h_score": h_score(states, labels), "logme": logme(states, one_hot(labels))}
    return [
        EstimateRecord(
            **setup.checkpoint._asdict(),
            estimate=estimate,
            value=values.get(estimate),
            num_rows=num_rows,
            num_states=num_states,
            flops=flops,
            reason="" if estimate in values else reasons[estimate],
        )
        for estimate in ESTIMATES
    ]


def _few(examples: Sequence[Example], seed: int) -> list[Example]:
    """Returns examples chosen at random, by ``seed``, that together have at most ``MAX_STATES``
    labels; at least one example."""
    order = stream(seed, "estimated rows").permutation(len(examples))
    sizes = np.array([int((examples[i].labels != IGNORE_INDEX).sum()) for i in order])
    within = max(int((sizes.cumsum() <= MAX_STATES).sum()), 1)
    return [examples[i] for i in sorted(order[:within])]
