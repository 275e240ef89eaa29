"""Pretrain a run of params.yaml with its objective, once with each of its seeds: from scratch, from
its parent's weights or from a public checkpoint.

If the store already has the checkpoint of a seed, this seed is not trained again.
"""

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stages.budgets.budget import trains
from stages.core import paths
from stages.core.artifacts import Json, read_json, remove, sha256, write_json, write_jsonl
from stages.core.components import below
from stages.core.keys import RunKey
from stages.core.params import NONE, Run
from stages.core.plans import PretrainPlan
from stages.core.process import run_stage
from stages.core.seeding import torch_stream
from stages.models._backbone import MODELS, Backbone, draw_weights
from stages.models._heads import ModelWithHead, initialise_head
from stages.models._transformer import seeded
from stages.objectives._objective import Objective
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import Tokenizer
from stages.tracking.tracker import Tracker
from stages.training import checkpoint_store as store
from stages.training.accounts import Account, account_of, timing, write_history, write_tries
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
from stages.training.tries import Try, best, try_each


@dataclass(frozen=True)
class Start:
    """Everything that a pretraining starts with: model, objective, device and settings."""

    checkpoint: RunKey
    where: str  # path of the run in params.yaml
    run: Run
    device: Device
    ranks: Ranks
    tokenizer: Tokenizer
    objective: Objective
    model: ModelWithHead
    settings: dict[str, Any]  # of the run, with its seed and the device as resolved
    fingerprint: str  # of settings, inputs and code
    resumable: Resumable

    @property
    def seed(self) -> int:
        return self.checkpoint.pretrain_seed


def main(plan: PretrainPlan, key: str, *, only_seed: int | None = None) -> str | None:
    """Writes data/pretrained/RUN/SEED and the report's tables for each seed. With ``only_seed`` it
    only puts the checkpoint of this seed into the store."""
    run, distributed, threads = plan.run, plan.distributed, plan.compute.threads
    if only_seed is not None and only_seed not in run.seeds:
        raise ValueError(f"--only-seed: {run.where(key)}.seeds has {run.seeds}, not {only_seed}")
    if trains(run) and (reason := uneven(run.training, distributed)):
        raise ValueError(f"{run.where(key)}.training.micro_batch_rows: {reason}")
    if trains(run):
        threads = max(threads // distributed.devices, 1)
    device = resolve(plan.compute, threads=threads)
    seeds = run.seeds if only_seed is None else [only_seed]
    addresses = {
        checkpoint: store.address_of(plan, checkpoint, device)
        for checkpoint in (RunKey(key, seed) for seed in seeds)
    }
    with joined(distributed, device) if trains(run) else nullcontext(ALONE) as ranks:
        # All ranks look into the store before the first rank adds an entry.
        missing = [c for c, address in addresses.items() if store.find(address) is None]
        ranks.from_first(0.0)
        for checkpoint in missing:
            _pretrain(plan, checkpoint, device, ranks, addresses[checkpoint])
    if only_seed is not None or not ranks.is_first:
        return None
    store.take({c: store.ROOT / address for c, address in addresses.items()}, key)
    if not trains(run):  # such entries are quick to make again, and may be large
        for address in addresses.values():
            remove(store.ROOT / address)
        return "nothing to train"
    return f"{len(missing)} trained, {len(addresses) - len(missing)} taken from the store"


def _pretrain(
    plan: PretrainPlan, checkpoint: RunKey, device: Device, ranks: Ranks, address: str
) -> None:
    """Trains a checkpoint and puts it into the store."""
    meter = Meter(device)
    start = _start(plan, checkpoint, device, ranks)
    tries = _train(start, plan.study) if start.objective.trains else []
    usage = meter.read()
    total = ranks.total({"processor_time_s": usage.processor_time_s})
    usage = replace(usage, processor_time_s=total["processor_time_s"])
    if not ranks.is_first:
        return
    with store.new_entry(address) as folder:
        account = _write(start, tries, folder)
        seconds = start.resumable.clock.seconds()
        write_json(folder / "timing.json", timing(seconds, usage, account, device))
    start.resumable.clear()


def _rank(plan: PretrainPlan) -> int | None:
    """Returns the rank of this process; None if nothing trains and it is not the first. Starts the
    ranks if there are to be several."""
    rank = int(os.environ.get("RANK", "0"))
    if trains(plan.run):
        start_ranks(plan.distributed)
    return rank if trains(plan.run) or rank == 0 else None


# Start -------------------------------------------------------------------------------------------


def _start(plan: PretrainPlan, checkpoint: RunKey, device: Device, ranks: Ranks) -> Start:
    """Builds the model and the objective of a run. The model starts from the weights of the parent
    that it continues from, else from the published weights of a public checkpoint, else from random
    weights. ``train`` replaces these weights if an interrupted process has saved its state.

    Raises ValueError with the path in params.yaml for wrong or incompatible settings.
    """
    run, seed = plan.run, checkpoint.pretrain_seed
    where = run.where(checkpoint.run)
    settings = store.settings_of(plan, seed, device)
    settings |= {"distributed": plan.distributed.model_dump()}
    identity = store.identity_of(plan, checkpoint, device)
    name = f"pretrain/{checkpoint.run}/{seed}"
    resumable = Resumable(name, identity, ranks=ranks)
    with below(f"{where}.architecture"):
        tokenizer = tokenizer_of(run)
    backbone, objective = built(run, tokenizer, where=where)
    parent = paths.pretrained(RunKey(run.parent, seed))
    continues = run.parent != NONE and not objective.has_teacher
    with below(f"{where}.architecture"):
        if continues:
            with seeded(torch_stream(seed, "weights")):  # for a head that the parent lacks
                backbone.load(parent)
        else:
            draw_weights(backbone, seed=seed)
    if objective.has_teacher:
        teacher = _teacher(parent, tokenizer.vocab_size, where=where)
        objective.learn_from(teacher.to(device.torch), backbone)
    with below(f"{where}.objective"):
        model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(seed, "head"))
    return Start(
        checkpoint=checkpoint,
        where=where,
        run=run,
        device=device,
        ranks=ranks,
        tokenizer=tokenizer,
        objective=objective,
        model=model,
        settings=settings,
        fingerprint=identity,
        resumable=resumable,
    )


