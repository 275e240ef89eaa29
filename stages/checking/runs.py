"""The entries of ``pretrain:``, one by one and beside their parents."""

from collections.abc import Iterator
from typing import Any

from stages.checking.entries import fault_of, name_of, unlisted
from stages.checking.lengths import length_faults
from stages.checking.public_checkpoints import public_faults
from stages.core.params import HUB, NONE, Params, PublishedTokenizer, Run, Tokenizer
from stages.matching.budget import outline, sized, vocabulary_of
from stages.models._backbone import MODELS, Backbone
from stages.objectives._objective import OBJECTIVES


def backbones_of(params: Params) -> Iterator[tuple[str, Backbone]]:
    """Of the runs whose models can be described here: not of what only the hub knows, and not of
    what is not valid, which is said where it stands."""
    for key, run in params.pretrain.items():
        try:
            if run.is_public:
                hub: Any = MODELS.find(HUB, where="")
                vocab_size = hub.check(**MODELS.settings(run.model, where=""))
            else:
                entry = params.tokenizers[run.tokenizer]
                vocab_size = entry.vocab_size if isinstance(entry, Tokenizer) else None
            if vocab_size is not None:
                yield key, outline(run.model, vocab_size, where="")
        except (KeyError, ValueError):
            continue


def run_faults(
    params: Params, run: Run, where: str, key: str, backbone: Backbone | None
) -> Iterator[str]:
    training = run.training
    if training.batch_rows % training.micro_batch_rows:
        yield (
            f"{where}.training.micro_batch_rows: {training.micro_batch_rows} must divide "
            f"batch_rows {training.batch_rows}"
        )
    if training.num_validations > training.num_steps:
        yield f"{where}.training.num_validations: must be at most num_steps {training.num_steps}"
    if run.is_public:
        yield from public_faults(params, run, where, backbone)
        return
    yield from unlisted(run.tokenizer, params.tokenizers, f"{where}.tokenizer")
    yield from unlisted(run.corpus, (*params.corpora, NONE), f"{where}.corpus")
    yield from unlisted(run.parent, (*params.pretrain, NONE), f"{where}.parent")
    circle = [*_circle_faults(params, run, where, key)]
    yield from circle

    faults = [
        *fault_of(lambda: MODELS.find(name_of(run.model), where=f"{where}.model")),
        *fault_of(lambda: OBJECTIVES.find(name_of(run.objective), where=f"{where}.objective")),
    ]
    yield from faults
    if isinstance(params.tokenizers.get(run.tokenizer), PublishedTokenizer):
        yield (
            f"{where}.tokenizer: {run.tokenizer} is of a public checkpoint, which alone can be "
            f"trained with it; {name_of(run.model)} needs one of another algorithm"
        )
        return
    if faults or run.tokenizer not in params.tokenizers:
        return
    vocabulary = vocabulary_of(params, run)
    assert vocabulary is not None
    yield from _model_faults(params, run, vocabulary.vocab_size, where, backbone)
    yield from fault_of(
        lambda: OBJECTIVES.build(
            run.objective,
            vocabulary,
            training.max_tokens,
            where=f"{where}.objective",
        )
    )
    model: Any = MODELS.find(run.model["name"], where=where)
    objective: Any = OBJECTIVES.find(run.objective["name"], where=where)
    if model.architecture not in objective.architectures:
        yield (
            f"{where}.objective: {run.objective['name']} does not fit {model.architecture}; "
            f"it fits {', '.join(objective.architectures)}"
        )
    if objective.trains and run.corpus == NONE:
        yield f"{where}.corpus: {run.objective['name']} needs a corpus, not {NONE}"
    if run.objective.get("next_sentence", NONE) != NONE and run.model.get("num_segments") == 1:
        yield (
            f"{where}.model.num_segments: must be 2 for the pairs of next_sentence, or 0 to not "
            "tell their texts apart, not 1"
        )
    if not circle:
        yield from _parent_faults(params, run, where, objective)


def _model_faults(
    params: Params, run: Run, vocab_size: int, where: str, backbone: Backbone | None
) -> Iterator[str]:
    """Of its own settings where they gave no backbone, else of texts that are too long for it."""
    if backbone is None:
        yield from fault_of(lambda: outline(run.model, vocab_size, where=f"{where}.model"))
    else:
        yield from length_faults(params, run, backbone, where)


def _circle_faults(params: Params, run: Run, where: str, key: str) -> Iterator[str]:
    parent = params.pretrain.get(run.parent)
    seen = [key]
    while parent is not None:
        if run.parent in seen:
            yield f"{where}.parent: {' -> '.join([*seen, run.parent])} goes round in a circle"
            return
        seen.append(run.parent)
        run, parent = parent, params.pretrain.get(parent.parent)


def _parent_faults(params: Params, run: Run, where: str, objective: Any) -> Iterator[str]:
    """Whether the run can learn from its parent if that is its teacher, else go on from it."""
    parent, here = params.pretrain.get(run.parent), f"{where}.parent"
    if parent is None:
        if objective.has_teacher and run.parent == NONE:
            yield f"{here}: {run.objective['name']} needs a teacher, not {NONE}"
    elif not objective.trains:
        yield f"{where}.objective: none leaves {run.parent} as it is; give the run an objective"
    elif parent.tokenizer != run.tokenizer:
        yield f"{here}: {run.parent} has the tokenizer {parent.tokenizer}, not {run.tokenizer}"
    elif objective.has_teacher:
        yield from _teacher_faults(params, run, where)
    else:
        for setting, (theirs, ours) in _differences(params, parent, run).items():
            yield (
                f"{here}: the weights of {run.parent} are of another model: {setting} is "
                f"{theirs} there and {ours} here"
            )


def _differences(params: Params, parent: Run, run: Run) -> dict[str, tuple[Any, Any]]:
    """The settings of two models that differ, defaults filled in; none if one is not valid, which
    is said where it stands."""
    if name_of(parent.model) != name_of(run.model):
        return {"name": (name_of(parent.model), name_of(run.model))}
    vocabulary = vocabulary_of(params, run)
    assert vocabulary is not None
    try:
        models = [sized(each.model, vocabulary.vocab_size, where="") for each in (parent, run)]
        theirs, ours = (MODELS.settings(model, where="model") for model in models)
    except ValueError:
        return {}
    return {key: (theirs[key], ours[key]) for key in ours if theirs[key] != ours[key]}


def _teacher_faults(params: Params, run: Run, where: str) -> Iterator[str]:
    parent = params.pretrain[run.parent]
    vocabulary, max_tokens = vocabulary_of(params, run), run.training.max_tokens
    assert vocabulary is not None
    try:
        teacher, student = (
            outline(each.model, vocabulary.vocab_size, where="") for each in (parent, run)
        )
        objective = OBJECTIVES.build(run.objective, vocabulary, max_tokens, where="")
    except ValueError:  # which is said where it stands
        return
    if name_of(parent.objective) == NONE:
        yield f"{where}.parent: {run.parent} is not trained, so that it cannot teach"
    if teacher.architecture not in objective.architectures:
        yield (
            f"{where}.parent: {run.parent} is of architecture {teacher.architecture}; "
            f"{run.objective['name']} fits {', '.join(objective.architectures)}"
        )
        return
    if teacher.max_positions is not None and teacher.max_positions < max_tokens:
        yield (
            f"{where}.training.max_tokens: {max_tokens} is more than "
            f"pretrain.{run.parent}.model.max_positions, {teacher.max_positions}"
        )
    for fault in fault_of(lambda: objective.learn_from(teacher, student)):
        yield f"{where}.parent: {run.parent} cannot teach this run: {fault}"
