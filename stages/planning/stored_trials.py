"""Which trials of the stages to run the store has."""

from collections.abc import Collection

from stages.core.params import Params
from stages.trials.groups import addresses_of, stored, trial_groups
from stages.trials.outcome import TrialKey
from stages.trials.setup import TrialSetup


def stored_trials(params: Params, stages: Collection[str]) -> dict[tuple[str, str], set[TrialKey]]:
    """By run and task; none where the checkpoint or the task is still to be made, or made again."""
    found: dict[tuple[str, str], set[TrialKey]] = {}
    for run in params.pretrain:
        for task in params.tasks:
            before = (f"pretrain@{run}", f"prepare_task@{task}")
            if f"finetune@{task}" in stages and not any(stage in stages for stage in before):
                found[run, task] = _of(params, run, task)
    return found


def _of(params: Params, run: str, task: str) -> set[TrialKey]:
    setup = TrialSetup(run, task, max_tokens=params.finetune.max_tokens)
    groups = trial_groups(params, run, params.finetune.methods)
    addresses = addresses_of(params, setup, groups)
    return {key for key, address in addresses.items() if stored(params, key, address)}
