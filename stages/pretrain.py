"""Pretrain a run of params.yaml by its objective: from its parent's weights, from those of a public
checkpoint, or from scratch."""

import csv
import shutil
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from stages.core import paths
from stages.core.artifacts import read_json, replacing, sha256, write_json, write_jsonl
from stages.core.code import hashes
from stages.core.components import below
from stages.core.params import NONE, Params, Run, entry
from stages.core.process import run_stage
from stages.core.seeding import torch_stream
from stages.models._backbone import MODELS, Backbone
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import Objective
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.tracking.tracker import Tracker
from stages.training.checkpoint import (
    WEIGHTS,
    Resumable,
    fingerprint,
    load_weights,
    save_weights,
)
from stages.training.device import Device, resolve
from stages.training.loop import Step, mean_loss, train
from stages.training.meter import Meter, hardware
from stages.training.pretraining import (
    PretrainingData,
    begin_with_frequencies,
    built,
    validation_batches,
)
from stages.training.samples import samples

HISTORY_ROWS = 1000  # at most about as many rows of history are kept
History = list[dict[str, float]]
Account = dict[str, Any]  # numbers; None is an unknown one


def main(params: Params, key: str) -> None:
    run = entry(params.pretrain, key, where="pretrain").planned(
        read_json(paths.PLANS / f"{key}.json")
    )
    device = resolve(params.compute, threads=params.compute.threads)
    meter = Meter(device)
    inputs = [
        paths.ENCODED / run.corpus / run.tokenizer,
        paths.TOKENIZERS / run.tokenizer,
        paths.PRETRAINED / run.parent,
    ]
    settings = run.model_dump() | {"compute": device.describe()}
    components = (f"models/{run.model['name']}", f"objectives/{run.objective['name']}")
    identity = fingerprint(settings | {"code": hashes("pretrain", *components)}, inputs)
    resumable = Resumable(f"pretrain/{key}", identity)

    where = f"pretrain.{key}"
    kind: Any = MODELS.find(str(run.model["name"]), where=f"{where}.model")
    with below(f"{where}.model"):
        tokenizer = kind.tokenizer_of(run.model, paths.TOKENIZERS / run.tokenizer)
    backbone, objective = built(run, tokenizer, where=where)
    # How to begin: resume if an interrupted process left a state (in train), else from the parent's
    # weights or what a teacher gives, else from scratch (a public checkpoint, as it was published).
    if run.parent == NONE or objective.has_teacher:
        with below(f"{where}.model"):
            backbone.initialise(generator=torch_stream(run.seed, "weights"))
    else:
        load_weights(backbone, paths.PRETRAINED / run.parent / WEIGHTS)
    if objective.has_teacher:
        objective.learn_from(_teacher(run, tokenizer.vocab_size).to(device.torch), backbone)
    with below(f"{where}.objective"):
        model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(run.seed, "head"))
    model.to(device.torch)
    history: History = []
    written: list[dict[str, str]] = []
    if objective.trains:
        with Tracker(
            params.study,
            key,
            params=settings,
            tags={"architecture": backbone.architecture, "corpus": run.corpus},
            fingerprint=identity,
        ) as tracker:
            history = _train(model, objective, run, key, device, resumable, tracker)
    backbone.drop_pretraining_layers()
    account = _params(backbone, run)
    if objective.trains:
        account |= _work(history, run)
        written = samples(
            backbone,
            objective,
            EncodedCorpus.load(paths.ENCODED / run.corpus / run.tokenizer / "validation"),
            tokenizer,
            device,
        )
    account |= _lineage(account, run)

    with replacing(paths.PRETRAINED / key) as folder:
        folder.mkdir()
        save_weights(backbone, folder / WEIGHTS)
        for file in tokenizer.files:
            shutil.copyfile(file, folder / file.name)
        write_json(folder / "metrics.json", account)
        write_json(
            folder / "run.json",
            {
                "run": key,
                "architecture": backbone.architecture,
                "d_model": backbone.d_model,
                "num_layers": backbone.num_layers,
                "objective": run.learnt[0],
                "corpus": run.learnt[1],
                "has_prefix": objective.has_prefix,
                # A public checkpoint is built anew from this folder, which has all that it needs.
                "model": run.model
                | ({"path": str(paths.PRETRAINED / key)} if run.is_public else {}),
                "settings": settings,
                "tokenizer": sha256(*tokenizer.files),
                "fingerprint": identity,
            },
        )
    with replacing(paths.PROGRESS / "history" / f"{key}.csv") as file:
        _write_history(history, run, file)
    with replacing(paths.PROGRESS / "samples" / f"{key}.jsonl") as file:
        write_jsonl(file, written)
    _write_timing(
        paths.TIMINGS / "pretrain" / f"{key}.json", resumable.wall_time_s(), meter, account, device
    )
    resumable.clear()


def _teacher(run: Run, vocab_size: int) -> Backbone:
    """The parent's model with its weights, frozen."""
    parent = paths.PRETRAINED / run.parent
    settings = read_json(parent / "run.json")["settings"]["model"]
    teacher: Backbone = MODELS.build(settings, vocab_size, where=f"pretrain.{run.parent}.model")
    load_weights(teacher, parent / WEIGHTS)
    return teacher.requires_grad_(False).eval()


