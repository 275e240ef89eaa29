"""Validate the whole of params.yaml before anything runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from stages.artifacts import replacing, write_json
from stages.components import build, check, component_class, names, unknown
from stages.models._backbone import Backbone
from stages.params import HUB, NONE, Params, Run
from stages.process import run_stage
from stages.text.labelled import KINDS
from stages.text.tokenizer import NUM_SENTINELS, NUM_SPECIAL, Vocabulary
from stages.training.budget import plans, trains

DATA = Path("data")
NUM_BYTES = 256  # the pieces that byte fallback needs


def main(params: Params) -> None:
    faults = list(find_faults(params))
    if faults:
        raise ValueError("\n".join(faults))
    _write(DATA / "checked", "params.yaml is valid\n")
    # What a run without a parent, a corpus or a tokenizer depends on: there, and always the same.
    _write(DATA / "pretrained" / NONE, "nothing\n")
    _write(DATA / "tokenizers" / NONE, "nothing\n")
    with replacing(DATA / "encoded" / NONE) as folder:
        folder.mkdir()
        for key in (*params.tokenizers, NONE):
            (folder / key).write_text("nothing\n")
    # A run depends on its own plan, so that it runs anew when the reference changes what it means.
    with replacing(DATA / "plans") as folder:
        folder.mkdir()
        for key, plan in plans(params).items():
            write_json(folder / f"{key}.json", asdict(plan))


def find_faults(params: Params) -> Iterator[str]:
    """One line for each thing that is wrong, with its path in params.yaml."""
    for key, corpus in params.corpora.items():
        yield from _source_faults(corpus.source, f"corpora.{key}.source", labelled=False)
    for key, tokenizer in params.tokenizers.items():
        where = f"tokenizers.{key}"
        yield from _unlisted(tokenizer.corpus, params.corpora, f"{where}.corpus")
        least = NUM_SPECIAL + NUM_SENTINELS + (NUM_BYTES if tokenizer.algorithm != "char" else 0)
        if tokenizer.vocab_size <= least:
            yield f"{where}.vocab_size: must be more than {least}, not {tokenizer.vocab_size}"
    for key, task in params.tasks.items():
        where = f"tasks.{key}"
        yield from _source_faults(task.source, f"{where}.source", labelled=True)
        yield from _fault_of(lambda t=task, w=where: _check_task(t.task, f"{w}.task"))
        for budget in params.finetune.label_budgets:
            if budget != "all" and task.num_train != "all" and int(budget) > int(task.num_train):
                yield f"finetune.label_budgets: {budget} is more than {where}.num_train"
    for key, run in params.pretrain.items():
        yield from _run_faults(params, run, f"pretrain.{key}", key)
    yield from _budget_faults(params)
    for key, baseline in params.baselines.items():
        yield from _baseline_faults(params, baseline, f"baselines.{key}")
    for key, method in params.finetune.methods.items():
        where = f"finetune.methods.{key}.method"
        yield from _fault_of(lambda m=method, w=where: build("methods", m.method, where=w))
    yield from _headless_faults(params)
    for name in ("label_budgets", "seeds"):
        values = getattr(params.finetune, name)
        if len(set(values)) < len(values):
            yield f"finetune.{name}: must not repeat a value, not {values}"


def _run_faults(params: Params, run: Run, where: str, key: str) -> Iterator[str]:
    training = run.training
    if training.batch_rows % training.micro_batch_rows:
        yield (
            f"{where}.training.micro_batch_rows: {training.micro_batch_rows} must divide "
            f"batch_rows {training.batch_rows}"
        )
    if training.num_validations > training.num_steps:
        yield f"{where}.training.num_validations: must be at most num_steps {training.num_steps}"
    if run.is_public:
        yield from _public_faults(params, run, where)
        return
    yield from _unlisted(run.tokenizer, params.tokenizers, f"{where}.tokenizer")
    yield from _unlisted(run.corpus, (*params.corpora, NONE), f"{where}.corpus")
    yield from _unlisted(run.parent, (*params.pretrain, NONE), f"{where}.parent")
    circle = [*_circle_faults(params, run, where, key)]
    yield from circle

    faults = [
        *_fault_of(lambda: component_class("models", _name(run.model), where=f"{where}.model")),
        *_fault_of(
            lambda: component_class("objectives", _name(run.objective), where=f"{where}.objective")
        ),
    ]
    yield from faults
    if faults or run.tokenizer not in params.tokenizers:
        return
    vocabulary = Vocabulary(params.tokenizers[run.tokenizer].vocab_size)
    yield from _model_faults(params, run, vocabulary.vocab_size, where)
    yield from _fault_of(
        lambda: build(
            "objectives",
            run.objective,
            vocabulary,
            training.max_tokens,
            where=f"{where}.objective",
        )
    )
    model: Any = component_class("models", run.model["name"], where=where)
    objective: Any = component_class("objectives", run.objective["name"], where=where)
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


def _public_faults(params: Params, run: Run, where: str) -> Iterator[str]:
    """Of a public checkpoint; what only the hub knows is found out when it is downloaded."""
    for setting, given in (
        ("corpus", run.corpus),
        ("tokenizer", run.tokenizer),
        ("parent", run.parent),
        ("objective.name", _name(run.objective)),
    ):
        if given != NONE:
            yield (
                f"{where}.{setting}: must be {NONE}, not {given}: a public checkpoint brings its "
                "own tokenizer and is not pretrained further"
            )
    hub: Any = component_class("models", HUB, where=where)
    settings = {key: value for key, value in run.model.items() if key != "name"}
    try:
        checked = check(hub, settings, where=f"{where}.model")
    except ValueError as error:
        yield str(error)
        return
    try:
        vocab_size = hub.check(**checked)
    except ValueError as error:
        yield f"{where}.model.{error}"
        return
    if vocab_size is not None:
        yield from _model_faults(params, run, vocab_size, where)


def _model_faults(params: Params, run: Run, vocab_size: int, where: str) -> Iterator[str]:
    """Of its own settings, and of texts that are too long for it."""
    try:
        with torch.device("meta"):
            model: Backbone = build("models", run.model, vocab_size, where=f"{where}.model")
    except ValueError as error:
        yield str(error)
        return
    yield from _writing_faults(params, model, where)
    if model.max_positions is None:
        return
    lengths = {"finetune.max_tokens": params.finetune.max_tokens}
    if not run.is_public:
        lengths[f"{where}.training.max_tokens"] = run.training.max_tokens
    for setting, length in lengths.items():
        if length > model.max_positions:
            yield (
                f"{setting}: {length} is more than {where}.model.max_positions, "
                f"{model.max_positions}"
            )


def _writing_faults(params: Params, model: Backbone, where: str) -> Iterator[str]:
    """Of tasks whose answers are written, which every run is fine-tuned on."""
    for key, task in params.tasks.items():
        here = f"tasks.{key}.task"
        try:
            kind: Any = component_class("tasks", _name(task.task), where=here)
            settings = _check("tasks", task.task, here)
        except ValueError:  # which is said where it stands
            continue
        if not kind.generates:
            continue
        if not model.can_generate:
            yield f"{here}: needs models that write text; {where}.model does not"
            continue
        length = settings["max_target_tokens"]
        taken = model.positions_taken(params.finetune.max_tokens, length)
        if model.max_positions is not None and taken > model.max_positions:
            yield (
                f"{here}.max_target_tokens: {length} are with finetune.max_tokens {taken} "
                f"positions, more than {where}.model.max_positions, {model.max_positions}"
            )


def _headless_faults(params: Params) -> Iterator[str]:
    """Of methods that train a head alone, which every task is learnt by."""
    for key, method in params.finetune.methods.items():
        for task_key, task in params.tasks.items():
            try:
                trains: Any = component_class("methods", _name(method.method), where="")
                kind: Any = component_class("tasks", _name(task.task), where="")
            except ValueError:  # which is said where it stands
                continue
            if trains.freezes_backbone and kind.generates:
                yield (
                    f"finetune.methods.{key}.method: {method.method['name']} trains a head alone, "
                    f"and tasks.{task_key}.task has none"
                )


def _budget_faults(params: Params) -> Iterator[str]:
    where, reference = "budget.reference", params.budget.reference
    unlisted = [*_unlisted(reference, params.pretrain, where)]
    yield from unlisted
    if not unlisted:
        run = params.pretrain[reference]
        named = _name(run.objective) in names("objectives")
        if named and not trains(run) and params.budget.matched != "none":
            yield f"{where}: {reference} trains nothing, so that no run can match it"


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
        for setting, (theirs, ours) in _differences(parent, run).items():
            yield (
                f"{here}: the weights of {run.parent} are of another model: {setting} is "
                f"{theirs} there and {ours} here"
            )


def _differences(parent: Run, run: Run) -> dict[str, tuple[Any, Any]]:
    """The settings of two models that differ, defaults filled in; none if one is not valid, which
    is said where it stands."""
    if _name(parent.model) != _name(run.model):
        return {"name": (_name(parent.model), _name(run.model))}
    try:
        theirs, ours = (_check("models", each.model, "model") for each in (parent, run))
    except ValueError:
        return {}
    return {key: (theirs[key], ours[key]) for key in ours if theirs[key] != ours[key]}


def _teacher_faults(params: Params, run: Run, where: str) -> Iterator[str]:
    parent = params.pretrain[run.parent]
    vocabulary = Vocabulary(params.tokenizers[run.tokenizer].vocab_size)
    max_tokens = run.training.max_tokens
    try:
        with torch.device("meta"):
            teacher, student = (
                build("models", each.model, vocabulary.vocab_size, where="")
                for each in (parent, run)
            )
        objective = build("objectives", run.objective, vocabulary, max_tokens, where="")
    except ValueError:  # which is said where it stands
        return
    if _name(parent.objective) == NONE:
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
    for fault in _fault_of(lambda: objective.learn_from(teacher, student)):
        yield f"{where}.parent: {run.parent} cannot teach this run: {fault}"


def _baseline_faults(params: Params, baseline: Mapping[str, Any], where: str) -> Iterator[str]:
    faults = [*_fault_of(lambda: build("baselines", baseline, where=where))]
    yield from faults
    if not faults:
        fits = component_class("baselines", baseline["name"], where=where).fits  # type: ignore[attr-defined]
        if not any(_name(task.task) in fits for task in params.tasks.values()):
            yield f"{where}: fits {', '.join(fits)}, and no task of the study is one"


def _source_faults(source: Mapping[str, Any], where: str, *, labelled: bool) -> Iterator[str]:
    """Those of the settings, and those that the beginnings of the files show."""
    try:
        built = build("sources", source, where=where)
    except ValueError as error:
        yield str(error)
        return
    try:
        built.check(labelled=labelled)
    except ValueError as error:
        yield f"{where}: {error}"


def _check_task(entry: Mapping[str, Any], where: str) -> None:
    _check("tasks", entry, where)
    assert _name(entry) in KINDS


def _check(folder: str, entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of a component that cannot be built as yet, defaults filled in."""
    cls = component_class(folder, _name(entry), where=where)
    return check(cls, {k: v for k, v in entry.items() if k != "name"}, where=where)


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name", ""))


def _unlisted(name: str, listed: Iterable[str], where: str) -> Iterator[str]:
    if name not in listed:
        yield f"{where}: {unknown(name, listed)}"


def _fault_of(attempt: Callable[[], object]) -> Iterator[str]:
    try:
        attempt()
    except ValueError as error:
        yield str(error)


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)


if __name__ == "__main__":
    run_stage(main)
