"""Faults of methods, and of their combinations with runs and tasks. A study leaves out incompatible
combinations; a run, a task or a method that is compatible with nothing is a fault."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from stages.checking.entries import fault_of, name_of, unlisted
from stages.checking.outlines import Outlines
from stages.core.params import Method as Entry
from stages.core.params import Params
from stages.methods._method import METHODS, Method, SolvedMethod, TrainedMethod
from stages.models._backbone import Backbone
from stages.objectives._objective import OBJECTIVES
from stages.optimizers._optimizer import OPTIMIZERS
from stages.tasks._task import TASKS, Task
from stages.trials.compatibility import incompatibility


def length_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields a fault for each run whose model cannot read ``finetune.max_tokens`` tokens, or not
    together with the text that a task writes."""
    max_tokens = params.finetune.max_tokens
    writing = {key: task for key, task in _tasks(params).items() if task.generates}
    for outlined in outlines.values():
        where, backbone = f"{outlined.where}.architecture", outlined.backbone
        if backbone is None:
            continue
        if reason := backbone.too_long(max_tokens):
            yield f"finetune.max_tokens: {reason} ({where})"
        elif backbone.can_generate:
            for key in writing:
                entry = params.tasks[key].task
                path = f"tasks.{key}.task"
                try:
                    length = TASKS.settings(entry, where=path)["max_target_tokens"]
                except ValueError:  # reported by task_faults
                    continue
                if reason := backbone.too_long(max_tokens, max_target_tokens=length):
                    yield f"{path}.max_target_tokens: {reason} ({where})"


def _tasks(params: Params) -> dict[str, type[Task]]:
    names = {key: name_of(task.task) for key, task in params.tasks.items()}
    return {key: TASKS.find(n, where="") for key, n in names.items() if n in TASKS.names()}


def fit_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields the faults of methods, and of combinations of runs, tasks and methods."""
    methods, entries = dict[str, Method](), params.finetune.methods
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
    tasks = _tasks(params)
    cells = [
        _Cell(
            run,
            task,
            key,
            entries[key].leaves_out(run)
            or incompatibility(
                method,
                cls,
                name_of(params.tasks[task].task),
                backbone,
                text_to_text=entries[key].text_to_text,
            ),
        )
        for (key, method), (run, backbone), (task, cls) in product(
            methods.items(), backbones.items(), tasks.items()
        )
    ]
    fitting = [cell for cell in cells if cell.reason is None]
    for key, method in methods.items():
        runs = [run for run in backbones if any((c.run, c.method) == (run, key) for c in fitting)]
        for run in runs:
            where = f"{outlines[run].where}.architecture"
            yield from _added_tokens_faults(params, key, method, backbones[run], where)
        if isinstance(method, TrainedMethod) and entries[key].training is not None:
            yield from _optimizer_faults(entries[key], runs, f"finetune.methods.{key}")
    for run, task in sorted({(cell.run, cell.task) for cell in fitting if cell.has_head(params)}):
        is_causal = backbones[run].is_causal
        yield from _read_faults(params, run, task, tasks[task], is_causal=is_causal)
    if len(methods) == len(entries) and len(tasks) == len(params.tasks):
        yield from _unused_faults(params, cells, backbones)


@dataclass(frozen=True)
class _Cell:
    """A run, a task and a method, and why they are incompatible; None if they are not."""

    run: str
    task: str
    method: str
    reason: str | None

    def has_head(self, params: Params) -> bool:
        entry = params.finetune.methods[self.method]
        prompts = METHODS.find(name_of(entry.method), where="").prompts
        return not (entry.text_to_text or prompts)


def _entry_faults(params: Params, key: str, entry: Entry, method: Method) -> Iterator[str]:
    """Yields the faults of an entry of ``finetune.methods`` by itself."""
    where, name = f"finetune.methods.{key}", name_of(entry.method)
    is_trained = isinstance(method, TrainedMethod)
    if is_trained and entry.training is None:
        yield f"{where}.training: missing; {name} trains"
    if not is_trained and entry.training is not None:
        why = "is solved, not trained" if isinstance(method, SolvedMethod) else "trains nothing"
        yield f"{where}.training: {name} {why}; leave it out"
    if not is_trained and entry.runs:
        yield f"{where}.runs: {name} has no training whose settings could differ; leave it out"
    for budget in params.finetune.label_budgets:
        if budget != "all" and method.num_shots > int(budget):
            yield (
                f"{where}.method.num_shots: {method.num_shots} is more than the label budget "
                f"{budget}"
            )
    for run in entry.only or ():
        yield from unlisted(run, params.runs, f"{where}.only")
    for run in entry.runs:
        yield from unlisted(run, params.runs, f"{where}.runs")
        if run in params.runs and (reason := entry.leaves_out(run)):
            yield f"{where}.runs.{run}: {reason}; add it there, or leave its settings out"
    if method.prompts and entry.text_to_text:
        yield f"{where}.text_to_text: {name} has its own prompts; leave it out"


def _optimizer_faults(entry: Entry, runs: list[str], where: str) -> Iterator[str]:
    """Yields the faults of a method's optimizer for the first run that has any."""
    for run in runs:
        training, changes = entry.of(run).training, entry.runs.get(run)
        assert training is not None
        is_own = changes is not None and "optimizer" in changes.model_fields_set
        here = f"{where}.runs.{run}.optimizer" if is_own else f"{where}.training.optimizer"
        optimizer = training.optimizer
        if faults := [*fault_of(lambda: OPTIMIZERS.settings(optimizer, where=here))]:  # noqa: B023
            yield from faults
            return


def _read_faults(
    params: Params, run: str, task: str, cls: Any, *, is_causal: bool
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
    for fault in fault_of(lambda: cls.check_read(is_causal=is_causal, **settings)):
        yield f"{where}.{fault} ({entry.where(run)}.architecture)"


def _added_tokens_faults(
    params: Params, key: str, method: Method, backbone: Backbone, model: str
) -> Iterator[str]:
    """Yields a fault if the longest inputs fit the model, but not together with the tokens that a
    method adds. ``length_faults`` reports inputs that do not fit by themselves."""
    longest, added = params.finetune.max_tokens, method.num_added_tokens
    if not added or backbone.too_long(longest):
        return
    if reason := backbone.too_long(longest, num_added_tokens=added):
        yield f"finetune.methods.{key}.method: {reason} (finetune.max_tokens, {model})"


def _unused_faults(
    params: Params, cells: list[_Cell], backbones: Mapping[str, Backbone]
) -> Iterator[str]:
    """Yields a fault for each run, task and method without a single trial."""

    def why_unused(**own: str) -> str:
        """All reasons why a run, task or method has no trial; empty if it has one."""
        ((part, name),) = own.items()
        its = [cell for cell in cells if getattr(cell, part) == name]
        if not all(cell.reason for cell in its):
            return ""
        by_method = (c.reason if part == "method" else f"{c.method}: {c.reason}" for c in its)
        return "; ".join(dict.fromkeys(map(str, by_method)))

    if set(backbones) == set(params.runs):  # else a run whose model is unknown might fit
        for key, entry in params.finetune.methods.items():
            if why := why_unused(method=key):
                name = name_of(entry.method)
                yield f"finetune.methods.{key}.method: {name} fits no run and task: {why}"
        for task in params.tasks:
            if why := why_unused(task=task):
                yield f"tasks.{task}.task: fits no run and method: {why}"
    for run in backbones:
        if why := why_unused(run=run):
            yield f"{params.runs[run].where(run)}.architecture: no method fits it: {why}"