def _train(
    model: ModelWithHead,
    objective: Objective,
    run: Run,
    key: str,
    device: Device,
    resumable: Resumable,
    tracker: Tracker,
) -> History:
    """Train the model in place; returns its history."""
    training = run.training
    corpus = paths.ENCODED / run.corpus / run.tokenizer

    def packing(split: str, seed: int) -> Packing:
        try:
            return Packing(EncodedCorpus.load(corpus / split), training.max_tokens, seed=seed)
        except ValueError as error:
            raise ValueError(f"pretrain.{key}.corpus: {split} of {run.corpus}: {error}") from None

    data = PretrainingData(
        packing("train", run.seed),
        objective,
        batch_rows=training.batch_rows,
        micro_batch_rows=training.micro_batch_rows,
        seed=run.seed,
    )
    begin_with_frequencies(model.backbone, data, num_steps=training.num_steps)
    compared = objective.for_validation()
    validation = validation_batches(
        packing("validation", 0), compared, batch_rows=training.micro_batch_rows
    )

    def after_step(done: Step) -> dict[str, float]:
        measured = {}
        if _is_validation_step(done.step, run):
            measured["validation_loss"] = mean_loss(model, compared, validation, device)
        tracker.log(done.step, {"loss": done.loss, "lr": done.lr} | measured)
        return measured

    with below(f"pretrain.{key}.training"):
        return train(
            model,
            objective,
            data,
            training,
            num_steps=training.num_steps,
            seed=run.seed,
            device=device,
            after_step=after_step,
            resumable=resumable,
            description=f"pretrain {key}",
        )


def _is_validation_step(step: int, run: Run) -> bool:
    """Whether one of num_validations evenly spaced points lies in this step."""
    count, total = run.training.num_validations, run.training.num_steps
    return step * count // total > (step - 1) * count // total


def _params(backbone: Backbone, run: Run) -> Account:
    """The size of the model, in parameters, and no work as yet; what others did is not known."""
    total = sum(p.numel() for p in backbone.parameters())
    embedding = sum(p.numel() for p in backbone.lookup_tables.parameters())
    done = None if run.is_public else 0
    return {
        "num_params": total,
        "num_embedding_params": embedding,
        "pretrain_tokens": done,
        "pretrain_flops": done,
    }


def _work(history: History, run: Run) -> Account:
    """What was done and what came of it."""
    training = run.training
    validated = [row["validation_loss"] for row in history if "validation_loss" in row]
    return {
        "pretrain_tokens": training.num_steps * training.batch_rows * training.max_tokens,
        "pretrain_flops": sum(row["flops"] for row in history),
        "train_loss": history[-1]["loss"],
        "validation_loss": validated[-1],
    }


def _lineage(account: Account, run: Run) -> Account:
    """The work of this run and of all that it came from: its parent's, a teacher's too."""
    earlier = {"lineage_tokens": 0, "lineage_flops": 0}
    if run.is_public:
        return dict.fromkeys(earlier)
    if run.parent != NONE:
        earlier = read_json(paths.PRETRAINED / run.parent / "metrics.json")
    return {
        f"lineage_{amount}": account[f"pretrain_{amount}"] + earlier[f"lineage_{amount}"]
        for amount in ("tokens", "flops")
    }


def _write_history(history: History, run: Run, path: Path) -> None:
    with path.open("w", newline="") as file:
        columns = ["step", "tokens", "flops", "loss", "lr", "validation_loss"]
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_thinned(history, run))


def _thinned(history: History, run: Run) -> Iterator[dict[str, Any]]:
    """Every so many rows, and those with a validation loss; tokens and FLOPs are all until then."""
    every = -(-len(history) // HISTORY_ROWS) or 1
    row_tokens = run.training.batch_rows * run.training.max_tokens
    done = accumulate(int(row["flops"]) for row in history)
    for row, flops in zip(history, done, strict=True):
        if row["step"] % every == 0 or "validation_loss" in row:
            yield {
                "step": row["step"],
                "tokens": int(row["step"]) * row_tokens,
                "flops": flops,
                "loss": row["loss"],
                "lr": row["lr"],
                "validation_loss": row.get("validation_loss", ""),
            }


def _write_timing(
    path: Path, seconds: float, meter: Meter, account: Account, device: Device
) -> None:
    """What was measured about the machine, apart from every artifact that others depend on. Of
    interrupted processes the wall time alone is known; the rest is taken to be in proportion."""
    usage = meter.read()
    whole = seconds / usage.wall_time_s
    energy = usage.gpu_energy_j
    with replacing(path) as temporary:
        write_json(
            temporary,
            {
                "wall_time_s": round(seconds, 3),
                "peak_memory_bytes": usage.peak_memory_bytes,
                "processor_time_s": round(whole * usage.processor_time_s, 3),
                "gpu_energy_j": None if energy is None else round(whole * energy, 3),
                "tokens_per_s": round((account["pretrain_tokens"] or 0) / seconds, 1),
                "device": device.device,
                "hardware": hardware(device),
                "threads": device.threads,
            },
        )


if __name__ == "__main__":
    run_stage(main, "run", repeats=lambda raw, key: [raw["pretrain"][key], raw["compute"]])
