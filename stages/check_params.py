"""Validate the whole of params.yaml before anything runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

from stages.adaptation.fit import misfit
from stages.artifacts import replacing, write_json
from stages.code import hashes
from stages.components import below, build, check, component_class, names, unknown
from stages.evaluation.trials import discard_unlisted
from stages.methods._method import Method
from stages.models._backbone import Backbone
from stages.models._blocks import ASPECT_RATIO
from stages.params import HUB, NONE, Params, PublishedTokenizer, Run, Tokenizer
from stages.process import run_stage
from stages.tasks._task import Task
from stages.text.labelled import KINDS, Kind
from stages.text.text_to_text import FORMS
from stages.text.tokenizer import NUM_SENTINELS, NUM_SPECIAL
from stages.training.budget import outline, plans, sized, trains, vocabulary_of
from stages.training.pretraining import built

DATA = Path("data")
TASKS = "tasks"  # the source that is made of the study's tasks
NUM_BYTES = 256  # the pieces that byte fallback needs


def main(params: Params) -> None:
    faults = list(find_faults(params))
    if faults:
        raise ValueError("\n".join(faults))
    # What a run without a parent, a corpus or a tokenizer depends on, and a tokenizer without a
    # corpus: there, and always the same.
    _write(DATA / "corpora" / NONE / "train.jsonl", "nothing\n")
    _write(DATA / "pretrained" / NONE, "nothing\n")
    _write(DATA / "tokenizers" / NONE, "nothing\n")
    with replacing(DATA / "encoded" / NONE) as folder:
        folder.mkdir()
        for key in (*params.tokenizers, NONE):
            (folder / key).write_text("nothing\n")
    # And a corpus that nothing is removed from, and the report of a study without corpora.
    _write(DATA / NONE, "nothing\n")
    _write(DATA / "contamination" / NONE, "nothing\n")
    # Some stages depend on all that lies there: what is listed no more goes, so that they do not
    # run again where that never was.
    discard_unlisted(DATA / "tasks", params.tasks)
    discard_unlisted(DATA / "contamination", [*params.corpora, NONE])
    for key in params.corpora:
        listed = [f"{tokenizer}.json" for tokenizer in params.tokenizers]
        discard_unlisted(DATA / "contamination" / key, listed)
    # A run depends on its own plan, so that it runs anew when the reference changes what it means.
    with replacing(DATA / "plans") as folder:
        folder.mkdir()
        for key, plan in plans(params).items():
            write_json(folder / f"{key}.json", asdict(plan))
    # And each stage on the code that it runs.
    with replacing(DATA / "code") as folder:
        for stage, modules in code_by_stage(params).items():
            file = folder / f"{stage}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, hashes(stage.partition("/")[0], *modules))


def code_by_stage(params: Params) -> dict[str, list[str]]:
    """The components that each stage of dvc.yaml (``stage`` or ``stage/key``) looks up by name.

    A checkpoint and a prepared task hold the hashes of the code of their model and of their task,
    so that fine-tuning, which depends on both, need not name them.
    """
    sources = [f"sources/{corpus.source['name']}" for corpus in params.corpora.values()]
    found = {
        f"prepare_corpus/{key}": [source]
        for key, source in zip(params.corpora, sources, strict=True)
    }
    for key, task in params.tasks.items():
        components = [f"sources/{task.source['name']}", f"tasks/{task.task['name']}"]
        found[f"prepare_task/{key}"] = components
    for key, run in params.pretrain.items():
        components = [f"models/{run.model['name']}", f"objectives/{run.objective['name']}"]
        found[f"pretrain/{key}"] = components
    baselines = {f"baselines/{baseline['name']}" for baseline in params.baselines.values()}
    methods = {f"methods/{entry.method['name']}" for entry in params.finetune.methods.values()}
    alone = ("train_tokenizer", "encode_corpus", "measure_contamination", "evaluate", "report")
    return (
        found
        | dict.fromkeys(alone, [])
        | {
            "fit_baseline": sorted(baselines),
            "finetune": sorted(methods),
        }
    )


def find_faults(params: Params) -> Iterator[str]:
    """One line for each thing that is wrong, with its path in params.yaml."""
    backbones = dict(_backbones(params))
    for key, corpus in params.corpora.items():
        yield from _source_faults(corpus.source, f"corpora.{key}.source", None)
        yield from _mixture_faults(params, corpus.source, f"corpora.{key}.source")
        if _name(corpus.source) == TASKS and corpus.decontaminate_against != NONE:
            yield (
                f"corpora.{key}.decontaminate_against: must be {NONE} for a corpus of tasks: it "
                "leaves out the rows that are tested on, and a row without a sentence is none"
            )
    for key, tokenizer in params.tokenizers.items():
        where = f"tokenizers.{key}"
        if isinstance(tokenizer, PublishedTokenizer):
            yield from _checkpoint_faults(tokenizer.path, tokenizer.revision, where)
            continue
        yield from _unlisted(tokenizer.corpus, params.corpora, f"{where}.corpus")
        least = NUM_SPECIAL + NUM_SENTINELS + (NUM_BYTES if tokenizer.algorithm != "char" else 0)
        if tokenizer.vocab_size <= least:
            yield f"{where}.vocab_size: must be more than {least}, not {tokenizer.vocab_size}"
    for key, task in params.tasks.items():
        where = f"tasks.{key}"
        yield from _source_faults(task.source, f"{where}.source", KINDS.get(_name(task.task)))
        yield from _fault_of(lambda t=task, w=where: _check_task(params, t.task, f"{w}.task"))
        for budget in params.finetune.label_budgets:
            if budget != "all" and task.num_train != "all" and int(budget) > int(task.num_train):
                yield f"finetune.label_budgets: {budget} is more than {where}.num_train"
    for key, run in params.pretrain.items():
        yield from _run_faults(params, run, f"pretrain.{key}", key, backbones.get(key))
    yield from _budget_faults(params, backbones)
    for key, baseline in params.baselines.items():
        yield from _baseline_faults(params, baseline, f"baselines.{key}")
    yield from _fit_faults(params, backbones)
    for name in ("label_budgets", "seeds"):
        values = getattr(params.finetune, name)
        if len(set(values)) < len(values):
            yield f"finetune.{name}: must not repeat a value, not {values}"


def _run_faults(
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
        yield from _public_faults(params, run, where, backbone)
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
    if isinstance(params.tokenizers.get(run.tokenizer), PublishedTokenizer):
        yield (
            f"{where}.tokenizer: {run.tokenizer} is of a public checkpoint, which alone can be "
            f"trained with it; {_name(run.model)} needs one of another algorithm"
        )
        return
    if faults or run.tokenizer not in params.tokenizers:
        return
    vocabulary = vocabulary_of(params, run)
    assert vocabulary is not None
    yield from _model_faults(params, run, vocabulary.vocab_size, where, backbone)
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


def _public_faults(
    params: Params, run: Run, where: str, backbone: Backbone | None
) -> Iterator[str]:
    """Of a public checkpoint; what only the hub knows is found out when it is downloaded."""
    if run.parent != NONE:
        yield (
            f"{where}.parent: must be {NONE}, not {run.parent}: a public checkpoint has weights of "
            "its own"
        )
    if run.as_published:
        for setting, given in (("corpus", run.corpus), ("tokenizer", run.tokenizer)):
            if given != NONE:
                yield (
                    f"{where}.{setting}: must be {NONE}, not {given}: a public checkpoint without "
                    "an objective is as it was published"
                )
    else:
        yield from _further_faults(params, run, where, backbone)
    if backbone is not None:  # its folder was read and found to be what is pinned
        yield from _length_faults(params, run, backbone, where)
        return
    hub: Any = component_class("models", HUB, where=where)
    settings = {key: value for key, value in run.model.items() if key != "name"}
    try:
        checked = check(hub, settings, where=f"{where}.model")
    except ValueError as error:
        yield str(error)
        return
    faults = [*_checkpoint_faults(checked["path"], checked["revision"], f"{where}.model")]
    yield from faults
    if not faults and Path(checked["path"]).is_dir():
        yield from _fault_of(lambda: _outline(run, f"{where}.model"))


def _further_faults(
    params: Params, run: Run, where: str, backbone: Backbone | None
) -> Iterator[str]:
    """Of a public checkpoint that is pretrained further."""
    yield from _unlisted(run.corpus, params.corpora, f"{where}.corpus")
    own = [key for key, entry in params.tokenizers.items() if _is_of(entry, run)]
    if run.tokenizer not in own:
        listed = f"that is {own[0]}" if own else "add it"
        yield (
            f"{where}.tokenizer: must be that of the checkpoint, an entry of tokenizers with "
            f"algorithm {HUB} and the path and revision of {where}.model, not {run.tokenizer}; "
            f"{listed}"
        )
    here, name = f"{where}.objective", _name(run.objective)
    try:
        kind: Any = component_class("objectives", name, where=here)
        _check("objectives", run.objective, here)
    except ValueError as error:
        yield str(error)
        return
    if kind.has_teacher:
        yield f"{here}: {name} has a teacher, and a public checkpoint is taught by no other run"
    elif kind.has_prefix:
        yield f"{here}: {name} shows a prefix in both directions, which a public checkpoint has not"
    elif backbone is not None and run.tokenizer in own:
        vocabulary = vocabulary_of(params, run)
        yield from _fault_of(lambda: _begin_further(run, vocabulary, where))


def _is_of(tokenizer: Tokenizer | PublishedTokenizer, run: Run) -> bool:
    """Whether a tokenizer is that of the run's public checkpoint."""
    pinned = [run.model.get(key) for key in ("path", "revision")]
    return isinstance(tokenizer, PublishedTokenizer) and pinned == [
        tokenizer.path,
        tokenizer.revision,
    ]


