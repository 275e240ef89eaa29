"""The place in params.yaml at which a setting of a run is stated."""

import re
from collections.abc import Iterator, Mapping, Sequence

from stages.core.params import NAME, Run

SETTING = re.compile(rf"\bpretrain\.(?:runs|continued)\.({NAME})\.(\w+)(?:\.(\w+))?")
# Settings of a training that are refused only together with another one.
TOGETHER = {"micro_batch_rows": "batch_rows", "num_validations": "num_steps"}


def told_once(runs: Mapping[str, Run], faults: Sequence[str]) -> Iterator[str]:
    """Yields the faults of runs, with each fault of a shared setting once.

    A fault of a setting that a run takes over from ``pretrain.training`` names that section. A
    fault of a setting that it takes over from the reference is left out if the reference has the
    same fault: then mending the reference mends the run.
    """

    def in_training(setting: re.Match[str]) -> str:
        """Returns the path of a setting, in ``pretrain.training`` if that states it."""
        name, section, key = setting.groups()
        if section != "training" or key is None:
            return setting[0]
        by_the_run = runs[name].training.model_fields_set
        is_own = key in by_the_run or TOGETHER.get(key) in by_the_run
        return setting[0] if is_own else f"pretrain.training.{key}"

    first, reference = next(iter(runs.items()))

    def in_reference(setting: re.Match[str]) -> str:
        """Returns the path of a setting, in the reference if the run takes it over."""
        name, key, _ = setting.groups()
        run = runs[name]
        if key in run.model_fields_set or getattr(run, key) != getattr(reference, key):
            return setting[0]
        return setting[0].replace(run.where(name), reference.where(first), 1)

    stated = dict.fromkeys(SETTING.sub(in_training, fault) for fault in faults)
    for fault in stated:
        shared = SETTING.sub(in_reference, fault)
        if shared == fault or shared not in stated:
            yield fault
