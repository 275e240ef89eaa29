"""Faults of runs: their settings, their objective, their parent, and the budget they share."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from stages.budgets.budget import trains, with_sizes
from stages.checking.outlines import (
    Outlines,
    RunOutline,
    belongs_to,
    fault_of,
    file_errors,
    name_of,
    unlisted,
)
from stages.core import paths
from stages.core.components import below
from stages.core.params import HUB, NONE, Params, PublishedTokenizer, Run
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES, Objective
from stages.optimizers._optimizer import OPTIMIZERS
from stages.training.pretraining import built, incompatibilities
from stages.training.ranks import uneven

# Settings of ``training``, each with the other setting that limits its value.
TOGETHER = {"micro_batch_rows": "batch_rows", "num_validations": "num_steps"}


def runs_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields the faults of each run, with the path at which the faulty setting is stated:
    ``pretrain.training`` or the run. Runs take over what they do not state from the first one, so a
    fault that the first run has, too, is reported there alone."""
    of_first = set[str]()
    for position, outlined in enumerate(outlines.values()):
        run, where = outlined.run, outlined.where
        faults = [*_training_faults(params, run, f"{where}.training"), *outlined.faults]
        faults += (_public_faults if run.is_hub else _own_faults)(params, outlined)
        faults += _parent_faults(params, outlined, outlines)
        for fault in faults:
            message = fault.replace(where, "")
            if message in of_first:
                continue
            if position == 0:
                of_first.add(message)
            if setting := re.match(r"\.training\.(\w+)", message):
                keys, common = (
                    (setting[1], TOGETHER.get(setting[1], setting[1])),
                    params.pretrain.training,
                )
                if common and all(getattr(run.training, k) == getattr(common, k) for k in keys):
                    fault = fault.replace(where, "pretrain", 1)
            yield fault


def _objective_of(run: Run) -> type[Objective] | None:
    """Returns the class of a run's objective; None if it is unknown (see ``RunOutline.faults``)."""
    name = name_of(run.objective)
    return OBJECTIVES.find(name, where="") if name in OBJECTIVES.names() else None


def _training_faults(params: Params, run: Run, where: str) -> Iterator[str]:
    training, distributed = run.training, params.distributed
    rows, micro_rows = training.batch_rows, training.micro_batch_rows
    if rows % micro_rows:
        yield f"{where}.micro_batch_rows: must divide batch_rows {rows}, not {micro_rows}"
    if training.num_validations > training.num_steps:
        yield (
            f"{where}.num_validations: must be at most num_steps {training.num_steps}, not "
            f"{training.num_validations}"
        )
    if _objective_of(run) is None or not trains(run):
        return
    if rows % micro_rows == 0 and (reason := uneven(training, distributed)):
        yield f"{where}.micro_batch_rows: {reason}"
    yield from fault_of(OPTIMIZERS.settings, training.optimizer, where=f"{where}.optimizer")
    name = name_of(training.optimizer)
    is_sharded = distributed.strategy == "fsdp" and distributed.num_ranks > 1
    is_known = name in OPTIMIZERS.names()
    if is_sharded and is_known and not OPTIMIZERS.find(name, where="").supports_sharded:
        yield (
            f"{where}.optimizer: {name} needs whole matrices, which distributed.strategy fsdp "
            "shards; set it to ddp, or use adamw"
        )


def _own_faults(params: Params, outlined: RunOutline) -> Iterator[str]:
    """Yields the faults of a run that is no public checkpoint."""
    run, where = outlined.run, outlined.where
    yield from unlisted(run.corpus, (*params.corpora, NONE), f"{where}.corpus")
    yield from unlisted(run.tokenizer, params.tokenizers, f"{where}.tokenizer")
    if isinstance(params.tokenizers.get(run.tokenizer), PublishedTokenizer):
        yield (
            f"{where}.tokenizer: {run.tokenizer} belongs to a public checkpoint and works only "
            f"with it; {name_of(run.architecture)} needs a tokenizer of another algorithm"
        )
    kind = _objective_of(run)
    if kind is not None and kind.trains and run.corpus == NONE:
        yield f"{where}.corpus: {name_of(run.objective)} needs a corpus, not {NONE}"
    backbone, objective = outlined.backbone, outlined.objective
    if backbone is not None and objective is not None and objective.trains:
        yield from incompatibilities(run, backbone, objective, where)


def _public_faults(params: Params, outlined: RunOutline) -> Iterator[str]:
    """Yields the faults of a run of a public checkpoint. What only the hub knows is checked after
    the download."""
    run, where, name = outlined.run, outlined.where, name_of(outlined.run.objective)
    folder = Path(str(run.architecture.get("path")))
    if folder.parent == paths.CHECKPOINTS:
        yield from unlisted(folder.name, params.packaged_checkpoints, f"{where}.architecture.path")
    if name == NONE:
        for setting, given in (("corpus", run.corpus), ("tokenizer", run.tokenizer)):
            if given != NONE:
                yield (
                    f"{where}.{setting}: must be {NONE}, not {given}: a public checkpoint without "
                    "an objective is used as published"
                )
        return
    yield from unlisted(run.corpus, params.corpora, f"{where}.corpus")
    own = [key for key, entry in params.tokenizers.items() if belongs_to(entry, run)]
    if run.tokenizer not in own:
        solution = f"use {own[0]}" if own else "add it"
        yield (
            f"{where}.tokenizer: must be the checkpoint's own, an entry of tokenizers with corpus "
            f"{NONE}, algorithm {HUB} and the path and revision of {where}.architecture, not "
            f"{run.tokenizer}; {solution}"
        )
    kind = _objective_of(run)
    if kind is not None and (kind.has_teacher or kind.has_prefix):
        what = "needs a teacher" if kind.has_teacher else "uses a bidirectional prefix"
        yield f"{where}.objective: {name} {what}; public checkpoints do not support it"
    elif outlined.objective is not None:
        yield from fault_of(_build, outlined)