def _begin_further(run: Run, vocabulary: Any, where: str) -> None:
    """As ``pretrain`` does, without storage for weights.

    Raises ValueError for what does not go together.
    """
    with torch.device("meta"):
        backbone, objective = built(run, vocabulary, where=where)
        with below(f"{where}.objective"):
            objective.head(backbone)


def _checkpoint_faults(path: str, revision: str, where: str) -> Iterator[str]:
    hub: Any = component_class("models", HUB, where=where)
    try:
        hub.check(path=path, revision=revision)
    except ValueError as error:
        yield f"{where}.{error}"


def _outline(run: Run, where: str) -> Backbone:
    """Of a public checkpoint in a folder, without storage for its weights."""
    hub: Any = component_class("models", HUB, where=where)
    vocabulary = hub.tokenizer_of(run.model, Path(run.model["path"]))
    return outline(run.model, vocabulary.vocab_size, where=where)


def _model_faults(
    params: Params, run: Run, vocab_size: int, where: str, backbone: Backbone | None
) -> Iterator[str]:
    """Of its own settings where they gave no backbone, else of texts that are too long for it."""
    if backbone is None:
        yield from _fault_of(lambda: outline(run.model, vocab_size, where=f"{where}.model"))
    else:
        yield from _length_faults(params, run, backbone, where)


