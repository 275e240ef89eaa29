"""Pretrain a run of params.yaml with its objective: from scratch, from its parent's weights or from
a public checkpoint."""

import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from stages.core import paths
from stages.core.artifacts import Json, read_json, replacing, sha256, write_json, write_jsonl
from stages.core.code import hashes
from stages.core.components import below
from stages.core.params import NONE, Params, Run, entry
from stages.core.process import run_stage
from stages.core.rank import rank_of_process
from stages.core.seeding import torch_stream
from stages.matching.budget import trains
from stages.models._backbone import MODELS, Backbone, draw_weights
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import Objective
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import TaskTokenizer
from stages.tracking.records import at_rate
from stages.tracking.tracker import Tracker
from stages.training.accounts import Account, account_of, timing, write_history, write_tries
from stages.training.checkpoint import (
    WEIGHTS,
    Resumable,
    fingerprint,
    load_weights,
    save_weights,
)
from stages.training.device import Device, resolve
from stages.training.launch import rank_to_run
from stages.training.loop import Step, mean_loss, train
from stages.training.meter import Meter
from stages.training.pretraining import (
    PretrainingData,
    begin_with_frequencies,
    built,
    validation_batches,
)
from stages.training.ranks import ALONE, Ranks, joined, uneven
from stages.training.samples import samples
from stages.training.tries import Try, best, try_each


@dataclass(frozen=True)
class Start:
    """What a run starts with."""

    key: str
    run: Run
    device: Device
    ranks: Ranks
    tokenizer: TaskTokenizer
    objective: Objective
    model: ModelWithHead
    settings: dict[str, Any]  # of params.yaml, with the device as resolved
    fingerprint: str  # of settings, inputs and code
    resumable: Resumable


def main(params: Params, key: str) -> None:
    plan = read_json(paths.PLANS / f"{key}.json")
    run = entry(params.pretrain, key, where="pretrain").planned(plan)
    distributed, threads = params.distributed, params.compute.threads
    if trains(run) and (reason := uneven(run.training, distributed)):
        raise ValueError(f"pretrain.{key}.training.micro_batch_rows: {reason}")
    if trains(run) and rank_of_process():
        threads = max(threads // distributed.devices, 1)
    device = resolve(params.compute, threads=threads)
    with joined(distributed, device) if trains(run) else nullcontext(ALONE) as ranks:
        meter = Meter(device)
        start = _start(key, run, device, ranks, params)
        tries = _train(start, params.study) if start.objective.trains else []
        meter.add_others(ranks)
    if not ranks.is_first:
        return
    account = _write(start, tries)
    with replacing(paths.TIMINGS / "pretrain" / f"{key}.json") as file:
        write_json(file, timing(start.resumable.wall_time_s(), meter, account, device))
    start.resumable.clear()


def _rank(params: Params, key: str) -> int | None:
    run = entry(params.pretrain, key, where="pretrain")
    return rank_to_run(params.compute, params.distributed, trains=trains(run))


# Start -------------------------------------------------------------------------------------------


def _start(key: str, run: Run, device: Device, ranks: Ranks, params: Params) -> Start:
    """Build the model and the objective of a run, with the weights that it starts from: those of
    its parent, else random ones, else (of a public checkpoint) the published ones. If the state of
    an interrupted process is there, ``train`` replaces them by it.

    Raises ValueError with the path in params.yaml for what does not go together.
    """
    where = f"pretrain.{key}"
    # Of all processes together: another number of them goes on with the same state.
    compute = device.describe() | {"threads": params.compute.threads}
    settings = run.model_dump() | {"compute": compute}
    identity = _fingerprint(run, settings)
    settings |= {"distributed": params.distributed.model_dump()}
    resumable = Resumable(f"pretrain/{key}", identity, ranks=ranks)
    kind = MODELS.find(str(run.model["name"]), where=f"{where}.model")
    with below(f"{where}.model"):
        tokenizer = kind.tokenizer_of(run.model, paths.TOKENIZERS / run.tokenizer)
    backbone, objective = built(run, tokenizer, where=where)
    if run.parent == NONE or objective.has_teacher:
        with below(f"{where}.model"):
            draw_weights(backbone, seed=run.seed)
    else:
        load_weights(backbone, paths.PRETRAINED / run.parent / WEIGHTS)
    if objective.has_teacher:
        objective.learn_from(_teacher(run, tokenizer.vocab_size).to(device.torch), backbone)
    with below(f"{where}.objective"):
        model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(run.seed, "head"))
    return Start(
        key, run, device, ranks, tokenizer, objective, model, settings, identity, resumable
    )


def _fingerprint(run: Run, settings: Json) -> str:
    inputs = [
        paths.ENCODED / run.corpus / run.tokenizer,
        paths.TOKENIZERS / run.tokenizer,
        paths.PRETRAINED / run.parent,
    ]
    components = (f"models/{run.model['name']}", f"objectives/{run.objective['name']}")
    return fingerprint(settings | {"code": hashes("pretrain", *components)}, inputs)


def _teacher(run: Run, vocab_size: int) -> Backbone:
    """The parent's model with its weights, frozen."""
    parent = paths.PRETRAINED / run.parent
    settings = read_json(parent / "run.json")["settings"]["model"]
    teacher = MODELS.build(settings, vocab_size, where=f"pretrain.{run.parent}.model")
    load_weights(teacher, parent / WEIGHTS)
    return teacher.requires_grad_(False).eval()


