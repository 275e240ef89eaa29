"""The units of work for workers: the stages that DVC would run, and parts of their work.

A stage pretrains all seeds of a run, one after the other. So each seed that the store of
checkpoints lacks is a unit. The unit puts its checkpoint into the store, where the stage finds it.

A stage ``finetune@TASK`` waits for every checkpoint, but a group of its trials needs only one run
and the prepared task. The group runs once both exist and puts its trials into the store of trials.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

from stages.core.keys import RunKey, TrialKey
from stages.core.params import Params, Run
from stages.matching.budget import matched, trains
from stages.planning.stored import Stores, pretraining_stage
from stages.scheduling.unit import Unit
from stages.scheduling.work import Work
from stages.trials.groups import Group, trial_groups
from stages.trials.groups import work as duration_order


def units(params: Params, pending: Mapping[str, Collection[str]]) -> list[Unit]:
    """Returns the ``pending`` stages and the parts of their work, each after the units that it
    needs.

    Everything that trials need comes before all trials, because pretraining is the longest path.
    """
    study = matched(params)
    stores = Stores(study, pending)
    missing, stored = {name: stores.missing_seeds(name) for name in study.runs}, stores.trials()
    planned = Work(study, pending, missing, stored)
    needs = {stage: [*others] for stage, others in pending.items()}
    seeds = [*_seeds(study.runs, pending, missing, planned)]
    trials = [*_trials(study, pending, stored, planned)]
    own_work = {stage: planned.of_stage.get(stage, 0.0) for stage in pending}
    for stage, part in (*seeds, *trials):
        needs[stage].append(part.name)
        own_work[stage] = max(round(own_work[stage] - part.work), 0)

    def of_stage(stage: str) -> Unit:
        return Unit(stage, (*needs[stage],), work=own_work[stage])

    later = set[str]()  # the stages that fine-tune, and the stages that need them
    for stage, others in pending.items():
        if stage.startswith("finetune@") or not later.isdisjoint(others):
            later.add(stage)
    result = list[Unit]()
    for stage in pending:
        if stage not in later:
            result += [part for taker, part in seeds if taker == stage]
            result.append(of_stage(stage))
    result += [part for _, part in trials]
    return result + [of_stage(stage) for stage in pending if stage in later]


def _seeds(
    runs: Mapping[str, Run],
    pending: Mapping[str, Collection[str]],
    missing: Mapping[str, Sequence[int]],
    planned: Work,
) -> Iterator[tuple[str, Unit]]:
    """Yields a unit for each seed that the store lacks, with the stage that takes its result. A
    stage that has to train only one seed trains it itself."""
    for name, run in runs.items():
        seeds = missing[name] if trains(run) else []
        stage = pretraining_stage(name, run)
        for seed in seeds if len(seeds) > 1 else ():
            part, key = f"pretrain_seed@{name}-{seed}", RunKey(name, seed)
            work = planned.of_seed[name]
            yield stage, Unit(part, (*pending[stage],), checkpoint=key, work=work)


def _trials(
    study: Params, pending: Collection[str], stored: Collection[TrialKey], planned: Work
) -> Iterator[tuple[str, Unit]]:
    """Yields each group of trials that the store lacks, with the stage that takes its results. The
    longest come first, so that all workers end at about the same time.

    If the study screens runs, only trials of runs from scratch are yielded: the stage itself
    chooses the other runs once all estimates are known.
    """
    runs, finetune, groups = study.runs, study.finetune, list[Group]()
    waiting = [task for task in study.tasks if f"finetune@{task}" in pending]
    for task, (name, run) in product(waiting, runs.items()):
        if run.from_scratch or finetune.screen is None:
            for seed in run.seeds:
                groups += trial_groups(
                    finetune,
                    RunKey(name, seed),
                    task,
                    finetune.methods_of(name),
                    from_scratch=run.from_scratch,
                )
    missing = [[key for key in group if key not in stored] for group in groups]
    missing = [group for group in missing if group]
    pairs = [*zip(missing, planned.of_groups(missing), strict=True)]
    for group, work in sorted(pairs, key=lambda pair: duration_order(pair[0]), reverse=True):
        first = group[0]
        needed = pretraining_stage(first.run, runs[first.run]), f"prepare_task@{first.task}"
        parts = (first.task, first.run, first.pretrain_seed, first.method, first.label_budget)
        name = "trials@" + "-".join(map(str, (*parts, first.finetune_seed)))
        needs = tuple(stage for stage in needed if stage in pending)
        yield f"finetune@{first.task}", Unit(name, needs, trials=tuple(group), work=work)