def _length_faults(params: Params, run: Run, model: Backbone, where: str) -> Iterator[str]:
    yield from _writing_faults(params, model, where)
    if model.max_positions is None:
        return
    lengths = {"finetune.max_tokens": params.finetune.max_tokens}
    if not run.is_public:  # what is pretrained further was asked before
        lengths[f"{where}.training.max_tokens"] = run.training.max_tokens
    for setting, length in lengths.items():
        if length > model.max_positions:
            yield (
                f"{setting}: {length} is more than {where}.model.max_positions, "
                f"{model.max_positions}"
            )


def _fit_faults(params: Params, backbones: Mapping[str, Backbone]) -> Iterator[str]:
    """Of methods that are wrong in themselves or make texts too long for a run; and of runs, tasks
    and methods of which none of the others is fit: what does not go together is left out."""
    tasks = dict(_tasks(params))
    reasons: dict[tuple[str, str, str], str | None] = {}
    for key, entry in params.finetune.methods.items():
        where = f"finetune.methods.{key}"
        try:
            method: Method = build("methods", entry.method, where=f"{where}.method")
        except ValueError as error:
            yield str(error)
            continue
        yield from _training_faults(params, method, entry, where)
        if method.prompts and entry.text_to_text:
            name = entry.method["name"]
            yield f"{where}.text_to_text: {name} has prompts of its own; leave it out"
            continue
        for (run, backbone), (task, kind) in product(backbones.items(), tasks.items()):
            reasons[run, task, key] = misfit(
                method,
                kind,
                _name(params.tasks[task].task),
                backbone,
                text_to_text=entry.text_to_text,
            )
        for run, backbone in backbones.items():
            if any(reasons[run, task, key] is None for task in tasks):
                at = f"{where}.method"
                yield from _too_long(params, method, backbone, f"pretrain.{run}.model", at)
    known = {key for _, _, key in reasons}  # the others are wrong in themselves
    if known != set(params.finetune.methods) or set(tasks) != set(params.tasks):
        return
    if set(backbones) == set(params.pretrain):
        for key, entry in params.finetune.methods.items():
            if why := _all_of(reasons, key, place=2):
                name = entry.method["name"]
                yield f"finetune.methods.{key}.method: {name} fits no run and task: it {why}"
        for task in tasks:
            if why := _all_of(reasons, task, place=1):
                yield f"tasks.{task}.task: fits no run and method: {why}"
    for run in backbones:
        if why := _all_of(reasons, run, place=0):
            yield f"pretrain.{run}.model: no method fits it: {why}"