# Train -------------------------------------------------------------------------------------------


def _train(start: Start, study: str) -> list[Try]:
    """Train the model in place at each learning rate, validate it at the steps that are due, and
    show both in MLflow. The model is left with the weights of the best rate."""
    run, training, objective = start.run, start.run.training, start.objective
    ranks = start.ranks
    data = PretrainingData(
        _packing(start, "train", seed=run.seed),
        objective,
        batch_rows=training.batch_rows,
        micro_batch_rows=training.micro_batch_rows,
        seed=run.seed,
    )
    begin_with_frequencies(start.model.backbone, data, num_steps=training.num_steps)
    compared = objective.for_validation()
    validation = validation_batches(
        _packing(start, "validation", seed=0), compared, batch_rows=training.micro_batch_rows
    )
    several = len(training.rates) > 1
    tracker = _tracker(start, study)  # which records nothing before it is entered
    with (
        tracker if ranks.is_first else nullcontext(),
        below(f"pretrain.{start.key}.training"),
        ranks.spread(start.model, start.device) as model,
    ):

        def attempt(rate: float, history: list[Step], resumable: Resumable) -> None:
            about = f"pretrain {start.key}" + (f" at {rate}" if several else "")
            for step in train(
                model,
                objective,
                data.of(ranks),
                training.at(rate),
                num_steps=training.num_steps,
                seed=run.seed,
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
                # Which rate is kept is not known yet.
                tracker.log(step.step, at_rate(measured, rate) if several else measured)

        return try_each(model, training.rates, start.resumable, attempt)


def _tracker(start: Start, study: str) -> Tracker:
    tags = {"architecture": start.model.backbone.architecture, "corpus": start.run.corpus}
    return Tracker(
        study, start.key, params=start.settings, tags=tags, fingerprint=start.fingerprint
    )


def _packing(start: Start, split: str, *, seed: int) -> Packing:
    run = start.run
    try:
        corpus = EncodedCorpus.load(paths.ENCODED / run.corpus / run.tokenizer / split)
        return Packing(corpus, run.training.max_tokens, seed=seed)
    except ValueError as error:
        where = f"pretrain.{start.key}.corpus"
        raise ValueError(f"{where}: {split} of {run.corpus}: {error}") from None


def _validates(step: int, run: Run) -> bool:
    """Whether one of ``num_validations`` evenly spaced points lies in this step."""
    count, total = run.training.num_validations, run.training.num_steps
    return step * count // total > (step - 1) * count // total


# Write -------------------------------------------------------------------------------------------


def _write(start: Start, tries: list[Try]) -> Account:
    """Write the checkpoint, the history and the samples; returns the account of the run."""
    history = best(tries).history if tries else []
    run, key = start.run, start.key
    backbone = start.model.backbone
    backbone.drop_pretraining_layers()
    parent = None
    if run.parent != NONE:
        parent = read_json(paths.PRETRAINED / run.parent / "metrics.json")
    account = account_of(
        backbone, run, tries, parent, bytes_per_token=_bytes_per_token(run) if history else 0.0
    )
    written: list[dict[str, str]] = []
    if history:
        corpus = EncodedCorpus.load(paths.ENCODED / run.corpus / run.tokenizer / "validation")
        written = samples(backbone, start.objective, corpus, start.tokenizer, start.device)
    with replacing(paths.PRETRAINED / key) as folder:
        folder.mkdir()
        # Of a run from scratch too, as one draw of many: it can be exported, and be a parent. Its
        # trials draw weights of their own.
        save_weights(backbone, folder / WEIGHTS)
        for file in start.tokenizer.files:
            shutil.copyfile(file, folder / file.name)
        write_json(folder / "metrics.json", account)
        write_json(folder / "run.json", _record(start, backbone))
    with replacing(paths.PROGRESS / "history" / f"{key}.csv") as file:
        write_history(file, history, run)
    with replacing(paths.PROGRESS / "rates" / f"{key}.csv") as file:
        write_tries(file, tries, run)
    with replacing(paths.PROGRESS / "samples" / f"{key}.jsonl") as file:
        write_jsonl(file, written)
    return account


def _bytes_per_token(run: Run) -> float:
    """The mean over the text that was encoded for training."""
    encoded = read_json(paths.ENCODED / run.corpus / run.tokenizer / "encoded.json")
    return encoded["train_bytes"] / encoded["train_tokens"]


def _record(start: Start, backbone: Backbone) -> Json:
    """What ``run.json`` holds: how to build the model again, and what it comes from."""
    run, key = start.run, start.key
    # A public checkpoint is built again from the folder of the run, which has all its files.
    place = {"path": str(paths.PRETRAINED / key)} if run.is_public else {}
    return {
        "run": key,
        "architecture": backbone.architecture,
        "d_model": backbone.d_model,
        "num_layers": backbone.num_layers,
        "objective": run.learnt[0],
        "corpus": run.learnt[1],
        "has_prefix": start.objective.has_prefix,
        "model": run.model | place,
        "settings": start.settings,
        "tokenizer": sha256(*start.tokenizer.files),
        "fingerprint": start.fingerprint,
    }


if __name__ == "__main__":
    run_stage(
        main,
        "run",
        repeats=lambda raw, key: [raw["pretrain"][key], raw["compute"], raw["distributed"]],
        rank=_rank,
    )
