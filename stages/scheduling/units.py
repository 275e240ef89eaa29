"""The units of work for workers: the stages that DVC would run, and parts of their work.

A stage pretrains all seeds of a run, one after the other. So each seed that the store of
checkpoints lacks is a unit, which puts its checkpoint into the store, where the stage finds it.

A stage ``finetune@TASK`` waits for every checkpoint. A group of its trials needs one run and the
task: the group runs as soon as both exist and puts its trials into the store of trials.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import product

from stages.core.keys import RunKey
from stages.core.params import Params, Run
from stages.matching.budget import matched, trains
from stages.planning.stored import Stores, pretraining_stage
from stages.scheduling.unit import Unit
from stages.trials.groups import Group, trial_groups, work


def units(params: Params, pending: Mapping[str, Collection[str]]) -> list[Unit]:
    """Returns the ``pending`` stages and the parts of their work, each after the units that it
    needs.

    Everything that trials need comes before all trials, because pretraining is the longest path.
    """
    study = matched(params)
    stores = Stores(study, pending)
    needs = {stage: [*others] for stage, others in pending.items()}
    seeds, trials = _seeds(study.runs, pending, stores), _trials(study, pending, stores)
    parts = list[Unit]()
    for stage, part in (*seeds, *trials):
        needs[stage].append(part.name)
        parts.append(part)
    later = set[str]()  # the stages that fine-tune, and the stages that follow from them
    for stage, others in pending.items():
        if stage.startswith("finetune@") or not later.isdisjoint(others):
            later.add(stage)
    result = list[Unit]()
    for stage in pending:
        if stage not in later:
            result += [part for part in parts if not part.trials and part.name in needs[stage]]
            result.append(Unit(stage, (*needs[stage],)))
    result += [part for part in parts if part.trials]
    return result + [Unit(stage, (*needs[stage],)) for stage in pending if stage in later]


def _seeds(
    runs: Mapping[str, Run], pending: Mapping[str, Collection[str]], stores: Stores
) -> Iterator[tuple[str, Unit]]:
    """Yields a unit for each seed that the store lacks, with the stage that takes its result. A
    stage that has to train only one seed trains it itself."""
    for name, run in runs.items():
        missing = stores.missing_seeds(name) if trains(run) else []
        stage = pretraining_stage(name, run)
        for seed in missing if len(missing) > 1 else ():
            key = RunKey(name, seed)
            yield stage, Unit(f"pretrain_seed@{name}-{seed}", (*pending[stage],), checkpoint=key)


def _trials(study: Params, pending: Collection[str], stores: Stores) -> Iterator[tuple[str, Unit]]:
    """Yields the trials that the store lacks, with the stage that takes their results: the longest
    groups first, so that all workers end at about the same time.

    If the study screens runs, only trials of runs from scratch are yielded: the stage itself
    chooses the other runs once all estimates are known.
    """
    stored, finetune = stores.trials(), study.finetune
    groups = list[Group]()
    for task, checkpoint in product(study.tasks, study.checkpoints):
        from_scratch = study.runs[checkpoint.run].from_scratch
        if f"finetune@{task}" in pending and (from_scratch or finetune.screen is None):
            for group in trial_groups(
                finetune,
                checkpoint,
                task,
                finetune.methods_of(checkpoint.run),
                from_scratch=from_scratch,
            ):
                groups.append([key for key in group if key not in stored])
    for group in sorted(filter(None, groups), key=work, reverse=True):
        first = group[0]
        needed = pretraining_stage(first.run, study.runs[first.run]), f"prepare_task@{first.task}"
        parts = (first.task, first.run, first.pretrain_seed, first.method, first.label_budget)
        yield (
            f"finetune@{first.task}",
            Unit(
                "trials@" + "-".join(map(str, (*parts, first.finetune_seed))),
                tuple(stage for stage in needed if stage in pending),
                trials=tuple(group),
            ),
        )
