"""Faults of methods, and of their combinations with models and tasks. A study leaves out
incompatible combinations; a model, a task or a method that is compatible with nothing is a
fault."""

from collections.abc import Iterator, Mapping
from itertools import product

from stages.checking.outlines import Outlines, fault_of, name_of, unlisted
from stages.core.artifacts import Json
from stages.core.params import Method as Entry
from stages.core.params import Params
from stages.evaluation.records import CLASSICAL
from stages.methods._method import METHODS, Method, SolvedMethod, TrainedMethod
from stages.models._backbone import Backbone, too_long
from stages.optimizers._optimizer import OPTIMIZERS
from stages.tasks._task import TASKS, Task
from stages.trials.compatibility import incompatibility

# Why a method has no trial of a model on a task, by (model, task, method); None if it has some.
Reasons = Mapping[tuple[str, str, str], str | None]


def length_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields a fault for each model with too few positions for ``finetune.max_tokens`` tokens, or
    for these and the text that a task writes."""
    max_tokens = params.finetune.max_tokens
    for outlined in outlines.values():
        where, backbone = f"{outlined.where}.architecture", outlined.backbone
        if backbone is None:
            continue
        if reason := too_long(backbone, max_tokens):
            yield f"finetune.max_tokens: {reason} ({where})"
            continue
        for key, task in _tasks(params).items():
            settings = _settings(params, key)
            if settings is None or not (task.generates and backbone.can_generate):
                continue
            length = settings["max_target_tokens"]
            if reason := too_long(backbone, max_tokens, length):
                yield f"tasks.{key}.task.max_target_tokens: {reason} ({where})"


def _tasks(params: Params) -> dict[str, type[Task]]:
    names = {key: name_of(task.task) for key, task in params.tasks.items()}
    return {key: TASKS.find(n, where="") for key, n in names.items() if n in TASKS.names()}


def _settings(params: Params, task: str) -> Json | None:
    """Returns the settings of a task's component; None if ``task_faults`` reports them."""
    try:
        return TASKS.settings(params.tasks[task].task, where="")
    except ValueError:
        return None


def fit_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields the faults of methods, and of combinations of models, tasks and methods."""
    methods, entries, tasks = dict[str, Method](), params.finetune.methods, _tasks(params)
    for key, entry in entries.items():
        try:
            method = METHODS.build(entry.method, where=f"finetune.methods.{key}.method")
        except ValueError as error:
            yield str(error)
            continue
        faults = [*_entry_faults(params, key, entry, method)]
        yield from faults
        if not any(".only" in fault or ".text_to_text" in fault for fault in faults):
            methods[key] = method
    backbones = {key: o.backbone for key, o in outlines.items() if o.backbone is not None}
    reasons = {
        (model, task, key): entries[key].leaves_out(model)
        or incompatibility(
            method,
            cls,
            name_of(params.tasks[task].task),
            backbone,
            text_to_text=entries[key].text_to_text,
        )
        for (key, method), (model, backbone), (task, cls) in product(
            methods.items(), backbones.items(), tasks.items()
        )
    }
    fitting = [cell for cell, reason in reasons.items() if reason is None]
    longest = params.finetune.max_tokens
    for model, key in dict.fromkeys((model, key) for model, _, key in fitting):
        added, backbone = methods[key].num_added_tokens, backbones[model]
        if not added or too_long(backbone, longest):  # reported by length_faults
            continue
        if reason := too_long(backbone, longest + added):
            where = f"models.{model}.architecture"
            yield f"finetune.methods.{key}.method: {reason} (finetune.max_tokens, {where})"
    has_head = {key for key, m in methods.items() if not (entries[key].text_to_text or m.prompts)}
    for model, task in sorted({(model, task) for model, task, key in fitting if key in has_head}):
        # The label must not be predicted from a state that does not depend on the labelled text.
        settings, objective = _settings(params, task), outlines[model].kind
        if settings is None or objective is None:  # reported elsewhere
            continue
        is_causal = backbones[model].is_causal and not objective.has_prefix
        for fault in fault_of(tasks[task].check_read, is_causal=is_causal, **settings):
            yield f"tasks.{task}.task.{fault} (models.{model}.architecture)"
    if len(methods) == len(entries) and len(tasks) == len(params.tasks):
        yield from _unused_faults(params, reasons, backbones)


def _entry_faults(params: Params, key: str, entry: Entry, method: Method) -> Iterator[str]:
    """Yields the faults of an entry of ``finetune.methods`` by itself."""
    where, name = f"finetune.methods.{key}", name_of(entry.method)
    if key == CLASSICAL:
        yield f"{where}: is reserved for baselines in reports; rename it"
    is_trained = isinstance(method, TrainedMethod)
    if is_trained and entry.training is None:
        yield f"{where}.training: missing; {name} trains"
    if not is_trained and entry.training is not None:
        why = "is solved, not trained" if isinstance(method, SolvedMethod) else "trains nothing"
        yield f"{where}.training: {name} {why}; leave it out"
    if is_trained and entry.training is not None:
        shared = entry.training.optimizer
        yield from fault_of(OPTIMIZERS.settings, shared, where=f"{where}.training.optimizer")
        for model, training in entry.models.items():
            if training.optimizer != shared:
                here = f"{where}.models.{model}.optimizer"
                yield from fault_of(OPTIMIZERS.settings, training.optimizer, where=here)
    for budget in params.finetune.label_budgets:
        if budget != "all" and method.num_shots > int(budget):
            shots = method.num_shots
            yield f"{where}.method.num_shots: {shots} is more than the label budget {budget}"
    for model in entry.only or ():
        yield from unlisted(model, params.models, f"{where}.only")
    for model in entry.models:
        yield from unlisted(model, params.models, f"{where}.models")
        if model in params.models and (reason := entry.leaves_out(model)):
            yield f"{where}.models.{model}: {reason}; add it there, or leave its settings out"
    if method.prompts and entry.text_to_text:
        yield f"{where}.text_to_text: {name} has its own prompts; leave it out"


def _unused_faults(
    params: Params, reasons: Reasons, backbones: Mapping[str, Backbone]
) -> Iterator[str]:
    """Yields a fault for each model, task and method without a single trial."""

    def why_unused(position: int, name: str) -> str:
        """Returns all reasons why a model, task or method has no trial; empty if it has one."""
        own = {cell: reason for cell, reason in reasons.items() if cell[position] == name}
        if not all(own.values()):
            return ""
        return "; ".join(dict.fromkeys(f"{cell[2]}: {reason}" for cell, reason in own.items()))

    if set(backbones) == set(params.models):  # else a model that cannot be built yet might fit
        for key in params.finetune.methods:
            if why := why_unused(2, key):
                yield f"finetune.methods.{key}.method: fits no model and task: {why}"
        for task in params.tasks:
            if why := why_unused(1, task):
                yield f"tasks.{task}.task: fits no model and method: {why}"
    for model in backbones:
        if why := why_unused(0, model):
            yield f"models.{model}.architecture: no method fits it: {why}"
