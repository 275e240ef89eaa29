"""Pretrain a model of params.yaml with its objective, once with each of its seeds: from scratch,
from its parent's weights or from a public checkpoint.

If the store already has the checkpoint of a seed, this seed is not trained again.
"""

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from stages.budgets.budget import trains
from stages.core import paths
from stages.core.artifacts import read_json, remove, sha256, write_json, write_jsonl
from stages.core.components import below
from stages.core.keys import CheckpointKey
from stages.core.params import Model
from stages.core.plans import PretrainPlan
from stages.core.process import run_stage
from stages.core.seeding import seeded, torch_stream
from stages.models._backbone import MODELS, draw_weights
from stages.models._heads import ModelWithHead, initialise_head
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.tracking.tracker import Tracker
from stages.training import checkpoint_store as store
from stages.training.accounts import Account, account_of, timing, write_histories
from stages.training.checkpoint import Resumable
from stages.training.device import Device, resolve
from stages.training.loop import Step, mean_loss, train
from stages.training.meter import Meter
from stages.training.pretraining import (
    PretrainingData,
    begin_with_frequencies,
    built,
    tokenizer_of,
    validation_batches,
)
from stages.training.ranks import ALONE, Ranks, joined, start_ranks, uneven
from stages.training.samples import samples
from stages.training.tries import Try, try_each


