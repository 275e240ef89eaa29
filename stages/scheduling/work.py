"""The work of units in operations, as `make plan` counts them."""

from collections.abc import Collection, Mapping, Sequence

from stages.core.keys import TrialKey
from stages.core.params import Params
from stages.planning.estimate import screened
from stages.planning.finetuning_costs import finetunings
from stages.planning.pretraining_costs import pretrainings
from stages.planning.speed import operations
from stages.planning.stored import pretraining_stage


class Work:
    """The planned work of the ``pending`` stages of a study under the matched budget. ``missing``
    has the seeds of each run that the store lacks, ``stored`` the trials that it has."""

    def __init__(
        self,
        study: Params,
        pending: Collection[str],
        missing: Mapping[str, Sequence[int]],
        stored: Collection[TrialKey],
    ) -> None:
        tasks = {key: task for key, task in study.tasks.items() if f"finetune@{key}" in pending}
        changed = [task for task in tasks if f"prepare_task@{task}" in pending]
        # The costs of nothing else are computed.
        of_tasks = study.model_copy(update={"tasks": tasks})
        trials = finetunings(of_tasks, changed=changed, stored=stored)
        for cost in trials:
            cost.pending = True
        if screen := study.finetune.screen:
            trials, _ = screened(study.runs, screen, trials)
        stages = {key: pretraining_stage(key, run) for key, run in study.runs.items()}
        waiting = {key: run for key, run in study.runs.items() if stages[key] in pending}
        costs = pretrainings(study.model_copy(update={"runs": waiting}), missing)
        runs = [cost for cost in costs if cost.pending]
        self.of_seed = {c.run: operations(c) / (c.num_seeds - c.num_stored) for c in runs}
        self.of_stage = {stages[cost.run]: float(operations(cost)) for cost in runs}
        for cost in trials:
            stage = f"finetune@{cost.task}"
            self.of_stage[stage] = self.of_stage.get(stage, 0.0) + operations(cost)
        self._trials = {(cost.run, cost.task, cost.method): cost for cost in trials}

    def of_groups(self, groups: Sequence[Sequence[TrialKey]]) -> list[float]:
        """Returns the work of groups of trials. They are all groups of their runs, tasks and
        methods that the store lacks, in the order of ``trial_groups``. A group of unknown size, as
        of a public checkpoint before its download, counts as the largest."""
        kinds = [(group[0].run, group[0].task, group[0].method) for group in groups]
        shares = {kind: [*cost.shares] for kind, cost in self._trials.items()}
        works = [
            operations(self._trials[kind]) * shares[kind].pop(0) if shares.get(kind) else 0.0
            for kind in kinds
        ]
        unknown = {kind for kind, cost in self._trials.items() if cost.flops is None}
        largest = max(works, default=0.0)
        return [
            largest if kind in unknown else work for kind, work in zip(kinds, works, strict=True)
        ]
