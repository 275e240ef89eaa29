"""Which methods, runs and tasks go together: what does not is left out of a study, and only what
goes with nothing is a fault."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from stages.checking.entries import name_of
from stages.checking.lengths import too_long
from stages.core.params import Params
from stages.methods._method import METHODS, Method
from stages.models._backbone import Backbone
from stages.tasks._task import TASKS, Task
from stages.trials.compatibility import incompatibility


def fit_faults(params: Params, backbones: Mapping[str, Backbone]) -> Iterator[str]:
    """Of methods that are wrong in themselves or make texts too long for a run; and of runs, tasks
    and methods of which none of the others is fit."""
    tasks = dict(_tasks(params))
    reasons: dict[tuple[str, str, str], str | None] = {}
    for key, entry in params.finetune.methods.items():
        where = f"finetune.methods.{key}"
        try:
            method: Method = METHODS.build(entry.method, where=f"{where}.method")
        except ValueError as error:
            yield str(error)
            continue
        yield from _training_faults(params, method, entry, where)
        if method.prompts and entry.text_to_text:
            name = entry.method["name"]
            yield f"{where}.text_to_text: {name} has prompts of its own; leave it out"
            continue
        for (run, backbone), (task, kind) in product(backbones.items(), tasks.items()):
            reasons[run, task, key] = incompatibility(
                method,
                kind,
                name_of(params.tasks[task].task),
                backbone,
                text_to_text=entry.text_to_text,
            )
        for run, backbone in backbones.items():
            if any(reasons[run, task, key] is None for task in tasks):
                at = f"{where}.method"
                yield from too_long(params, method, backbone, f"pretrain.{run}.model", at)
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
        if name_of(task.task) in TASKS.names():
            yield key, TASKS.find(name_of(task.task), where="")
