"""Faults of runs: their settings, their objective, their parent, and the budget they share."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from stages.budgets.budget import trains, with_sizes
from stages.checking.entries import fault_of, file_errors, name_of, unlisted
from stages.checking.outlines import Outlines, RunOutline, belongs_to
from stages.core import paths
from stages.core.components import below
from stages.core.params import HUB, NONE, Distributed, Params, PublishedTokenizer, Run
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES
from stages.optimizers._optimizer import OPTIMIZERS
from stages.training.pretraining import built, incompatibilities
from stages.training.ranks import uneven

# Settings of ``training``, each with the other setting that limits its value.
TOGETHER = {"micro_batch_rows": "batch_rows", "num_validations": "num_steps"}


def runs_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields the faults of each run, with the path at which the faulty setting is stated: in
    ``pretrain.training``, or in the first run if that has the same fault."""
    first, reported = next(iter(outlines.values())), set[str]()
    for outlined in outlines.values():
        for fault in _run_faults(params, outlined, outlines):
            path, colon, message = fault.partition(": ")
            section, _, rest = path.partition(".training.")
            setting = rest.partition(".")[0]
            stated = outlined.run.training.model_fields_set
            if setting and not {setting, TOGETHER.get(setting)} & stated:
                path = f"pretrain.training.{rest}"
            shared = f"{path}{colon}{message}".replace(outlined.where, first.where)
            if shared not in reported or outlined is first:
                yield f"{path}{colon}{message}"
            if outlined is first or path.startswith("pretrain.training"):
                reported.add(shared)


def _run_faults(params: Params, outlined: RunOutline, outlines: Outlines) -> Iterator[str]:
    run, where = outlined.run, outlined.where
    yield from _training_faults(params.distributed, run, f"{where}.training")
    yield from outlined.faults
    if run.parent != NONE:
        yield from unlisted(run.parent, params.runs, f"{where}.parent")
    yield from (_public_faults if run.is_hub else _own_faults)(params, outlined)
    cycle = [*_cycle_faults(params, outlined)]
    yield from cycle or _parent_faults(outlined, outlines.get(run.parent))


def _own_faults(params: Params, outlined: RunOutline) -> Iterator[str]:
    """Yields the faults of a run that is no public checkpoint."""
    run, where, name = outlined.run, outlined.where, name_of(outlined.run.objective)
    yield from unlisted(run.corpus, (*params.corpora, NONE), f"{where}.corpus")
    yield from unlisted(run.tokenizer, params.tokenizers, f"{where}.tokenizer")
    if isinstance(params.tokenizers.get(run.tokenizer), PublishedTokenizer):
        yield (
            f"{where}.tokenizer: {run.tokenizer} belongs to a public checkpoint and works only "
            f"with it; {name_of(run.architecture)} needs a tokenizer of another algorithm"
        )
    if name in OBJECTIVES.names() and OBJECTIVES.find(name, where="").trains and run.corpus == NONE:
        yield f"{where}.corpus: {name} needs a corpus, not {NONE}"
    backbone, objective = outlined.backbone, outlined.objective
    if backbone is not None and objective is not None and objective.trains:
        yield from incompatibilities(run, backbone, objective, where)


def _training_faults(distributed: Distributed, run: Run, where: str) -> Iterator[str]:
    training = run.training
    divides = training.batch_rows % training.micro_batch_rows == 0
    if not divides:
        yield (
            f"{where}.micro_batch_rows: must divide batch_rows {training.batch_rows}, not "
            f"{training.micro_batch_rows}"
        )
    if training.num_validations > training.num_steps:
        yield (
            f"{where}.num_validations: must be at most num_steps {training.num_steps}, not "
            f"{training.num_validations}"
        )
    if name_of(run.objective) not in OBJECTIVES.names() or not trains(run):
        return
    if divides and (reason := uneven(training, distributed)):
        yield f"{where}.micro_batch_rows: {reason}"
    yield from fault_of(lambda: OPTIMIZERS.settings(training.optimizer, where=f"{where}.optimizer"))
    name = name_of(training.optimizer)
    is_sharded = distributed.strategy == "fsdp" and distributed.num_ranks > 1
    is_known = name in OPTIMIZERS.names()
    if is_sharded and is_known and not OPTIMIZERS.find(name, where="").supports_sharded:
        yield (
            f"{where}.optimizer: {name} needs whole matrices, which distributed.strategy fsdp "
            "shards; set it to ddp, or use adamw"
        )