def _teacher(parent: Path, vocab_size: int, *, where: str) -> Backbone:
    """Returns the parent's model with its weights, frozen."""
    settings = read_json(parent / "run.json")["settings"]["architecture"]
    teacher = MODELS.build(settings, vocab_size, where=f"{where}.parent")
    teacher.load(parent)
    return teacher.requires_grad_(False).eval()


# Train -------------------------------------------------------------------------------------------


def _train(start: Start, study: str) -> list[Try]:
    """Trains the model in place at each learning rate, validates it at the steps that are due, and
    logs the losses to MLflow. At the end the model has the weights of the best rate."""
    run, training, objective = start.run, start.run.training, start.objective
    ranks = start.ranks
    data = PretrainingData(
        _packing(start, "train", seed=start.seed),
        objective,
        batch_rows=training.batch_rows,
        micro_batch_rows=training.micro_batch_rows,
        seed=start.seed,
        few_widths=start.device.device == "cuda",
    )
    if objective.predicts_tokens:
        begin_with_frequencies(start.model.backbone, data, num_steps=training.num_steps)
    compared = objective.for_validation()
    validation = validation_batches(
        _packing(start, "validation", seed=0), compared, batch_rows=training.micro_batch_rows
    )
    several = len(training.rates) > 1
    tracker = _tracker(start, study)  # records nothing until its context is entered
    with (
        tracker if ranks.is_first else nullcontext(),
        below(f"{start.where}.training"),
        ranks.spread(start.model, start.device) as model,
    ):

        def attempt(rate: float, history: list[Step], resumable: Resumable) -> None:
            about = f"pretrain {start.checkpoint}"
            about += f" at {rate}" if several else ""
            for step in train(
                model,
                objective,
                data.of(ranks),
                training.at(rate),
                num_steps=training.num_steps,
                seed=start.seed,
                device=start.device,
                history=history,
                resumable=resumable,
                description=about if ranks.is_first else None,
                ranks=ranks,
            ):
                measured = {"loss": step.loss, "lr": step.lr}
                if _validates(step.step, run):
                    validated = mean_loss(model, compared, validation, start.device)
                    step.validation_loss = ranks.from_first(validated)
                    measured["validation_loss"] = step.validation_loss
                # Several rates get separate curves, since it is not known yet which rate is kept.
                tracker.log(step.step, measured, rate=rate if several else None)

        return try_each(model, training.rates, start.resumable, attempt)


