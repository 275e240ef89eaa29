"""Faults of optimizers: invalid settings, and models that they cannot train."""

from collections.abc import Iterator, Mapping
from copy import deepcopy

import torch
from torch import nn

from stages.checking.entries import fault_of, name_of
from stages.core.params import Distributed, Method, Schedule
from stages.methods._method import TrainedMethod
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.optimizers._optimizer import OPTIMIZERS
from stages.training.flops import OnMeta


def pretraining_faults(
    schedule: Schedule, backbone: Backbone, distributed: Distributed, where: str
) -> Iterator[str]:
    """Yields the faults of the optimizer that pretrains a model; ``where`` is the optimizer's path
    in params.yaml."""
    model = ModelWithHead(backbone, nn.Identity())
    yield from _faults(schedule, model, where)
    name = name_of(schedule.optimizer)
    if name not in OPTIMIZERS.names():
        return
    is_sharded = distributed.strategy == "fsdp" and distributed.num_ranks > 1
    if is_sharded and not OPTIMIZERS.find(name, where="").supports_sharded:
        yield (
            f"{where}: {name} needs whole matrices, which distributed.strategy fsdp "
            "shards; set it to ddp, or use adamw"
        )


def finetuning_faults(
    entry: Method, method: TrainedMethod, outlines: Mapping[str, Backbone], where: str
) -> Iterator[str]:
    """Yields the faults of a method's optimizer, only those for the first run with a fault.
    ``outlines`` has the models of the method's runs; ``where`` is the path of its entry."""
    for run, backbone in outlines.items():
        schedule = entry.of(run).training
        assert schedule is not None
        of_run = entry.runs.get(run)
        is_own = of_run is not None and "optimizer" in of_run.model_fields_set
        here = f"{where}.runs.{run}.optimizer" if is_own else f"{where}.training.optimizer"
        if faults := [*_settings_faults(schedule, here)]:
            yield from faults
            return
        if OPTIMIZERS.find(name_of(schedule.optimizer), where=here).trains_all_weights:
            continue
        model = ModelWithHead(deepcopy(backbone), nn.Identity())
        with OnMeta():  # a method may compute with weights, which have no values here
            method.apply(model, generator=torch.Generator())
        if faults := [*_faults(schedule, model, here)]:
            yield from faults
            return


def _settings_faults(schedule: Schedule, where: str) -> Iterator[str]:
    yield from fault_of(lambda: OPTIMIZERS.settings(schedule.optimizer, where=where))


def _faults(schedule: Schedule, model: ModelWithHead, where: str) -> Iterator[str]:
    optimizer, decay = schedule.optimizer, schedule.weight_decay
    return fault_of(lambda: OPTIMIZERS.build(optimizer, model, decay, torch.float32, where=where))
