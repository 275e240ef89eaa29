"""Checkpoints and trials that pending stages can take from their stores."""

from collections.abc import Collection
from itertools import product

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import NONE, Model, Params
from stages.planning.stage_plans import finetune_plan, pretrain_plan
from stages.training import checkpoint_store
from stages.training.device import resolve
from stages.trials.groups import trial_groups
from stages.trials.setup import TrialSetup
from stages.trials.store import addresses_of, stored


class Stores:
    """The stored checkpoints and trials of a study under the matched budget, for its pending
    ``stages``."""

    def __init__(self, study: Params, stages: Collection[str]) -> None:
        self._study, self._stages = study, stages
        self._device = resolve(study.compute, threads=study.compute.threads)

    def missing_seeds(self, name: str) -> list[int]:
        """Returns the seeds that the stage of a model has to train: all seeds, if another stage has
        yet to make the model's inputs."""
        entry = self._study.models[name]
        if f"pretrain@{name}" not in self._stages:
            return []
        if not self._has_inputs(entry):
            return entry.seeds
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
        plan = finetune_plan(self._study.models, self._study.finetune, self._study.compute)
        scores = dict[TrialKey, float | None]()
        for task, checkpoint in product(tasks, checkpoints):
            finetune, name = plan.finetune, checkpoint.model
            methods, scratch = finetune.methods_of(name), plan.models[name].from_scratch
            groups = trial_groups(finetune, checkpoint, task, methods, from_scratch=scratch)
            setup = TrialSetup(checkpoint, task, max_tokens=finetune.max_tokens)
            for key, address in addresses_of(finetune, plan.compute, setup, groups).items():
                if trial := stored(finetune, key, address):
                    scores[key] = trial.record.validation_score
        return scores

    def _is_made(self, checkpoint: CheckpointKey) -> bool:
        """Returns whether data/pretrained has the checkpoint that its stage would write now."""
        entry, record = (
            self._study.models[checkpoint.model],
            paths.pretrained(checkpoint) / "run.json",
        )
        if f"pretrain@{checkpoint.model}" not in self._stages:
            return True
        if not (self._has_inputs(entry) and record.is_file()):
            return False
        plan = pretrain_plan(self._study, checkpoint.model)
        identity = checkpoint_store.identity_of(plan, checkpoint, self._device)
        return read_json(record)["fingerprint"] == identity

    def _has_inputs(self, entry: Model) -> bool:
        """Returns whether the inputs of a model are final: no pending stage will write them
        again."""
        read = {
            f"encode_corpus@{entry.corpus}-{entry.tokenizer}",
            f"train_tokenizer@{entry.tokenizer}",
        }
        parents = [
            CheckpointKey(entry.parent, seed) for seed in entry.seeds if entry.parent != NONE
        ]
        return read.isdisjoint(self._stages) and all(map(self._is_made, parents))