def _tracker(start: Start, study: str) -> Tracker:
    tags = {"architecture": start.model.backbone.architecture, "corpus": start.run.corpus}
    return Tracker(
        study,
        start.checkpoint,
        params=start.settings,
        tags=tags,
        fingerprint=start.fingerprint,
    )


def _packing(start: Start, split: str, *, seed: int) -> Packing:
    run = start.run
    try:
        corpus = EncodedCorpus.load(paths.ENCODED / run.corpus / run.tokenizer / split)
        return Packing(corpus, run.training.max_tokens, seed=seed)
    except ValueError as error:
        raise ValueError(f"{start.where}.corpus: {split} of {run.corpus}: {error}") from None


def _validates(step: int, run: Run) -> bool:
    """Whether one of the ``num_validations`` evenly spaced validations follows this step."""
    count, total = run.training.num_validations, run.training.num_steps
    return step * count // total > (step - 1) * count // total


# Write -------------------------------------------------------------------------------------------


def _write(start: Start, tries: list[Try], folder: Path) -> Account:
    """Writes the checkpoint, the history and the samples to ``folder``; returns the account of the
    run."""
    history = best(tries).history if tries else []
    run, backbone = start.run, start.model.backbone
    parent = None
    if run.parent != NONE:
        parent = read_json(paths.pretrained(RunKey(run.parent, start.seed)) / "metrics.json")
    account = account_of(
        backbone, run, tries, parent, bytes_per_token=_bytes_per_token(run) if history else 0.0
    )
    written: list[dict[str, str]] = []
    if history:
        corpus = EncodedCorpus.load(paths.ENCODED / run.corpus / run.tokenizer / "validation")
        written = samples(backbone, start.objective, corpus, start.tokenizer, start.device)
    pretrained = folder / "pretrained"
    pretrained.mkdir()
    # The weights of a run from scratch are saved too, although its trials draw their own: the run
    # can be exported and be a parent.
    backbone.save(pretrained)
    start.tokenizer.save_to(pretrained)
    write_json(pretrained / "metrics.json", account)
    write_json(pretrained / "run.json", _record(start, backbone))
    write_history(folder / "history.csv", tries, run)
    write_tries(folder / "rates.csv", tries, run)
    write_jsonl(folder / "samples.jsonl", written)
    return account


def _bytes_per_token(run: Run) -> float:
    """Returns the mean UTF-8 bytes per token of the text that was encoded for training."""
    encoded = read_json(paths.ENCODED / run.corpus / run.tokenizer / "encoded.json")
    return encoded["train_bytes"] / encoded["train_tokens"]


def _record(start: Start, backbone: Backbone) -> Json:
    """Returns the content of ``run.json``: how to build the model again, and its origin."""
    run, checkpoint = start.run, start.checkpoint
    # A public checkpoint is built again from the folder of the run, which has all its files.
    place = {"path": str(paths.pretrained(checkpoint))} if run.is_hub else {}
    return {
        "run": checkpoint.run,
        "pretrain_seed": checkpoint.pretrain_seed,
        "architecture": backbone.architecture,
        "d_model": backbone.d_model,
        "num_layers": backbone.num_layers,
        "objective": run.learnt[0],
        "corpus": run.learnt[1],
        "has_prefix": start.objective.has_prefix,
        "model": run.architecture | place,
        "start": backbone.start,
        "settings": start.settings,
        "tokenizer": sha256(*start.tokenizer.files),
        "fingerprint": start.fingerprint,
    }


if __name__ == "__main__":
    run_stage(
        main,
        PretrainPlan,
        "run",
        number=("only_seed", "train this seed alone, and leave its checkpoint in the store"),
        rank=_rank,
    )
