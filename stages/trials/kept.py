"""A kept trial: the weights that its method trained, if any, and the record of the trial."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from stages.core import paths
from stages.core.artifacts import Json, sha256
from stages.core.components import Settings
from stages.core.keys import TrialKey
from stages.evaluation.records import TrialRow
from stages.methods._method import METHODS, Method, Predictor
from stages.models._heads import ModelWithHead
from stages.training.checkpoint import WEIGHTS, load_weights, save_weights
from stages.trials.setup import TrialSetup

KEY = "trial"  # in the metadata of safetensors, whose values are text
# The names of files: method, label budget, pretraining seed and fine-tuning seed.
FILE = re.compile(r"(\w+)-(\w+)-(-?\d+)-(-?\d+)\.safetensors")


@dataclass(frozen=True, kw_only=True)
class KeptTrial(TrialRow):
    """The record of a kept trial, with what is needed to build its model again."""

    component: Settings  # the method, as params.yaml had it
    text_to_text: bool
    max_tokens: int
    precision: str
    threshold: float  # the margin below which the answer becomes none, or the other label
    # Fingerprints of the checkpoint and the task that the weights belong to.
    pretraining: str  # settings, inputs and code of the checkpoint
    checkpoint_weights: str
    examples: str  # the task, its labels, its code and the rows of train
    read_at: str  # which states the labels are predicted from
    drawn_weights: str  # from scratch: weights that the seed draws and no file has; else ""


def path_of(key: TrialKey) -> Path:
    """Returns the path of the file that keeps the weights of a trial, if they are kept."""
    return weights_folder(key.run, key.task) / file_name(key)


def weights_folder(run: str, task: str) -> Path:
    """Returns the folder of the kept weights of all trials of a run and a task."""
    return paths.FINETUNED / task / run / "weights"


def file_name(key: TrialKey) -> str:
    parts = key.method, key.label_budget, str(key.pretrain_seed), str(key.finetune_seed)
    return f"{'-'.join(parts)}.safetensors"


def kept_trials(run: str, task: str) -> list[TrialKey]:
    """Returns the kept trials of a run and a task, in the order of the names of their files."""
    names = (FILE.fullmatch(file.name) for file in sorted(weights_folder(run, task).glob("*")))
    return [
        TrialKey(run, int(name[3]), task, name[1], name[2], int(name[4])) for name in names if name
    ]


def fingerprints(setup: TrialSetup) -> Json:
    """Returns the fingerprints of the checkpoint and of the task, by their names in KeptTrial."""
    return {
        "pretraining": setup.run_record["fingerprint"],
        "checkpoint_weights": sha256(setup.pretrained / WEIGHTS),
        "examples": sha256(*(setup.examples / name for name in ("task.json", "train.jsonl"))),
        "read_at": setup.task.read_at,
    }


def drawn_weights(setup: TrialSetup, model: ModelWithHead, *, seed: int) -> str:
    """Returns the fingerprint of the initial weights that a trial draws from its seed, or "" if all
    weights of ``model`` are stored. Whoever uses the trial draws them again, and another version of
    torch may draw other weights."""
    if not setup.from_scratch or all(weight.requires_grad for weight in model.parameters()):
        return ""
    return _hash(setup.backbone(seed=seed))


def _hash(backbone: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, weight in backbone.named_parameters():
        digest.update(name.encode() + weight.detach().numpy().tobytes())
    return digest.hexdigest()


def save(model: nn.Module, trial: KeptTrial, folder: Path) -> None:
    """Writes the weights that require a gradient, with the record of the trial as metadata."""
    metadata = {KEY: json.dumps(asdict(trial), sort_keys=True)}
    save_weights(model, folder / file_name(trial.key), trained_only=True, metadata=metadata)


def weights_bytes(model: ModelWithHead, checkpoint: Path) -> int:
    """Returns the size of the files that are needed to use a trial: the weights that its method
    trained and, unless these are all, the checkpoint. In a run from scratch, the initial weights
    count as a checkpoint."""
    weights = [*model.parameters()]
    trained = sum(w.numel() * w.element_size() for w in weights if w.requires_grad)
    return trained if all(w.requires_grad for w in weights) else trained + checkpoint.stat().st_size


def read(path: Path) -> KeptTrial:
    """Returns the record of a kept trial.

    Raises ValueError if the file cannot be read or has no record.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    if KEY not in metadata:
        raise ValueError(f"{path}: has no record of its trial; run `dvc repro`")
    about = json.loads(metadata[KEY])
    if about.keys() != {field.name for field in fields(KeptTrial)}:
        raise ValueError(f"{path}: was written by another version of this code; run `dvc repro`")
    return KeptTrial(**about)


def setup_of(trial: KeptTrial, path: Path) -> TrialSetup:
    """Returns the set-up of the weights in ``path``: their checkpoint and their task.

    Raises ValueError if the checkpoint or the task has changed since, or if the trial's seed now
    draws other weights.
    """
    setup = TrialSetup(
        trial.checkpoint,
        trial.task,
        max_tokens=trial.max_tokens,
        text_to_text=trial.text_to_text,
    )
    places = {
        "pretraining": setup.pretrained / "run.json",
        "checkpoint_weights": setup.pretrained / WEIGHTS,
        "examples": setup.examples,
    }
    now = fingerprints(setup)
    for name in places:
        here, then = now[name], getattr(trial, name)
        if here != then:
            raise ValueError(
                f"{path}: belongs to {places[name]} as of {then[:12]}, which is {here[:12]} now; "
                "run `dvc repro`"
            )
    if trial.read_at != now["read_at"]:
        raise ValueError(
            f"{path}: predicts from the {trial.read_at}, but labels are read at the "
            f"{now['read_at']} now; run `dvc repro`"
        )
    if trial.drawn_weights and trial.drawn_weights != _hash(
        setup.backbone(seed=trial.finetune_seed)
    ):
        raise ValueError(
            f"{path}: belongs to initial weights that this version of torch does not draw from the "
            f"seed; run `dvc repro --force finetune@{trial.task}`"
        )
    return setup


def rebuilt(trial: KeptTrial, setup: TrialSetup, path: Path) -> ModelWithHead:
    """Returns the model with which a trial predicted the test inputs.

    Raises ValueError unless the weights in ``path`` are exactly those that its method trains.
    """
    model = setup.adapted(_method(trial), seed=trial.finetune_seed)
    load_weights(model, path, trained_only=True)
    return model


def merged(trial: KeptTrial, setup: TrialSetup, path: Path) -> ModelWithHead:
    """Returns the model of a trial with what its method added merged into the weights of the
    pretrained model.

    Raises ValueError if that is impossible, or if the method trains nothing.
    """
    model = rebuilt(trial, setup, path)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ValueError(f"finetune.methods.{trial.method}: trains nothing; leave out --task")
    try:
        _method(trial).merge(model)
    except ValueError as error:
        raise ValueError(f"finetune.methods.{trial.method}: {error}") from None
    return model


def predictor(trial: KeptTrial, setup: TrialSetup) -> Predictor:
    """Returns the predictor of a trial: its task, or prompts with the shots of the trial."""
    method = _method(trial)
    if not method.prompts:
        return setup.task
    rows = setup.rows("train", seed=trial.finetune_seed)
    labelled = setup.labelled(rows, trial.label_budget, seed=trial.finetune_seed)
    return setup.predictor(method, labelled, seed=trial.finetune_seed, where=_where(trial))


def _method(trial: KeptTrial) -> Method:
    return METHODS.build(trial.component, where=_where(trial))


def _where(trial: KeptTrial) -> str:
    return f"finetune.methods.{trial.method}.method"
