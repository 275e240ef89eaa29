"""A kept trial: the weights that its method trained, if any, and the record of the trial."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from stages.core import paths
from stages.core.artifacts import sha256
from stages.core.components import Settings
from stages.core.keys import TrialKey
from stages.evaluation.records import TrialRow
from stages.methods._method import METHODS, Method
from stages.models._heads import ModelWithHead
from stages.training.checkpoint import WEIGHTS, load_weights, save_weights
from stages.trials.setup import TrialSetup

KEY = "trial"  # in the metadata of safetensors, whose values are text


@dataclass(frozen=True, kw_only=True)
class KeptTrial(TrialRow):
    """The record of a kept trial, with what is needed to build its model again."""

    component: Settings  # the method, as params.yaml had it
    text_to_text: bool
    max_tokens: int
    precision: str
    threshold: float  # the margin below which the answer becomes none, or the other label
    belongs_to: str  # fingerprint of the checkpoint and the task

    @property
    def method_component(self) -> Method:
        return METHODS.build(self.component, where=f"finetune.methods.{self.method}.method")


def path_of(key: TrialKey) -> Path:
    """Returns the path of the file that keeps the weights of a trial, if they are kept."""
    return paths.FINETUNED / key.task / key.model / "weights" / file_name(key)


def file_name(key: TrialKey) -> str:
    parts = key.method, key.label_budget, key.pretrain_seed, key.finetune_seed
    return f"{'-'.join(map(str, parts))}.safetensors"


def fingerprint(setup: TrialSetup) -> str:
    """Returns a hash of all that the weights of a trial belong to: the checkpoint, the task with
    its rows of train, the states that labels are read from and, from scratch, the version of torch,
    which draws the weights that are not kept."""
    task = sha256(*(setup.examples / name for name in ("task.json", "train.jsonl")))
    of_run, weights = setup.run_record["fingerprint"], sha256(setup.pretrained / WEIGHTS)
    drawn_by = torch.__version__ if setup.from_scratch else None
    parts = [of_run, weights, task, setup.task.read_at, drawn_by]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def save(model: nn.Module, trial: KeptTrial, folder: Path) -> None:
    """Writes the weights that require a gradient, with the record of the trial as metadata."""
    metadata = {KEY: json.dumps(asdict(trial), sort_keys=True)}
    save_weights(model, folder / file_name(trial.key), metadata)


def read(path: Path) -> KeptTrial:
    """Returns the record of a kept trial; raises ValueError if the file does not have it."""
    try:
        with safe_open(path, framework="pt") as file:
            record = json.loads((file.metadata() or {}).get(KEY, "{}"))
    except SafetensorError as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    if record.keys() != {field.name for field in fields(KeptTrial)}:
        raise ValueError(f"{path}: is of another version of this code; run `dvc repro`")
    return KeptTrial(**record)


def setup_of(trial: KeptTrial, path: Path) -> TrialSetup:
    """Returns the set-up of the weights in ``path``: their checkpoint and their task.

    Raises ValueError if one of them, or the version of torch, has changed since.
    """
    tokens, as_text = trial.max_tokens, trial.text_to_text
    setup = TrialSetup(trial.checkpoint, trial.task, max_tokens=tokens, text_to_text=as_text)
    if trial.belongs_to != fingerprint(setup):
        raise ValueError(
            f"{path}: {setup.pretrained}, {setup.examples} or the version of torch has changed "
            f"since; run `dvc repro`, after an update of torch `dvc repro -f finetune@{trial.task}`"
        )
    return setup


def rebuilt(trial: KeptTrial, setup: TrialSetup, path: Path) -> ModelWithHead:
    """Returns the model with which a trial predicted the test inputs.

    Raises ValueError unless the weights in ``path`` are exactly those that its method trains.
    """
    model = setup.adapted(trial.method_component, seed=trial.finetune_seed)
    load_weights(model, path)
    return model


def merged(trial: KeptTrial, setup: TrialSetup, path: Path) -> ModelWithHead:
    """Returns the model of a trial with what its method added merged into the weights of the
    pretrained model.

    Raises ValueError if that is impossible, or if the method trains nothing.
    """
    model = rebuilt(trial, setup, path)
    try:
        if not any(weight.requires_grad for weight in model.parameters()):
            raise ValueError("trains nothing; leave out --task")
        trial.method_component.merge(model)
    except ValueError as error:
        raise ValueError(f"finetune.methods.{trial.method}: {error}") from None
    return model