def main(plan: PretrainPlan, key: str, *, only_seed: int | None = None) -> str | None:
    """Writes data/pretrained/MODEL/SEED and the report's tables for each seed. With ``only_seed``
    it only puts the checkpoint of this seed into the store."""
    entry, distributed, threads = plan.entry, plan.distributed, plan.compute.threads
    if only_seed is not None and only_seed not in entry.seeds:
        raise ValueError(f"--only-seed: models.{key}.seeds has {entry.seeds}, not {only_seed}")
    if trains(entry):
        if reason := uneven(entry.training, distributed):
            raise ValueError(f"models.{key}.training.micro_batch_rows: {reason}")
        threads = max(threads // distributed.devices, 1)
    device = resolve(plan.compute, threads=threads)
    seeds = entry.seeds if only_seed is None else [only_seed]
    with joined(distributed, device) if trains(entry) else nullcontext(ALONE) as ranks:
        checkpoints = [CheckpointKey(key, seed) for seed in seeds]
        parents = {c: _parent(plan, c, device, ranks) for c in checkpoints}
        addresses = {c: store.address_of(plan, c, device, parents[c]) for c in checkpoints}
        # All ranks look into the store before the first rank adds an entry.
        missing = [c for c, address in addresses.items() if store.find(address) is None]
        ranks.from_first(0.0)
        for checkpoint in missing:
            training = Pretraining(plan, checkpoint, device, ranks, parents[checkpoint])
            training.run_and_store(addresses[checkpoint])
    if only_seed is not None or not ranks.is_first:
        return None
    store.take({c: store.ROOT / address for c, address in addresses.items()}, key)
    if not trains(entry):  # such entries are quick to make again, and may be large
        for address in addresses.values():
            remove(store.ROOT / address)
        return "nothing to train"
    return f"{len(missing)} trained, {len(addresses) - len(missing)} taken from the store"


def _parent(
    plan: PretrainPlan, checkpoint: CheckpointKey, device: Device, ranks: Ranks
) -> Path | None:
    """Returns the folder of the parent's checkpoint of the same seed, or None for no parent.

    dvc.yaml cannot name the parent, so the parent's stage may not have run yet, or with other
    settings. Then the parent is trained now and put into the store, where its stage finds it.
    """
    if plan.parent is None:
        return None
    key = CheckpointKey(plan.entry.parent, checkpoint.pretrain_seed)
    parent = _parent(plan.parent, key, device, ranks)
    if store.is_made(plan.parent, key, device, parent):
        return paths.pretrained(key)
    address = store.address_of(plan.parent, key, device, parent)
    is_stored = store.find(address) is not None
    ranks.from_first(0.0)
    if not is_stored:
        Pretraining(plan.parent, key, device, ranks, parent).run_and_store(address)
        ranks.from_first(0.0)
    return store.ROOT / address / "pretrained"


def _rank(plan: PretrainPlan) -> int | None:
    """Returns the rank of this process; None if nothing trains and it is not the first. Starts the
    ranks if there are to be several."""
    rank = int(os.environ.get("RANK", "0"))
    if trains(plan.entry):
        start_ranks(plan.distributed)
    return rank if trains(plan.entry) or rank == 0 else None


def _validates(step: int, entry: Model) -> bool:
    """Whether one of the ``num_validations`` evenly spaced validations follows this step."""
    count, total = entry.training.num_validations, entry.training.num_steps
    return step * count // total > (step - 1) * count // total


class Pretraining:
    """The pretraining of a checkpoint: its weights, its objective and its data.

    It starts from the parent's weights, else from the published weights of a public checkpoint,
    else from random ones.

    Raises ValueError with the path in params.yaml for wrong or incompatible settings.
    """

    def __init__(
        self,
        plan: PretrainPlan,
        checkpoint: CheckpointKey,
        device: Device,
        ranks: Ranks,
        parent: Path | None,
    ) -> None:
        self.meter = Meter(device)
        self.plan, self.checkpoint, self.device, self.ranks = plan, checkpoint, device, ranks
        self.entry, self.seed = plan.entry, checkpoint.pretrain_seed
        self.parent = parent  # folder of its checkpoint
        self.where = f"models.{checkpoint.model}"  # path of the model in params.yaml
        self.encoded = paths.ENCODED / self.entry.corpus / self.entry.tokenizer
        self.fingerprint = store.identity_of(plan, checkpoint, device, parent)
        name = f"pretrain/{checkpoint.model}/{self.seed}"
        self.resumable = Resumable(name, self.fingerprint, ranks=ranks)
        # Of the model, with its seed, the number of processes and the device as resolved.
        self.settings = store.settings_of(plan, self.seed, device)
        self.settings |= {"distributed": plan.distributed.model_dump()}
        with below(f"{self.where}.architecture"):
            self.tokenizer = tokenizer_of(self.entry)
        backbone, self.objective = built(self.entry, self.tokenizer, where=self.where)
        with below(f"{self.where}.architecture"):
            if parent is not None and not self.objective.has_teacher:
                with seeded(torch_stream(self.seed, "weights")):  # for a head that the parent lacks
                    backbone.load(parent)
            else:
                draw_weights(backbone, seed=self.seed)
        if parent is not None and self.objective.has_teacher:
            entry = read_json(parent / "run.json")["settings"]["architecture"]
            teacher = MODELS.build(entry, self.tokenizer.vocab_size, where=f"{self.where}.parent")
            teacher.load(parent)
            teacher.requires_grad_(False).eval()
            self.objective.learn_from(teacher.to(device.torch), backbone)
        with below(f"{self.where}.objective"):
            self.model = ModelWithHead(backbone, self.objective.head(backbone))
        initialise_head(self.model.head, generator=torch_stream(self.seed, "head"))

    def run_and_store(self, address: str) -> None:
        """Trains the checkpoint and puts it into the store."""
        tries = self.train() if self.objective.trains else []
        usage = self.meter.read()
        total = self.ranks.total({"processor_time_s": usage.processor_time_s})
        usage = replace(usage, processor_time_s=total["processor_time_s"])
        if not self.ranks.is_first:
            return
        with store.new_entry(address) as folder:
            account = self.write(tries, folder)
            seconds = self.resumable.seconds()
            write_json(folder / "timing.json", timing(seconds, usage, account, self.device))
        self.resumable.clear()

    def train(self) -> list[Try]:
        """Trains the model in place at each learning rate, validates it at the steps that are due,
        and logs the losses to MLflow. At the end the model has the weights of the best rate."""
        training, objective, ranks = self.entry.training, self.objective, self.ranks
        data = PretrainingData(
            self._packing("train", seed=self.seed),
            objective,
            batch_rows=training.batch_rows,
            micro_batch_rows=training.micro_batch_rows,
            seed=self.seed,
        )
        if objective.predicts_tokens:
            begin_with_frequencies(self.model.backbone, data, num_steps=training.num_steps)
        compared, packing = objective.for_validation(), self._packing("validation", seed=0)
        validation = validation_batches(packing, compared, batch_rows=training.micro_batch_rows)
        several = len(training.rates) > 1
        # It records nothing until its context is entered.
        tracker = Tracker(
            self.plan.study,
            self.checkpoint,
            params=self.settings,
            tags={"architecture": self.model.backbone.architecture, "corpus": self.entry.corpus},
            fingerprint=self.fingerprint,
        )
        with (
            tracker if ranks.is_first else nullcontext(),
            below(f"{self.where}.training"),
            ranks.spread(self.model, self.device) as model,
        ):

            def attempt(rate: float, history: list[Step], resumable: Resumable) -> None:
                about = f"pretrain {self.checkpoint}" + (f" at {rate}" if several else "")
                for step in train(
                    model,
                    objective,
                    data.of(ranks),
                    training.at(rate),
                    num_steps=training.num_steps,
                    seed=self.seed,
                    device=self.device,
                    history=history,
                    resumable=resumable,
                    description=about if ranks.is_first else None,
                    ranks=ranks,
                ):
                    measured = {"loss": step.loss, "lr": step.lr}
                    if _validates(step.step, self.entry):
                        validated = mean_loss(model, compared, validation, self.device)
                        step.validation_loss = ranks.from_first(validated)
                        measured["validation_loss"] = step.validation_loss
                    # Several rates get separate curves, since it is not known yet which is kept.
                    tracker.log(step.step, measured, rate=rate if several else None)

            return try_each(model, training.rates, self.resumable, attempt)

    def _packing(self, split: str, *, seed: int) -> Packing:
        corpus = EncodedCorpus.load(self.encoded / split)
        try:
            return Packing(corpus, self.entry.training.max_tokens, seed=seed)
        except ValueError as error:
            raise ValueError(f"{self.where}.corpus: {split}: {error}") from None

    def write(self, tries: list[Try], folder: Path) -> Account:
        """Writes the checkpoint, the history and the samples to ``folder``; returns the account of
        the model."""
        entry, backbone = self.entry, self.model.backbone
        parent = read_json(self.parent / "metrics.json") if self.parent is not None else None
        written, bytes_per_token = list[dict[str, str]](), 0.0
        if tries:
            corpus = EncodedCorpus.load(self.encoded / "validation")
            written = samples(backbone, self.objective, corpus, self.tokenizer, self.device)
            encoded = read_json(self.encoded / "encoded.json")
            bytes_per_token = encoded["train_bytes"] / encoded["train_tokens"]
        account = account_of(backbone, entry, tries, parent, bytes_per_token=bytes_per_token)
        pretrained = folder / "pretrained"
        pretrained.mkdir()
        # The weights of a model from scratch are saved too, although its trials draw their own: it
        # can be exported and be a parent.
        backbone.save(pretrained)
        self.tokenizer.save_to(pretrained)
        write_json(pretrained / "metrics.json", account)
        # A public checkpoint is built again from the folder of the model, which has all its files.
        own_files = {"path": str(paths.pretrained(self.checkpoint))} if entry.is_hub else {}
        record = {  # how to build the model again, and its origin
            "name": self.checkpoint.model,
            "pretrain_seed": self.seed,
            "architecture": backbone.architecture,
            "d_model": backbone.d_model,
            "num_layers": backbone.num_layers,
            "objective": entry.learnt[0],
            "corpus": entry.learnt[1],
            "has_prefix": self.objective.has_prefix,
            "model": entry.architecture | own_files,
            "start": entry.architecture.get("start", "usual"),
            "settings": self.settings,
            "tokenizer": sha256(*self.tokenizer.files),
            "fingerprint": self.fingerprint,
        }
        write_json(pretrained / "run.json", record)
        write_histories(folder, tries, entry)
        write_jsonl(folder / "samples.jsonl", written)
        return account


if __name__ == "__main__":
    run_stage(
        main,
        PretrainPlan,
        "model",
        number=("only_seed", "train this seed alone, and leave its checkpoint in the store"),
        rank=_rank,
    )
