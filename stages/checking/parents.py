"""Compatibility of a run with its parent, which gives it initial weights or teaches it."""

from collections.abc import Iterator, Mapping

from stages.checking.entries import fault_of, name_of
from stages.checking.outlines import RunOutline
from stages.core.params import NONE, Run
from stages.matching.budget import with_sizes
from stages.models._backbone import MODELS
from stages.models._transformer import OUTPUT_SETTINGS


def cycle_faults(runs: Mapping[str, Run], key: str) -> Iterator[str]:
    seen = [key]
    while (parent := runs[seen[-1]].parent) in runs:
        seen.append(parent)
        if parent in seen[:-1]:
            yield f"{runs[key].where(key)}.parent: {' -> '.join(seen)} forms a cycle"
            return


def parent_faults(child: RunOutline, parent: RunOutline | None) -> Iterator[str]:
    """Yields the faults of the setting ``parent`` of a run, the child. The argument ``parent`` is
    None if the run has no parent or names one that does not exist."""
    run, objective, here = child.run, child.objective, f"{child.where}.parent"
    if parent is not None:
        yield from _seed_faults(child, parent)
    if run.is_public:
        if parent is not None:
            yield from _public_faults(child, parent)
        return
    if objective is None:
        return
    if parent is None:
        if objective.has_teacher and run.parent == NONE:
            yield (
                f"{child.where}.objective: {name_of(run.objective)} needs a teacher; list the run "
                "in pretrain.continued with the teacher as its parent"
            )
    elif not objective.trains:
        yield _trains_nothing(child, parent)
    elif parent.run.tokenizer != run.tokenizer:
        yield (
            f"{here}: {parent.key} has the tokenizer {parent.run.tokenizer}, and this run has "
            f"{run.tokenizer}"
        )
    elif objective.has_teacher:
        yield from _teacher_faults(child, parent)
    else:
        yield from _mask_faults(child, parent)
        for setting, (theirs, ours) in _differences(parent, child).items():
            yield (
                f"{here}: the weights of {parent.key} belong to another model: {setting} is "
                f"{theirs} there and {ours} here"
            )


def _public_faults(child: RunOutline, parent: RunOutline) -> Iterator[str]:
    """Yields the faults of a public checkpoint that continues from ``parent``."""
    if child.run.as_published:
        yield _trains_nothing(child, parent)
    elif parent.run.model != child.run.model:
        path = child.run.model.get("path")
        yield (
            f"{child.where}.parent: {parent.key} has another model; the parent of {path} must be "
            "the same checkpoint, as published or pretrained further"
        )


def _trains_nothing(child: RunOutline, parent: RunOutline) -> str:
    return (
        f"{child.where}.objective: must not be {NONE}, which trains nothing: the run would repeat "
        f"{parent.key}"
    )


def _seed_faults(child: RunOutline, parent: RunOutline) -> Iterator[str]:
    missing = [str(seed) for seed in child.run.seeds if seed not in parent.run.seeds]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        yield (
            f"{child.where}.seeds: {', '.join(missing)} {verb} not among the seeds of the parent "
            f"{parent.key}: {', '.join(map(str, parent.run.seeds))}"
        )


def _differences(parent: RunOutline, child: RunOutline) -> dict[str, tuple[object, object]]:
    """Returns the settings in which two models differ, with defaults, as (parent's, child's).

    An encoder may start from a decoder, and the reverse. Their output layers may differ, since a
    masked language model often has a transform that a causal one lacks.
    """
    names = name_of(parent.run.model), name_of(child.run.model)
    if parent.backbone is None or child.backbone is None:
        return {"name": names} if names[0] != names[1] else {}
    changes_mask = names[0] in child.backbone.starts_from
    if names[0] != names[1] and not changes_mask:
        return {"name": names}
    models = [with_sizes(parent.run.model, parent.backbone)]
    models.append(with_sizes(child.run.model, child.backbone))
    theirs, ours = (MODELS.settings(model, where="model") for model in models)
    ignored = {"name", *OUTPUT_SETTINGS} if changes_mask else set()
    return {
        key: (theirs.get(key), ours[key])
        for key in ours
        if key not in ignored and theirs.get(key) != ours[key]
    }


def _mask_faults(child: RunOutline, parent: RunOutline) -> Iterator[str]:
    """Yields a fault if a run with relative positions has another attention mask than its parent:
    the parent's position biases are learnt for its own mask."""
    if child.backbone is None or name_of(parent.run.model) not in child.backbone.starts_from:
        return
    if child.run.model.get("positions") == "relative":
        yield (
            f"{child.where}.parent: {parent.key} has another attention mask, and relative "
            "positions are learnt for one mask: those of a decoder count distances to earlier "
            "tokens only, those of an encoder in both directions; use other positions in both runs"
        )


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
        yield f"{child.where}.training.max_tokens: {reason} ({parent.where}.model)"
    for fault in fault_of(lambda: objective.learn_from(teacher, student)):
        yield f"{here}: {fault}"
