"""Faults of methods, and of their combinations with runs and tasks. A study leaves out incompatible
combinations; a run, a task or a method that is compatible with nothing is a fault."""

from collections.abc import Iterator, Mapping
from itertools import product

from stages.checking.outlines import Outlines, fault_of, name_of, unlisted
from stages.core.params import Method as Entry
from stages.core.params import Params
from stages.methods._method import METHODS, Method, SolvedMethod, TrainedMethod
from stages.models._backbone import Backbone
from stages.objectives._objective import OBJECTIVES
from stages.optimizers._optimizer import OPTIMIZERS
from stages.tasks._task import TASKS, Task
from stages.trials.compatibility import incompatibility

# Why a method has no trial of a run on a task, by (run, task, method); None if it has some.
Reasons = Mapping[tuple[str, str, str], str | None]


def length_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields a fault for each run whose model cannot read ``finetune.max_tokens`` tokens, or not
    together with the text that a task writes."""
    max_tokens = params.finetune.max_tokens
    for outlined in outlines.values():
        where, backbone = f"{outlined.where}.architecture", outlined.backbone
        if backbone is None:
            continue
        if reason := backbone.too_long(max_tokens):
            yield f"finetune.max_tokens: {reason} ({where})"
            continue
        for key, task in _tasks(params).items():
            if not (task.generates and backbone.can_generate):
                continue
            path = f"tasks.{key}.task"
            try:
                length = TASKS.settings(params.tasks[key].task, where=path)["max_target_tokens"]
            except ValueError:  # reported by task_faults
                continue
            if reason := backbone.too_long(max_tokens, max_target_tokens=length):
                yield f"{path}.max_target_tokens: {reason} ({where})"


def _tasks(params: Params) -> dict[str, type[Task]]:
    names = {key: name_of(task.task) for key, task in params.tasks.items()}
    return {key: TASKS.find(n, where="") for key, n in names.items() if n in TASKS.names()}


def fit_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields the faults of methods, and of combinations of runs, tasks and methods."""
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
        (run, task, key): entries[key].leaves_out(run)
        or incompatibility(
            method,
            cls,
            name_of(params.tasks[task].task),
            backbone,
            text_to_text=entries[key].text_to_text,
        )
        for (key, method), (run, backbone), (task, cls) in product(
            methods.items(), backbones.items(), tasks.items()
        )
    }
    fitting = [cell for cell, reason in reasons.items() if reason is None]
    for key, method in methods.items():
        runs = [run for run in backbones if any((c[0], c[2]) == (run, key) for c in fitting)]
        for run in runs:
            if reason := _too_many_tokens(params, method, backbones[run]):
                where = f"{outlines[run].where}.architecture"
                yield f"finetune.methods.{key}.method: {reason} (finetune.max_tokens, {where})"
        if isinstance(method, TrainedMethod) and entries[key].training is not None:
            yield from _optimizer_faults(entries[key], runs, f"finetune.methods.{key}")
    has_head = {key for key, m in methods.items() if not (entries[key].text_to_text or m.prompts)}
    for run, task in sorted({(run, task) for run, task, key in fitting if key in has_head}):
        is_causal = backbones[run].is_causal
        yield from _read_faults(params, run, task, tasks[task], is_causal=is_causal)
    if len(methods) == len(entries) and len(tasks) == len(params.tasks):
        yield from _unused_faults(params, reasons, backbones)


def _entry_faults(params: Params, key: str, entry: Entry, method: Method) -> Iterator[str]:
    """Yields the faults of an entry of ``finetune.methods`` by itself."""
    where, name = f"finetune.methods.{key}", name_of(entry.method)
    is_trained = isinstance(method, TrainedMethod)
    if is_trained and entry.training is None:
        yield f"{where}.training: missing; {name} trains"
    if not is_trained and entry.training is not None:
        why = "is solved, not trained" if isinstance(method, SolvedMethod) else "trains nothing"
        yield f"{where}.training: {name} {why}; leave it out"
    for budget in params.finetune.label_budgets:
        if budget != "all" and method.num_shots > int(budget):
            shots = method.num_shots
            yield f"{where}.method.num_shots: {shots} is more than the label budget {budget}"
    for run in entry.only or ():
        yield from unlisted(run, params.runs, f"{where}.only")
    for run in entry.runs:
        yield from unlisted(run, params.runs, f"{where}.models")
        if run in params.runs and (reason := entry.leaves_out(run)):
            yield f"{where}.models.{run}: {reason}; add it there, or leave its settings out"
    if method.prompts and entry.text_to_text:
        yield f"{where}.text_to_text: {name} has its own prompts; leave it out"


def _too_many_tokens(params: Params, method: Method, backbone: Backbone) -> str | None:
    """Returns a message if the longest inputs fit the model, but not together with the tokens that
    a method adds. ``length_faults`` reports inputs that do not fit by themselves."""
    longest, added = params.finetune.max_tokens, method.num_added_tokens
    if not added or backbone.too_long(longest):
        return None
    return backbone.too_long(longest, num_added_tokens=added)


def _optimizer_faults(entry: Entry, runs: list[str], where: str) -> Iterator[str]:
    """Yields the faults of a method's optimizer for the first run that has any."""
    for run in runs:
        training, shared = entry.of(run).training, entry.training
        assert training is not None and shared is not None
        is_own, optimizer = training.optimizer != shared.optimizer, training.optimizer
        here = f"{where}.models.{run}.optimizer" if is_own else f"{where}.training.optimizer"
        if faults := [*fault_of(OPTIMIZERS.settings, optimizer, where=here)]:
            yield from faults
            return


def _read_faults(
    params: Params, run: str, task: str, cls: type[Task], *, is_causal: bool
) -> Iterator[str]:
    """Yields a fault if the label would be predicted from a hidden state that does not depend on
    the labelled text."""
    where, entry = f"tasks.{task}.task", params.runs[run]
    try:
        settings = TASKS.settings(params.tasks[task].task, where=where)
        objective = OBJECTIVES.find(name_of(entry.objective), where="")
    except ValueError:  # reported by task_faults and runs_faults
        return
    is_causal = is_causal and not objective.has_prefix
    for fault in fault_of(cls.check_read, is_causal=is_causal, **settings):
        yield f"{where}.{fault} ({entry.where(run)}.architecture)"


def _unused_faults(
    params: Params, reasons: Reasons, backbones: Mapping[str, Backbone]
) -> Iterator[str]:
    """Yields a fault for each run, task and method without a single trial."""

    def why_unused(position: int, name: str) -> str:
        """Returns all reasons why a run, task or method has no trial; empty if it has one."""
        own = {cell: reason for cell, reason in reasons.items() if cell[position] == name}
        if not all(own.values()):
            return ""
        texts = (f"{r}" if position == 2 else f"{cell[2]}: {r}" for cell, r in own.items())
        return "; ".join(dict.fromkeys(texts))

    if set(backbones) == set(params.runs):  # else a run whose model is unknown might fit
        for key, entry in params.finetune.methods.items():
            if why := why_unused(2, key):
                name = name_of(entry.method)
                yield f"finetune.methods.{key}.method: {name} fits no model and task: {why}"
        for task in params.tasks:
            if why := why_unused(1, task):
                yield f"tasks.{task}.task: fits no model and method: {why}"
    for run in backbones:
        if why := why_unused(0, run):
            yield f"{params.runs[run].where(run)}.architecture: no method fits it: {why}"