def repetition_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields a fault for each run that equals another run, seeds included."""
    for (first, run), (second, other) in combinations(params.runs.items(), 2):
        if run == other:
            yield (
                f"{other.where(second)}: is the same as {run.where(first)}; to repeat a run, give "
                f"one entry several seeds (`seeds: [1, 2]`)"
            )


def budget_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    matched, reference = params.budget.matched, params.budget.reference
    yield from unlisted(reference, params.runs, "pretrain.reference")
    run = params.runs.get(reference)
    is_known = run is not None and name_of(run.objective) in OBJECTIVES.names()
    if matched != "none" and is_known and not trains(run):
        yield (
            f"pretrain.reference: {reference} trains nothing, so no run can match it; name a run "
            "that trains, or set `pretrain.matched: none`"
        )
    for outlined in outlines.values():
        run, is_known = outlined.run, outlined.backbone is not None or outlined.faults
        if matched == "flops" and run.is_public and not run.as_published and not is_known:
            yield (
                f"pretrain.matched: the operations of {outlined.key} are unknown before "
                f"{run.architecture['path']} is downloaded: match tokens, or use a folder with the "
                "checkpoint"
            )


# Public checkpoints. What only the hub knows is checked after the download. ----------------------


def _public_faults(params: Params, outlined: RunOutline) -> Iterator[str]:
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
    if name not in OBJECTIVES.names():
        return
    kind = OBJECTIVES.find(name, where="")
    if kind.has_teacher or kind.has_prefix:
        what = "needs a teacher" if kind.has_teacher else "uses a bidirectional prefix"
        yield f"{where}.objective: {name} {what}; public checkpoints do not support it"
    elif outlined.objective is not None:
        yield from fault_of(lambda: _build(outlined))


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


# A run's parent, which gives it initial weights or teaches it. -----------------------------------


def _cycle_faults(params: Params, outlined: RunOutline) -> Iterator[str]:
    seen = [outlined.key]
    while (parent := params.runs[seen[-1]].parent) in params.runs:
        seen.append(parent)
        if parent in seen[:-1]:
            yield f"{outlined.where}.parent: {' -> '.join(seen)} forms a cycle"
            return


def _parent_faults(child: RunOutline, parent: RunOutline | None) -> Iterator[str]:
    """Yields the faults of the setting ``parent`` of a run, the child. The argument ``parent`` is
    None if the run has no parent or names one that does not exist."""
    run, objective, here = child.run, child.objective, f"{child.where}.parent"
    if parent is None:
        if objective is not None and objective.has_teacher and run.parent == NONE:
            yield (
                f"{child.where}.objective: {name_of(run.objective)} needs a teacher; list the run "
                "in pretrain.continued with the teacher as its parent"
            )
        return
    if missing := [str(seed) for seed in run.seeds if seed not in parent.run.seeds]:
        verb = "is" if len(missing) == 1 else "are"
        yield (
            f"{child.where}.seeds: {', '.join(missing)} {verb} not among the seeds of the parent "
            f"{parent.key}: {', '.join(map(str, parent.run.seeds))}"
        )
    if run.as_published or (objective is not None and not objective.trains):
        yield (
            f"{child.where}.objective: must not be {NONE}, which trains nothing: the run would "
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
            f"{here}: {parent.key} has the tokenizer {parent.run.tokenizer}, and this run has "
            f"{run.tokenizer}"
        )
    elif objective.has_teacher:
        yield from _teacher_faults(child, parent)
    else:
        for setting, (theirs, ours) in _differences(parent, child).items():
            yield (
                f"{here}: the weights of {parent.key} belong to another model: {setting} is "
                f"{theirs} there and {ours} here"
            )


def _differences(parent: RunOutline, child: RunOutline) -> dict[str, tuple[object, object]]:
    """Returns the settings in which two models differ, with defaults, as (parent's, child's)."""
    names = name_of(parent.run.architecture), name_of(child.run.architecture)
    if names[0] != names[1]:
        return {"name": names}
    sized = [
        with_sizes(each.run.architecture, each.backbone)
        for each in (parent, child)
        if each.backbone is not None
    ]
    if len(sized) < 2:
        return {}
    theirs, ours = (MODELS.settings(entry, where="architecture") for entry in sized)
    return {key: (theirs.get(key), ours[key]) for key in ours if theirs.get(key) != ours[key]}


def _teacher_faults(child: RunOutline, parent: RunOutline) -> Iterator[str]:
    teacher, student, objective = parent.backbone, child.backbone, child.objective
    if teacher is None or student is None or objective is None:
        return
    here = f"{child.where}.parent: {parent.key} cannot teach this run"
    if name_of(parent.run.objective) == NONE:
        yield f"{here}: it is not trained"
    if reason := objective.incompatibility(teacher):
        yield f"{here}: {name_of(child.run.objective)} {reason}"
        return
    if reason := teacher.too_long(child.run.training.max_tokens):
        yield f"{child.where}.training.max_tokens: {reason} ({parent.where}.architecture)"
    for fault in fault_of(lambda: objective.learn_from(teacher, student)):
        yield f"{here}: {fault}"