def _all_of(reasons: Mapping[tuple[str, ...], str | None], key: str, *, place: int) -> str:
    """Why nothing goes together with one of the runs, tasks or methods; empty if something does."""
    own = {names: reason for names, reason in reasons.items() if names[place] == key}
    if not own or not all(own.values()):
        return ""
    said = (reason if place == 2 else f"{names[2]} {reason}" for names, reason in own.items())
    return "; ".join(dict.fromkeys(str(each) for each in said))


def _training_faults(params: Params, method: Any, entry: Any, where: str) -> Iterator[str]:
    """A ``training:`` that a method lacks or has no use for; more shots than labels."""
    name = entry.method["name"]
    if method.trains and entry.training is None:
        yield f"{where}.training: missing; say how {name} trains"
    if not method.trains and entry.training is not None:
        yield f"{where}.training: {name} trains nothing; leave it out"
    num_shots = getattr(method, "num_shots", 0)
    for budget in params.finetune.label_budgets:
        if budget != "all" and num_shots > int(budget):
            yield f"{where}.method.num_shots: {num_shots} is more than the label budget {budget}"


def _tasks(params: Params) -> Iterator[tuple[str, type[Task]]]:
    """The classes of the tasks whose names are valid."""
    for key, task in params.tasks.items():
        if _name(task.task) in names("tasks"):
            yield key, component_class("tasks", _name(task.task), where="")


def _backbones(params: Params) -> Iterator[tuple[str, Backbone]]:
    """Of the runs whose models can be described here: not of what only the hub knows, and not of
    what is not valid, which is said where it stands."""
    for key, run in params.pretrain.items():
        try:
            if run.is_public:
                hub: Any = component_class("models", HUB, where="")
                vocab_size = hub.check(**_check("models", run.model, ""))
            else:
                entry = params.tokenizers[run.tokenizer]
                vocab_size = entry.vocab_size if isinstance(entry, Tokenizer) else None
            if vocab_size is not None:
                yield key, outline(run.model, vocab_size, where="")
        except (KeyError, ValueError):
            continue


