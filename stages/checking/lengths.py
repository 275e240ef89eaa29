"""Texts that are longer than a model has positions."""

from collections.abc import Iterator
from typing import Any

from stages.checking.entries import name_of
from stages.core.params import Params, Run
from stages.methods._method import Method
from stages.models._backbone import Backbone
from stages.tasks._task import TASKS


def length_faults(params: Params, run: Run, model: Backbone, where: str) -> Iterator[str]:
    yield from writing_faults(params, model, where)
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


def writing_faults(params: Params, model: Backbone, where: str) -> Iterator[str]:
    """Of texts to be written that are too long for a model that can write."""
    if model.max_positions is None or not model.can_generate:
        return
    for key, task in params.tasks.items():
        here = f"tasks.{key}.task"
        try:
            kind: Any = TASKS.find(name_of(task.task), where=here)
            settings = TASKS.settings(task.task, where=here)
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


def too_long(
    params: Params, method: Method, backbone: Backbone, model: str, where: str
) -> Iterator[str]:
    """A method that adds tokens to the longest text for which there was just room."""
    most, added, asked = backbone.max_positions, method.num_added_tokens, params.finetune.max_tokens
    if most is not None and added and asked + added > most:
        yield (
            f"{where}: adds {added} tokens to the {asked} of finetune.max_tokens, which is more "
            f"than the {most} positions of {model}"
        )