def _build(outlined: RunOutline) -> None:
    """Builds the model and the objective's head as ``pretrain`` does, with the layers that only
    pretraining needs, but without storage for weights.

    Raises ValueError if the objective and the model are incompatible.
    """
    assert outlined.vocabulary is not None
    with torch.device("meta"):
        backbone, objective = built(outlined.run, outlined.vocabulary, where=outlined.where)
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


def _parent_faults(params: Params, child: RunOutline, outlines: Outlines) -> Iterator[str]:
    """Yields the faults of a run's parent, which gives it initial weights or teaches it."""
    run, objective, here = child.run, child.objective, f"{child.where}.parent"
    if run.parent == NONE:
        if objective is not None and objective.has_teacher:
            yield (
                f"{child.where}.objective: {name_of(run.objective)} needs a teacher; name it as "
                "the model's `parent`"
            )
        return
    yield from unlisted(run.parent, params.runs, here)
    line = [child.key]
    while (ancestor := params.runs[line[-1]].parent) in params.runs:
        line.append(ancestor)
        if ancestor in line[:-1]:
            yield f"{here}: {' -> '.join(line)} forms a cycle"
            return
    if (parent := outlines.get(run.parent)) is None:
        return
    if missing := [str(seed) for seed in run.seeds if seed not in parent.run.seeds]:
        verb = "is" if len(missing) == 1 else "are"
        yield (
            f"{child.where}.seeds: {', '.join(missing)} {verb} not among the seeds of the parent "
            f"{parent.key}: {', '.join(map(str, parent.run.seeds))}"
        )
    if run.as_published or (objective is not None and not objective.trains):
        yield (
            f"{child.where}.objective: must not be {NONE}, which trains nothing: the model would "
            f"repeat {parent.key}"
        )
    elif run.is_hub:
        if parent.run.architecture != run.architecture:
            yield (
                f"{here}: {parent.key} has another model; the parent of "
                f"{run.architecture.get('path')} must be the same checkpoint, as published or "
                "pretrained further"
            )
    elif objective is None:
        return
    elif parent.run.tokenizer != run.tokenizer:
        yield (
            f"{here}: {parent.key} has the tokenizer {parent.run.tokenizer}, and this model has "
            f"{run.tokenizer}"
        )
    elif objective.has_teacher:
        yield from _teacher_faults(child, parent, objective)
    else:
        for setting, theirs, ours in _differences(parent, child):
            yield (
                f"{here}: the weights of {parent.key} belong to another model: {setting} is "
                f"{theirs} there and {ours} here"
            )


def _differences(parent: RunOutline, child: RunOutline) -> Iterator[tuple[str, object, object]]:
    """Yields the settings in which two models differ, with defaults: (name, parent's, child's)."""
    names = [name_of(outlined.run.architecture) for outlined in (parent, child)]
    if names[0] != names[1]:
        yield "name", names[0], names[1]
    elif parent.backbone is not None and child.backbone is not None:
        theirs, ours = (
            MODELS.settings(with_sizes(run.architecture, backbone), where="architecture")
            for run, backbone in ((parent.run, parent.backbone), (child.run, child.backbone))
        )
        yield from ((k, theirs.get(k), ours[k]) for k in ours if theirs.get(k) != ours[k])


def _teacher_faults(child: RunOutline, parent: RunOutline, objective: Objective) -> Iterator[str]:
    teacher, student = parent.backbone, child.backbone
    if teacher is None or student is None:
        return
    here = f"{child.where}.parent: {parent.key} cannot teach this model"
    if name_of(parent.run.objective) == NONE:
        yield f"{here}: it is not trained"
    if reason := objective.incompatibility(teacher):
        yield f"{here}: {name_of(child.run.objective)} {reason}"
        return
    if reason := teacher.too_long(child.run.training.max_tokens):
        yield f"{child.where}.training.max_tokens: {reason} ({parent.where}.architecture)"
    for fault in fault_of(objective.learn_from, teacher, student):
        yield f"{here}: {fault}"


def repetition_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields a fault for each run that equals another run, seeds included."""
    for (first, run), (second, other) in combinations(params.runs.items(), 2):
        if run.model_copy(update={"label": other.label}) == other:
            yield (
                f"{other.where(second)}: is the same as {run.where(first)}; to repeat a model, "
                f"give one entry several seeds (`seeds: [1, 2]`)"
            )


def budget_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    matched, reference = params.pretrain.matched, params.pretrain.reference
    yield from unlisted(reference, params.runs, "pretrain.reference")
    run = params.runs.get(reference)
    if matched != "none" and run and _objective_of(run) and not trains(run):
        yield (
            f"pretrain.reference: {reference} trains nothing, so no model can match it; name a "
            "model that trains, or set `pretrain.matched: none`"
        )
    for outlined in outlines.values():
        run, is_known = outlined.run, outlined.backbone is not None or outlined.faults
        if matched == "flops" and run.is_public and not run.as_published and not is_known:
            yield (
                f"pretrain.matched: the operations of {outlined.key} are unknown before "
                f"{run.architecture['path']} is downloaded: match tokens, or use a folder with the "
                "checkpoint"
            )