def _too_long(
    params: Params, method: Method, backbone: Backbone, model: str, where: str
) -> Iterator[str]:
    """A method that adds tokens to the longest text for which there was just room."""
    most, added, asked = backbone.max_positions, method.num_added_tokens, params.finetune.max_tokens
    if most is not None and added and asked + added > most:
        yield (
            f"{where}: adds {added} tokens to the {asked} of finetune.max_tokens, which is more "
            f"than the {most} positions of {model}"
        )


def _writing_faults(params: Params, model: Backbone, where: str) -> Iterator[str]:
    """Of texts to be written that are too long for a model that can write."""
    if model.max_positions is None or not model.can_generate:
        return
    for key, task in params.tasks.items():
        here = f"tasks.{key}.task"
        try:
            kind: Any = component_class("tasks", _name(task.task), where=here)
            settings = _check("tasks", task.task, here)
        except ValueError:  # which is said where it stands
            continue
        if not kind.generates:
            continue
        length = settings["max_target_tokens"]
        taken = model.positions_taken(params.finetune.max_tokens, length)
        if taken > model.max_positions:
            yield (
                f"{here}.max_target_tokens: {length} are with finetune.max_tokens {taken} "
                f"positions, more than {where}.model.max_positions, {model.max_positions}"
            )


def _budget_faults(params: Params, backbones: Mapping[str, Backbone]) -> Iterator[str]:
    where, reference = "budget.reference", params.budget.reference
    unlisted = [*_unlisted(reference, params.pretrain, where)]
    yield from unlisted
    if not unlisted:
        run = params.pretrain[reference]
        named = _name(run.objective) in names("objectives")
        if named and not trains(run) and params.budget.matched != "none":
            yield f"{where}: {reference} trains nothing, so that no run can match it"
    if params.budget.matched == "flops":
        for key, run in params.pretrain.items():
            path = str(run.model.get("path"))
            if run.is_public and not run.as_published and not Path(path).is_dir():
                yield (
                    f"budget.matched: what a step of {key} takes is not known before {path} is "
                    "here: match tokens, or name a folder that it was downloaded to"
                )
    if params.budget.matched == "parameters":
        for key, backbone in backbones.items():
            if backbone.architecture == "bilstm" and backbone.d_model % ASPECT_RATIO:
                yield (
                    f"pretrain.{key}.model.d_model: must be a multiple of {ASPECT_RATIO} where "
                    "budget.matched is parameters, to have those of an encoder in the default "
                    f"shape, not {backbone.d_model}"
                )


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
    if _name(parent.model) != _name(run.model):
        return {"name": (_name(parent.model), _name(run.model))}
    vocabulary = vocabulary_of(params, run)
    assert vocabulary is not None
    try:
        models = [sized(each.model, vocabulary.vocab_size, where="") for each in (parent, run)]
        theirs, ours = (_check("models", model, "model") for model in models)
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


def _source_faults(source: Mapping[str, Any], where: str, kind: Kind | None) -> Iterator[str]:
    """Those of the settings, and those that the beginnings of the files show."""
    try:
        built = build("sources", source, where=where)
    except ValueError as error:
        yield str(error)
        return
    try:
        built.check(kind)
    except ValueError as error:
        yield f"{where}: {error}"


def _mixture_faults(params: Params, source: Mapping[str, Any], where: str) -> Iterator[str]:
    """Of tasks that a corpus is made of."""
    named = source.get("tasks") if _name(source) == TASKS else None
    for task in named if isinstance(named, list) else ():
        if task not in params.tasks:
            yield f"{where}.tasks: {unknown(str(task), params.tasks)}"
        elif (kind := _name(params.tasks[task].task)) not in FORMS:
            yield f"{where}.tasks: {task} is {kind}, which has no answer to write"


def _check_task(params: Params, entry: Mapping[str, Any], where: str) -> None:
    settings = _check("tasks", entry, where)
    assert _name(entry) in KINDS
    task: Any = component_class("tasks", _name(entry), where=where)
    try:
        task.check(params.finetune.max_tokens, **settings)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


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
