"""Compatibility of methods with runs and tasks. A study leaves out incompatible combinations; a
run, a task or a method that is compatible with nothing is a fault."""

from collections.abc import Iterator, Mapping
from itertools import product

from stages.checking.entries import fault_of, name_of, unlisted
from stages.checking.optimizers import finetuning_faults
from stages.core.params import Finetune, NumberOrAll, Run
from stages.core.params import Method as MethodEntry
from stages.core.params import Task as TaskEntry
from stages.methods._method import METHODS, Method, SolvedMethod, TrainedMethod
from stages.models._backbone import Backbone
from stages.objectives._objective import OBJECTIVES
from stages.tasks._task import TASKS
from stages.trials.compatibility import incompatibility
from stages.trials.variants import readings

# (run, task, method): why they are incompatible, or None
Reasons = dict[tuple[str, str, str], str | None]


def fit_faults(
    finetune: Finetune,
    tasks: Mapping[str, TaskEntry],
    runs: Mapping[str, Run],
    backbones: Mapping[str, Backbone],
) -> Iterator[str]:
    """Yields the faults of combinations of runs, tasks and methods. ``backbones`` has the models of
    the valid runs whose model is known."""
    names = {key: name_of(task.task) for key, task in tasks.items()}
    valid = {key: name for key, name in names.items() if name in TASKS.names()}
    kinds = {key: TASKS.find(name, where="") for key, name in valid.items()}
    methods: dict[str, Method] = {}
    for key, entry in finetune.methods.items():
        where = f"finetune.methods.{key}"
        try:
            method = METHODS.build(entry.method, where=f"{where}.method")
        except ValueError as error:
            yield str(error)
            continue
        yield from _training_faults(method, entry, finetune.label_budgets, where)
        if unknown := [run for run in entry.only or () if run not in runs]:
            yield from unlisted(unknown[0], runs, f"{where}.only")
            continue
        for run in entry.runs:
            yield from unlisted(run, runs, f"{where}.runs")
            if run in runs and (reason := entry.leaves_out(run)):
                yield f"{where}.runs.{run}: {reason}; add it there, or leave its settings out"
        if method.prompts and entry.text_to_text:
            name = name_of(entry.method)
            yield f"{where}.text_to_text: {name} has its own prompts; leave it out"
        else:
            methods[key] = method
    reasons: Reasons = {
        (run, task, key): finetune.methods[key].leaves_out(run)
        or incompatibility(
            method,
            kind,
            name_of(tasks[task].task),
            backbone,
            text_to_text=finetune.methods[key].text_to_text,
        )
        for (key, method), (run, backbone), (task, kind) in product(
            methods.items(), backbones.items(), kinds.items()
        )
    }
    for (key, method), (run, backbone) in product(methods.items(), backbones.items()):
        if any(reasons[run, task, key] is None for task in kinds):
            model = f"{runs[run].where(run)}.model"
            yield from _added_tokens_faults(method, key, backbone, finetune.max_tokens, model)
    for key, method in methods.items():
        if finetune.methods[key].training is not None and isinstance(method, TrainedMethod):
            trained = {
                run: backbone
                for run, backbone in backbones.items()
                if any(reasons[run, task, key] is None for task in kinds)
            }
            entry = finetune.methods[key]
            yield from finetuning_faults(entry, method, trained, f"finetune.methods.{key}")
    headed = {
        (run, task)
        for (run, task, key), reason in reasons.items()
        if reason is None and not (finetune.methods[key].text_to_text or methods[key].prompts)
    }
    for run, task in sorted(headed):
        yield from _read_faults(runs[run], backbones[run], tasks[task], run=run, task=task)
    if len(methods) == len(finetune.methods) and len(kinds) == len(tasks):
        yield from _unused_faults(reasons, finetune.methods, runs, backbones)


def _unused_faults(
    reasons: Reasons,
    methods: Mapping[str, MethodEntry],
    runs: Mapping[str, Run],
    backbones: Mapping[str, Backbone],
) -> Iterator[str]:
    """Yields a fault for each run, task and method without a single trial."""
    if set(backbones) == set(runs):  # else a run whose model is unknown might fit
        for key, entry in methods.items():
            if why := _why_unused(reasons, key, place=2):
                name = name_of(entry.method)
                yield f"finetune.methods.{key}.method: {name} fits no run and task: {why}"
        for task in dict.fromkeys(task for _, task, _ in reasons):
            if why := _why_unused(reasons, task, place=1):
                yield f"tasks.{task}.task: fits no run and method: {why}"
    for run in backbones:
        if why := _why_unused(reasons, run, place=0):
            yield f"{runs[run].where(run)}.model: no method fits it: {why}"


def _read_faults(
    entry: Run, backbone: Backbone, task_entry: TaskEntry, *, run: str, task: str
) -> Iterator[str]:
    """Yields a fault if, with every value of its settings that the task tries, the label would be
    predicted from a hidden state that does not depend on the labelled text."""
    where = f"tasks.{task}.task"
    try:
        TASKS.settings(task_entry.task, where=where)
        objective = OBJECTIVES.find(name_of(entry.objective), where="")
    except ValueError:  # reported by task_faults and run_faults
        return
    has_prefix = objective.has_prefix
    for fault in fault_of(
        lambda: readings(task_entry.task, backbone, has_prefix=has_prefix, where=where)
    ):
        yield f"{fault} ({entry.where(run)}.model)"


def _why_unused(reasons: Reasons, key: str, *, place: int) -> str:
    """Returns all reasons why a run, task or method has no trial, or an empty text if it has one.
    ``place`` is 0 for a run, 1 for a task and 2 for a method."""
    own = {names: reason for names, reason in reasons.items() if names[place] == key}
    if not own or not all(own.values()):
        return ""
    shown = (reason if place == 2 else f"{names[2]}: {reason}" for names, reason in own.items())
    return "; ".join(dict.fromkeys(map(str, shown)))


def _training_faults(
    method: Method, entry: MethodEntry, label_budgets: list[NumberOrAll], where: str
) -> Iterator[str]:
    name = name_of(entry.method)
    is_trained = isinstance(method, TrainedMethod)
    if is_trained and entry.training is None:
        yield f"{where}.training: missing; {name} trains"
    if not is_trained and entry.training is not None:
        why = "is solved, not trained" if isinstance(method, SolvedMethod) else "trains nothing"
        yield f"{where}.training: {name} {why}; leave it out"
    if not is_trained and entry.runs:
        yield f"{where}.runs: {name} has no training whose settings could differ; leave it out"
    for budget in label_budgets:
        if budget != "all" and method.num_shots > int(budget):
            yield (
                f"{where}.method.num_shots: {method.num_shots} is more than the label budget "
                f"{budget}"
            )


def _added_tokens_faults(
    method: Method, key: str, backbone: Backbone, max_tokens: int, model: str
) -> Iterator[str]:
    """Yields a fault if the longest inputs fit the model, but not together with the tokens that a
    method adds. ``length_faults`` reports inputs that do not fit by themselves."""
    added = method.num_added_tokens
    if not added or backbone.too_long(max_tokens):
        return
    if reason := backbone.too_long(max_tokens, num_added_tokens=added):
        yield f"finetune.methods.{key}.method: {reason} (finetune.max_tokens, {model})"
