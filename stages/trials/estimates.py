"""Estimates of how well a checkpoint would do on a task, from the frozen states that a probe
reads."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from stages.core.artifacts import Json, read_json, write_json
from stages.core.keys import RunKey
from stages.core.params import Compute, Finetune, InitialWeights
from stages.core.seeding import stream
from stages.evaluation.estimates import ESTIMATES, LAYERS, EstimateRecord
from stages.evaluation.transferability import h_score, logme, nearest_neighbours, one_hot
from stages.kinds._cells import Row
from stages.kinds._kind import labelled_rows, most_rows
from stages.models._heads import ModelWithHead
from stages.tasks._task import Example, Task
from stages.tasks._writing import Writing
from stages.text.batch import IGNORE_INDEX, Batch
from stages.training.device import Device, resolve
from stages.training.finetuning import in_order_of_length
from stages.training.flops import Counter
from stages.trials import store
from stages.trials.prediction import PREDICTED_AT_ONCE
from stages.trials.setup import TrialSetup
from stages.trials.variants import Variant

LIBRARIES = ("scipy", "scikit-learn")  # in addition to those of every trial
MOST_ROWS = 1000  # more rows would take more than seconds and hardly change the estimates
MOST_STATES = 5000  # for tasks whose rows have many states (one for each word)
WRITTEN = "the answers are texts, and no labels of states"
NO_LABEL_OF_A_STATE = "a label is a position or a choice, and no class or number of one state"
FOR_CLASSES = "defined for classes, not for numbers"
ONE_CLASS = "the labelled rows have fewer than two classes"


@dataclass(frozen=True)
class Estimated:
    """The estimates of a checkpoint on a task, and the time that it took to compute them."""

    records: list[EstimateRecord]
    wall_time_s: float


def estimated(finetune: Finetune, compute: Compute, checkpoint: RunKey, task: str) -> Estimated:
    """Returns the estimates from the store of trials, where they have an address of their own, or
    computes and stores them.

    All checkpoints have the same labelled rows: as many as the largest label budget, but at most
    ``MOST_ROWS``. They are drawn as for a trial whose pretraining and fine-tuning seeds are both
    the first of ``finetune.seeds``.
    """
    setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens)
    device = resolve(compute, threads=compute.trial_threads)
    seed = finetune.seeds[0]
    train = setup.rows("train", seed=seed)
    most = min(most_rows(finetune.label_budgets, len(train), task=task), MOST_ROWS)
    seeds = {"pretrain_seed": seed, "finetune_seed": seed}
    rows = labelled_rows(train, most, setup.task.kind, **seeds, task=task)
    # The initial weights of a probe's first variant.
    initial = finetune.initial_weights[0] if setup.from_scratch else None
    settings = {"rows": [row["id"] for row in rows], "seed": seed, "initial_weights": initial}
    settings |= {"libraries": {name: version(name) for name in LIBRARIES}}
    address = store.Addresses(finetune, setup, device).of_other(settings, "trials/estimates")
    file = store.root() / "estimates" / f"{address}.json"
    if stored := _stored(file):
        return stored
    start = time.perf_counter()
    with threadpool_limits(1):  # numpy's sums depend on the number of threads
        records = _records(setup, rows, seed, initial, device)
    result = Estimated(records, round(time.perf_counter() - start, 3))
    with store.unfinished() as folder:  # any number of processes may write at once
        write_json(folder / file.name, asdict(result))
        file.parent.mkdir(exist_ok=True)
        (folder / file.name).replace(file)
    return result


def _stored(file: Path) -> Estimated | None:
    """Returns the estimates in a file, or None if it does not exist or is damaged."""
    with suppress(OSError, json.JSONDecodeError, TypeError, KeyError):
        stored = read_json(file)
        return Estimated([EstimateRecord(**r) for r in stored["records"]], stored["wall_time_s"])
    return None


def _records(
    setup: TrialSetup,
    rows: Sequence[Row],
    seed: int,
    initial: InitialWeights | None,
    device: Device,
) -> list[EstimateRecord]:
    def undefined(reason: str, estimates: Sequence[str] = ESTIMATES) -> list[EstimateRecord]:
        nothing: Json = {"value": None, "layer": None, "num_rows": 0, "num_states": 0, "flops": 0}
        return [
            EstimateRecord(**key, estimate=estimate, layers=layers, **nothing, reason=reason)
            for estimate, layers in product(estimates, LAYERS)
        ]

    key = setup.checkpoint._asdict()
    if setup.task.scores_text or isinstance(setup.task, Writing):
        return undefined(WRITTEN)
    setup = setup.of(Variant(setup.readings()[0], initial_weights=initial))
    examples = _few(setup.task.encode(rows), seed)
    read = _states_read(setup, examples, seed, device)
    if read is None:
        return undefined(NO_LABEL_OF_A_STATE)
    states, labels = read.states, read.labels
    if labels.dtype.kind != "f" and len(set(labels.tolist())) < 2:
        return undefined(ONE_CLASS)
    by_layer = [_measured(layer, labels) for layer in states]
    of_mean = _measured(states.mean(axis=0), labels)
    result = []
    about: Json = {"num_rows": len({e.id for e in examples}), "num_states": len(labels)}
    about |= {"flops": read.flops}
    for estimate in ESTIMATES:
        if estimate not in of_mean:
            result += undefined(FOR_CLASSES, [estimate])
            continue
        of_layer = [measured[estimate] for measured in by_layer]
        best = int(np.argmax(of_layer))
        values = of_layer[-1], of_mean[estimate], of_layer[best]
        for layers, value in zip(LAYERS, values, strict=True):
            result.append(
                EstimateRecord(
                    **key,
                    estimate=estimate,
                    layers=layers,
                    value=value,
                    layer=1 + best if layers == "best" else None,
                    reason="",
                    **about,
                )
            )
    return result


def _measured(states: Float[np.ndarray, "N D"], labels: np.ndarray) -> dict[str, float]:
    """Returns the estimates that are defined for the labels (classes as integers, or floats)."""
    if labels.dtype.kind == "f":
        return {"logme": logme(states, labels[:, None])}
    score = h_score(states, labels)
    return {
        "h_score": score.value,
        "h_score_above_chance": score.above_chance,
        "logme": logme(states, one_hot(labels)),
        "knn": nearest_neighbours(states, labels),
    }


def _few(examples: Sequence[Example], seed: int) -> list[Example]:
    """Returns examples chosen at random, by ``seed``, that together have at most ``MOST_STATES``
    labels; at least one example."""
    order = stream(seed, "estimated rows").permutation(len(examples))
    labels = np.array([int(_known(examples[i].labels).sum()) for i in order])
    within = max(int((labels.cumsum() <= MOST_STATES).sum()), 1)
    return [examples[i] for i in sorted(order[:within])]


def _known(labels: np.ndarray) -> np.ndarray:
    return ~np.isnan(labels) if labels.dtype.kind == "f" else labels != IGNORE_INDEX


@dataclass(frozen=True)
class _Read:
    """States as the head of the task reads them, and the label of each."""

    states: Float[np.ndarray, "J N D"]  # of each layer
    labels: np.ndarray  # [N]: classes as integers, or numbers
    flops: int


@torch.no_grad()
def _states_read(
    setup: TrialSetup, examples: Sequence[Example], seed: int, device: Device
) -> _Read | None:
    """Returns each layer's states as the probe's first variant reads them (pooled, if it pools);
    None if the labels are not one per state. The states are float32 at any precision setting,
    as for a probe."""
    model, task = setup.headed(seed=seed).to(device.torch).eval(), setup.task
    backbone = model.backbone
    states, labels, counter = list[Tensor](), list[np.ndarray](), Counter()
    for part in in_order_of_length(examples, batch_examples=PREDICTED_AT_ONCE):
        batch = task.collate(part, rngs=[]).to(device.torch)
        targets = batch.values if batch.labels is None else batch.labels
        with torch.autocast(device.device, enabled=False):
            with counter:
                layers = backbone.layers(batch)[1:]
            read = [_read_of(model, layer, task, batch) for layer in layers]
        if targets is None or read[0].shape[:-1] != targets.shape:
            return None
        given = targets.cpu().numpy()
        known = _known(given)
        states.append(torch.stack(read).cpu()[:, torch.from_numpy(known)])
        labels.append(given[known])
    return _Read(torch.cat(states, dim=1).numpy(), np.concatenate(labels), counter.total)


def _read_of(
    model: ModelWithHead, layer: Float[Tensor, "B T D"], task: Task, batch: Batch
) -> Float[Tensor, "... D"]:
    """Returns what the head's linear layer would read if the backbone's output were ``layer``."""
    read = list[Tensor]()
    backbone = model.backbone
    keep = model.head.reader.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    model.backbone = _Given(layer)  # type: ignore[assignment]
    try:
        task.loss(model, batch)
    finally:
        model.backbone = backbone
        keep.remove()
    return read[0]


class _Given(nn.Module):
    """A stand-in for a backbone that returns given states."""

    def __init__(self, states: Tensor) -> None:
        super().__init__()
        self.states = states

    def forward(self, batch: Batch) -> Tensor:
        return self.states
