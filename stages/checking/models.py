"""Faults of models: their settings, their objective, their parent, and the budget they share."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from stages.budgets.budget import with_sizes
from stages.checking.outlines import (
    ModelOutline,
    Outlines,
    belongs_to,
    fault_of,
    file_errors,
    name_of,
    unlisted,
)
from stages.core import paths
from stages.core.components import below
from stages.core.params import HUB, NONE, Params, PublishedTokenizer
from stages.models._backbone import MODELS, too_long
from stages.objectives._objective import Objective
from stages.optimizers._optimizer import OPTIMIZERS
from stages.training.pretraining import built, incompatibilities
from stages.training.ranks import uneven

# Settings of ``training``, each with the other setting that limits its value.
TOGETHER = {"micro_batch_rows": "batch_rows", "num_validations": "num_steps"}


def models_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields the faults of each model, with the path at which the faulty setting is stated:
    ``pretrain.training`` or the model. Models take over what they do not state from the first one,
    so a fault that the first model has, too, is reported there alone."""
    of_first, common = set[str](), params.pretrain.training
    for position, outlined in enumerate(outlines.values()):
        training, where = outlined.entry.training, outlined.where
        faults = [*_training_faults(params, outlined, f"{where}.training"), *outlined.faults]
        faults += (_public_faults if outlined.entry.is_hub else _own_faults)(params, outlined)
        faults += _parent_faults(params, outlined, outlines)
        for fault in faults:
            message = fault.replace(where, "")
            if message in of_first:
                continue
            if position == 0:
                of_first.add(message)
            if common and (setting := re.match(r"\.training\.(\w+)", message)):
                keys = setting[1], TOGETHER.get(setting[1], setting[1])
                if all(getattr(training, key) == getattr(common, key) for key in keys):
                    fault = fault.replace(where, "pretrain", 1)
            yield fault


def _training_faults(params: Params, outlined: ModelOutline, where: str) -> Iterator[str]:
    training, distributed, kind = outlined.entry.training, params.distributed, outlined.kind
    rows, micro_rows = training.batch_rows, training.micro_batch_rows
    if rows % micro_rows:
        yield f"{where}.micro_batch_rows: must divide batch_rows {rows}, not {micro_rows}"
    if training.num_validations > (steps := training.num_steps):
        number = training.num_validations
        yield f"{where}.num_validations: must be at most num_steps {steps}, not {number}"
    if kind is None or not kind.trains:
        return
    if rows % micro_rows == 0 and (reason := uneven(training, distributed)):
        yield f"{where}.micro_batch_rows: {reason}"
    yield from fault_of(OPTIMIZERS.settings, training.optimizer, where=f"{where}.optimizer")
    name, is_fsdp = name_of(training.optimizer), distributed.strategy == "fsdp"
    is_sharded = is_fsdp and distributed.num_ranks > 1 and name in OPTIMIZERS.names()
    if is_sharded and not OPTIMIZERS.find(name, where="").supports_sharded:
        yield (
            f"{where}.optimizer: {name} needs whole matrices, which distributed.strategy fsdp "
            "shards; set it to ddp, or use adamw"
        )


def _own_faults(params: Params, outlined: ModelOutline) -> Iterator[str]:
    """Yields the faults of a model that is no public checkpoint."""
    entry, where, kind = outlined.entry, outlined.where, outlined.kind
    yield from unlisted(entry.corpus, (*params.corpora, NONE), f"{where}.corpus")
    yield from unlisted(entry.tokenizer, params.tokenizers, f"{where}.tokenizer")
    if isinstance(params.tokenizers.get(entry.tokenizer), PublishedTokenizer):
        yield f"{where}.tokenizer: {entry.tokenizer} works only with its own public checkpoint"
    if kind is not None and kind.trains and entry.corpus == NONE:
        yield f"{where}.corpus: {name_of(entry.objective)} needs a corpus, not {NONE}"
    backbone, objective = outlined.backbone, outlined.objective
    if backbone is not None and objective is not None and objective.trains:
        yield from incompatibilities(entry, backbone, objective, where)


def _public_faults(params: Params, outlined: ModelOutline) -> Iterator[str]:
    """Yields the faults of a model of a public checkpoint. What only the hub knows is checked after
    the download."""
    model, where, kind = outlined.entry, outlined.where, outlined.kind
    folder = Path(str(model.architecture.get("path")))
    if folder.parent == paths.CHECKPOINTS:
        yield from unlisted(folder.name, params.packaged_checkpoints, f"{where}.architecture.path")
    if name_of(model.objective) == NONE:
        for setting, given in (("corpus", model.corpus), ("tokenizer", model.tokenizer)):
            if given != NONE:
                yield f"{where}.{setting}: must be {NONE} without an objective, not {given}"
        return
    yield from unlisted(model.corpus, params.corpora, f"{where}.corpus")
    own = [key for key, entry in params.tokenizers.items() if belongs_to(entry, model)]
    if model.tokenizer not in own:
        solution = f"use {own[0]}" if own else "add it"
        yield (
            f"{where}.tokenizer: must be the checkpoint's own, an entry of tokenizers with corpus "
            f"{NONE}, algorithm {HUB} and the path and revision of {where}.architecture, not "
            f"{model.tokenizer}; {solution}"
        )
    if kind is not None and (kind.has_teacher or kind.has_prefix):
        what = "needs a teacher" if kind.has_teacher else "uses a bidirectional prefix"
        yield f"{where}.objective: {what}; public checkpoints do not support it"
    elif outlined.objective is not None:
        yield from fault_of(_build, outlined)


