"""Checkpoints and trials that pending stages can take from their stores."""

from collections.abc import Collection

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import RunKey, TrialKey
from stages.core.params import NONE, Params, Run
from stages.planning.stage_plans import finetune_plan, pretrain_plan
from stages.training import checkpoint_store
from stages.training.device import resolve
from stages.trials.groups import addresses_of, stored, trial_groups
from stages.trials.setup import TrialSetup


def pretraining_stage(name: str, run: Run) -> str:
    """Returns the stage of dvc.yaml that trains a run."""
    return f"pretrain@{name}"


class Stores:
    """The stored checkpoints and trials of a study under the matched budget, for its pending
    ``stages``."""

    def __init__(self, study: Params, stages: Collection[str]) -> None:
        self._study, self._stages = study, stages
        self._device = resolve(study.compute, threads=study.compute.threads)

    def missing_seeds(self, name: str) -> list[int]:
        """Returns the seeds that the stage of a run has to train: all seeds, if another stage has
        yet to make the run's inputs."""
        run = self._study.runs[name]
        if pretraining_stage(name, run) not in self._stages:
            return []
        if not self._has_inputs(run):
            return run.seeds
        plan = pretrain_plan(self._study, name)
        return checkpoint_store.missing_seeds(plan, name, self._device)

    def trials(self) -> dict[TrialKey, float | None]:
        """Returns the stored trials of pending stages with their scores on validation. Trials whose
        checkpoint or task has yet to be made (again) are left out."""
        tasks = [
            task
            for task in self._study.tasks
            if f"finetune@{task}" in self._stages and f"prepare_task@{task}" not in self._stages
        ]
        checkpoints = [c for c in self._study.checkpoints if tasks and self._is_made(c)]
        return {
            key: score
            for task in tasks
            for checkpoint in checkpoints
            for key, score in self._of(checkpoint, task).items()
        }

    def _of(self, checkpoint: RunKey, task: str) -> dict[TrialKey, float | None]:
        study, name = self._study, checkpoint.run
        plan = finetune_plan(study.runs, study.finetune, study.compute)
        finetune, from_scratch = plan.finetune, plan.runs[name].from_scratch
        setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens)
        methods = finetune.methods_of(name)
        groups = trial_groups(finetune, checkpoint, task, methods, from_scratch=from_scratch)
        addresses = addresses_of(finetune, plan.compute, setup, groups)
        return {
            key: trial.record.validation_score
            for key, address in addresses.items()
            if (trial := stored(finetune, key, address))
        }

    def _is_made(self, checkpoint: RunKey) -> bool:
        """Returns whether data/pretrained has the checkpoint that its stage would write now."""
        run, record = self._study.runs[checkpoint.run], paths.pretrained(checkpoint) / "run.json"
        if pretraining_stage(checkpoint.run, run) not in self._stages:
            return True
        if not (self._has_inputs(run) and record.is_file()):
            return False
        plan = pretrain_plan(self._study, checkpoint.run)
        identity = checkpoint_store.identity_of(plan, checkpoint, self._device)
        return read_json(record)["fingerprint"] == identity

    def _has_inputs(self, run: Run) -> bool:
        """Returns whether the inputs of a run are final: no pending stage will write them again."""
        read = {f"encode_corpus@{run.corpus}-{run.tokenizer}", f"train_tokenizer@{run.tokenizer}"}
        parents = [RunKey(run.parent, seed) for seed in run.seeds if run.parent != NONE]
        return read.isdisjoint(self._stages) and all(map(self._is_made, parents))
