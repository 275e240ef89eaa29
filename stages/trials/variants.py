"""The variants of a trial: the settings that it tries in addition to learning rates or C.

An entry of params.yaml may list several values of a setting of its task or method, and a run from
scratch may start from several initial weights. A trial then trains (or solves) once for each
combination and keeps the one that is best on validation.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.core.params import Finetune, InitialWeights
from stages.evaluation.records import SEPARATOR
from stages.methods._method import METHODS, UntrainedMethod
from stages.models._backbone import Backbone
from stages.tasks._task import TASKS


@dataclass(frozen=True)
class Variant:
    """One combination of the settings that a trial tries."""

    task: Settings = field(default_factory=dict)  # replace settings of the task's entry
    method: Settings = field(default_factory=dict)  # replace settings of the method's entry
    initial_weights: InitialWeights | None = None  # None: not from scratch
    varied: Sequence[str] = ()  # settings of task and method that have several values
    fixed: Sequence[str] = ()  # settings with one value; may include ``initial_weights``

    @property
    def read_out(self) -> str:
        """The values of ``varied``, such as ``pooling=last, dropout=0.1``; "" if it is empty."""
        return self._shown(self.varied)

    def _shown(self, names: Sequence[str]) -> str:
        settings = {**self.task, **self.method, "initial_weights": self.initial_weights}
        return SEPARATOR.join(f"{name}={settings[name]}" for name in names)

    @property
    def fixed_values(self) -> str:
        """The values of ``fixed``, written like ``read_out``."""
        return self._shown(self.fixed)

    @property
    def backbone(self) -> str:
        """A key that is equal for variants whose models differ only in their heads."""
        return json.dumps([self.method, self.initial_weights])

    @property
    def columns(self) -> Json:
        """Returns the columns of records that identify the variant."""
        return {"read_out": self.read_out, "initial_weights": self.initial_weights or ""}


def variants(
    finetune: Finetune,
    method: str,
    task: Settings,
    backbone: Backbone,
    *,
    has_prefix: bool,
    from_scratch: bool,
    where: str,
) -> list[Variant]:
    """Returns the variants of the trials of a run with a method of ``finetune.methods``, in the
    order in which they are tried; of equally good variants the first is kept.

    ``task`` is the task's entry and ``where`` its path in params.yaml; ``Task.read_by`` explains
    ``has_prefix``. A method that trains nothing has one variant.

    Raises ValueError if the run can use no value of a setting.
    """
    entry = finetune.methods[method]
    kind = METHODS.find(entry.method["name"], where=f"finetune.methods.{method}.method")
    tried_by_task = [dict[str, Any]()]
    of_task = TASKS.find(task["name"], where="")
    # Only heads use the settings that a task tries.
    if not (kind.prompts or entry.text_to_text or of_task.generates or of_task.scores_text):
        tried_by_task = readings(
            task, backbone, has_prefix=has_prefix, where=where, without=kind.without_effect
        )
    tried_by_method = _combinations(
        METHODS.tried(entry.method, where=f"finetune.methods.{method}.method")
    )
    initial: Sequence[InitialWeights | None] = [None]
    if from_scratch:  # without locality both initial weights are the same
        initial = finetune.initial_weights[: None if backbone.starts_local else 1]
    if issubclass(kind, UntrainedMethod):
        return [Variant(tried_by_task[0], tried_by_method[0], initial[0])]
    varied = [*_varied(tried_by_task), *_varied(tried_by_method)]
    fixed = [name for name in (*tried_by_task[0], *tried_by_method[0]) if name not in varied]
    if from_scratch and backbone.starts_local and len(initial) == 1:
        fixed.append("initial_weights")
    return [
        Variant(by_task, by_method, weights, varied, fixed)
        for weights, by_method, by_task in product(initial, tried_by_method, tried_by_task)
    ]


def readings(
    task: Settings,
    backbone: Backbone,
    *,
    has_prefix: bool,
    where: str,
    without: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Returns the combinations of settings that a task tries with this model. Settings in
    ``without`` are left out, and so are combinations in which a label would be predicted from a
    state that has not read the labelled text.

    Raises ValueError if no combination is left.
    """
    kind = TASKS.find(task["name"], where=where)
    others = TASKS.settings(task, where=where)
    values = {
        name: list(dict.fromkeys(v for each in listed for v in kind.values(name, each, backbone)))
        for name, listed in TASKS.tried(task, where=where).items()
        if name not in without
    }
    combinations, faults = list[dict[str, Any]](), list[str]()
    for combination in _combinations(values):
        try:
            kind.check_read(
                is_causal=backbone.is_causal and not has_prefix, **{**others, **combination}
            )
            combinations.append(combination)
        except ValueError as error:
            faults.append(str(error))
    if not combinations:
        raise ValueError(f"{where}.{faults[0]}")
    return combinations


def _combinations(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


def _varied(combinations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the settings that have more than one value in ``combinations``."""
    return [
        name
        for name in combinations[0]
        if any(each[name] != combinations[0][name] for each in combinations)
    ]
