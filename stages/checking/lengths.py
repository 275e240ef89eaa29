"""Faults of texts that are longer than a model has positions."""

from collections.abc import Iterator, Mapping

from stages.checking.entries import name_of
from stages.core.params import Task
from stages.models._backbone import Backbone
from stages.tasks._task import TASKS


def target_lengths(tasks: Mapping[str, Task]) -> dict[str, int]:
    """Returns ``max_target_tokens`` of the valid tasks that write text, by their paths."""
    lengths = {}
    for key, task in tasks.items():
        where = f"tasks.{key}.task"
        try:
            kind = TASKS.find(name_of(task.task), where=where)
            settings = TASKS.settings(task.task, where=where)
        except ValueError:  # reported by task_faults
            continue
        if kind.generates:
            lengths[where] = settings["max_target_tokens"]
    return lengths


def length_faults(
    backbone: Backbone, max_tokens: int, targets: Mapping[str, int], where: str
) -> Iterator[str]:
    """Yields a fault if inputs of ``finetune.max_tokens`` are too long for the model, alone or
    together with the text that a task writes (``targets``)."""
    if reason := backbone.too_long(max_tokens):
        yield f"finetune.max_tokens: {reason} ({where})"
        return
    for task, length in targets.items() if backbone.can_generate else ():
        if reason := backbone.too_long(max_tokens, max_target_tokens=length):
            yield f"{task}.max_target_tokens: {reason} ({where})"