def _build(outlined: ModelOutline) -> None:
    """Builds the model and the objective's head as ``pretrain`` does, with the layers that only
    pretraining needs, but without storage for weights.

    Raises ValueError if the objective and the model are incompatible.
    """
    assert outlined.vocabulary is not None
    with torch.device("meta"):
        backbone, objective = built(outlined.entry, outlined.vocabulary, where=outlined.where)
        with below(f"{outlined.where}.objective"):
            objective.head(backbone)


def checkpoint_faults(path: str, revision: str, where: str) -> Iterator[str]:
    """Yields the faults of a public checkpoint whose tokenizer ``tokenizers:`` names."""
    hub: Any = MODELS.find(HUB, where=where)  # only this model has `check`
    try:
        with file_errors("path"):
            hub.check(path=path, revision=revision)
    except ValueError as error:
        yield f"{where}.{error}"


def _parent_faults(params: Params, child: ModelOutline, outlines: Outlines) -> Iterator[str]:
    """Yields the faults of a model's parent, which gives it initial weights or teaches it."""
    entry, objective, here = child.entry, child.objective, f"{child.where}.parent"
    if entry.parent == NONE:
        if objective is not None and objective.has_teacher:
            yield f"{child.where}.objective: needs a teacher; name it as the model's `parent`"
        return
    yield from unlisted(entry.parent, params.models, here)
    line = [child.key]
    while (ancestor := params.models[line[-1]].parent) in params.models:
        line.append(ancestor)
        if ancestor in line[:-1]:
            yield f"{here}: {' -> '.join(line)} forms a cycle"
            return
    if (parent := outlines.get(entry.parent)) is None:
        return
    if missing := sorted({*entry.seeds} - {*parent.entry.seeds}):
        yield f"{child.where}.seeds: {missing} are not among the seeds of the parent {parent.key}"
    if entry.as_published or (objective is not None and not objective.trains):
        yield f"{child.where}.objective: must not be {NONE}: the model would repeat {parent.key}"
    elif entry.is_hub:
        if parent.entry.architecture != entry.architecture:
            yield (
                f"{here}: {parent.key} has another model; the parent of "
                f"{entry.architecture.get('path')} must be the same checkpoint"
            )
    elif objective is None:
        return
    elif (theirs := parent.entry.tokenizer) != entry.tokenizer:
        yield f"{here}: {parent.key} has the tokenizer {theirs}, this one {entry.tokenizer}"
    elif objective.has_teacher:
        yield from _teacher_faults(child, parent, objective)
    else:
        for setting, theirs, ours in _differences(parent, child):
            yield (
                f"{here}: the weights of {parent.key} belong to another model: {setting} is "
                f"{theirs} there and {ours} here"
            )


def _differences(parent: ModelOutline, child: ModelOutline) -> Iterator[tuple[str, object, object]]:
    """Yields the settings in which two models differ, with defaults: (name, parent's, child's)."""
    names = [name_of(outlined.entry.architecture) for outlined in (parent, child)]
    if names[0] != names[1]:
        yield "name", names[0], names[1]
    elif parent.backbone is not None and child.backbone is not None:
        theirs, ours = (
            MODELS.settings(with_sizes(entry.architecture, backbone), where="architecture")
            for entry, backbone in ((parent.entry, parent.backbone), (child.entry, child.backbone))
        )
        yield from ((k, theirs.get(k), ours[k]) for k in ours if theirs.get(k) != ours[k])


def _teacher_faults(
    child: ModelOutline, parent: ModelOutline, objective: Objective
) -> Iterator[str]:
    teacher, student = parent.backbone, child.backbone
    if teacher is None or student is None:
        return
    here = f"{child.where}.parent: {parent.key} cannot teach this model"
    if name_of(parent.entry.objective) == NONE:
        yield f"{here}: it is not trained"
    if reason := objective.incompatibility(teacher):
        yield f"{here}: {name_of(child.entry.objective)} {reason}"
        return
    if reason := too_long(teacher, child.entry.training.max_tokens):
        yield f"{child.where}.training.max_tokens: {reason} ({parent.where}.architecture)"
    for fault in fault_of(objective.learn_from, teacher, student):
        yield f"{here}: {fault}"


def repetition_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields a fault for each model that equals another model, seeds included."""
    for (first, entry), (second, other) in combinations(params.models.items(), 2):
        if entry.model_copy(update={"label": other.label}) == other:
            yield (
                f"models.{second}: is the same as models.{first}; to repeat a model, give one "
                "entry several seeds (`seeds: [1, 2]`)"
            )


def budget_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    matched, reference = params.pretrain.matched, params.pretrain.reference
    yield from unlisted(reference, params.models, "pretrain.reference")
    kind = outlines[reference].kind if reference in outlines else None
    if matched != "none" and kind and not kind.trains:
        yield (
            f"pretrain.reference: {reference} trains nothing, so no model can match it; name a "
            "model that trains, or set `pretrain.matched: none`"
        )
    for outlined in outlines.values():
        entry, is_known = outlined.entry, outlined.backbone is not None or outlined.faults
        if matched == "flops" and entry.is_public and not entry.as_published and not is_known:
            yield (
                f"pretrain.matched: the operations of {outlined.key} are unknown before "
                f"{entry.architecture['path']} is downloaded: match tokens, or use a folder with "
                "the checkpoint"
            )
