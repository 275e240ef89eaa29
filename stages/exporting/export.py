"""Writes checkpoints, fine-tuned trials and baselines to folders that work without this project."""

import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from stages.baselines import _kept
from stages.core import paths
from stages.core.artifacts import Json, replacing, write_json
from stages.core.components import STAGES
from stages.core.keys import CheckpointKey, TrialKey
from stages.exporting.card import write_card
from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.text.batch import PADDING, Batch
from stages.training.checkpoint import WEIGHTS
from stages.trials.kept import merged, path_of
from stages.trials.lookup import opened
from stages.trials.setup import TrialSetup

HEAD = "head.safetensors"  # weight [C D] and bias [C] of a head for which transformers has no class
OF_WEIGHTS = ("config.json", "generation_config.json", WEIGHTS, "metrics.json", "run.json")
TOLERANCE = 1e-4  # of outputs, relative to the largest; a wrong weight differs by far more
SAMPLE_ROWS = 8
LOAD = """\
import transformers
from {module} import {name}

model = {name}.from_pretrained("FOLDER").eval()
tokenizer = transformers.AutoTokenizer.from_pretrained("FOLDER")"""
USE_HEAD = """
from safetensors.torch import load_file

head = load_file("FOLDER/head.safetensors")
inputs = tokenizer(["A text."], return_tensors="pt", padding=True)
states = model(inputs.input_ids, attention_mask=inputs.attention_mask).last_hidden_state
{pooled}
outputs = states @ head["weight"].T + head["bias"]  # {outputs}"""
POOLED = {
    "mean": """\
mask = inputs.attention_mask[..., None]
states = (states * mask).sum(1) / mask.sum(1)""",
    "first": "states = states[:, 0]",
    "last": "states = states[range(len(states)), inputs.attention_mask.sum(1) - 1]",
}
USE_BASELINE = """\
from pathlib import Path
from stages.baselines import _kept  # in FOLDER, with the packages of requirements.lock

baseline, kind = _kept.refit(Path("record.json"), Path("examples"))
baseline.predict([{"id": "1", "text": "A text."}])"""
BASELINE_NOTE = """\
`record.json` has its settings. It is fitted again, in seconds, to the labelled rows in `examples/`;
`stages/` has the code."""


def export_checkpoint(checkpoint: CheckpointKey, out: Path) -> str:
    """Copies a pretrained checkpoint, which is what ``save_pretrained`` writes, to the folder
    ``out`` and adds a model card. Returns a text on where it is.

    Raises ValueError if ``transformers`` has no class for it, or if ``out`` exists.
    """
    _refuse_used(out)
    source = paths.pretrained(checkpoint)
    if not (source / "config.json").is_file():
        raise ValueError(f"{source}: transformers has no class for this architecture")
    with replacing(out) as folder:
        shutil.copytree(source, folder)
        write_card(folder, checkpoint, use=LOAD.format(module="transformers", name="AutoModel"))
    return f"{checkpoint} is in {out}; its README.md says how to use it"


def export_trial(trial: TrialKey, out: Path) -> str:
    """Writes the model of a fine-tuned trial to the folder ``out``: the weights of its method
    merged, its tokenizer and a model card. Returns a text on where it is.

    The head is part of the model if a class of ``transformers`` computes the same logits, and else
    stands in ``head.safetensors``. The written files are loaded and compared with the trial.

    Raises ValueError for a trial whose method adds what cannot be merged, and if ``out``
    exists.
    """
    _refuse_used(out)
    kept, setup = opened(trial)
    model = merged(kept, setup, path_of(trial)).eval()
    if not hasattr(model.backbone, "model"):
        raise ValueError(f"{trial.model}: transformers has no class for this architecture")
    examples = setup.task.encode(setup.rows("test", seed=trial.finetune_seed)[:SAMPLE_ROWS])
    batch = setup.task.collate(examples, rngs=[])
    with replacing(out) as folder:
        folder.mkdir()
        written, use = _write_model(model, setup.task_record["labels"], batch, folder)
        for file in setup.pretrained.iterdir():
            if file.is_file() and file.name not in OF_WEIGHTS:
                shutil.copyfile(file, folder / file.name)
        write_card(folder, trial, use=use, note=_note(kept.threshold, setup))
    return f"{trial.checkpoint}, fine-tuned on {trial.task}, is in {out} as {written}"


def _write_model(
    model: ModelWithHead, labels: list[str], batch: Batch, folder: Path
) -> tuple[str, str]:
    """Writes the model with its head, and compares it with what was written on ``batch``. Returns
    the name of the class that loads it, and the code that does.

    Raises ValueError if the written model computes other states, as it does after a pretraining
    whose attention to the input was bidirectional in a decoder.
    """
    backbone, head = model.backbone, model.head
    with_head = _with_head(model, labels, batch)
    theirs = with_head or backbone.model
    theirs.save_pretrained(folder)
    name, module = type(theirs).__name__, type(theirs).__module__
    loaded = type(theirs).from_pretrained(folder, local_files_only=True).eval()
    expected = _output(theirs, batch)
    if with_head is None and isinstance(head, LinearHead):
        with torch.no_grad():
            expected = backbone(batch)
    if not _agree(_output(loaded, batch), expected, batch):
        raise ValueError(f"{name}: loaded again, it computes something else; nothing was written")
    use = LOAD.format(module=module, name=name)
    if with_head is None and isinstance(head, LinearHead):
        weights = {"weight": head.linear.weight, "bias": head.linear.bias}
        save_file({key: w.detach().contiguous() for key, w in weights.items()}, folder / HEAD)
        write_json(folder / "labels.json", {"labels": labels})
        pooled = POOLED[head.pooling] if isinstance(head, PooledHead) else "# a state per token"
        outputs = (
            f"of {', '.join(labels[:5])}{' ...' if labels[5:] else ''}" if labels else "numbers"
        )
        use += USE_HEAD.format(pooled=pooled, outputs=outputs)
    elif with_head is None and any(True for _ in head.parameters()):
        raise ValueError(f"{type(head).__name__}: no class of transformers has such a head")
    return name, use


@torch.no_grad()
def _with_head(model: ModelWithHead, labels: list[str], batch: Batch) -> Any:
    """Returns a model of ``transformers`` with the same logits on ``batch``; None if no class for
    labels of tokens or of texts has them."""
    import transformers

    head, base = model.head, model.backbone.model
    if not isinstance(head, LinearHead) or not labels:
        return None
    is_pooled = isinstance(head, PooledHead)
    auto_class = (
        transformers.AutoModelForSequenceClassification
        if is_pooled
        else transformers.AutoModelForTokenClassification
    )
    config = type(base.config).from_dict(base.config.to_dict())
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    try:
        theirs = auto_class.from_config(config, dtype=torch.float32).eval()
    except ValueError:
        return None
    lost = theirs.base_model.load_state_dict(base.state_dict(), strict=False)
    linear: Any = next(
        (getattr(theirs, n) for n in ("classifier", "score") if hasattr(theirs, n)), None
    )
    if lost.unexpected_keys or getattr(linear, "weight", None) is None:
        return None
    if linear.weight.shape != head.linear.weight.shape or linear.bias is None:
        return None
    linear.load_state_dict(head.linear.state_dict())
    states = model.backbone(batch)
    ours = head(states, batch.document_ids) if is_pooled else head(states)
    return theirs if _agree(_output(theirs, batch), ours, batch) else None


@torch.no_grad()
def _output(model: Any, batch: Batch) -> Tensor:
    """Returns the logits of a model of ``transformers``, or its states if it has no logits."""
    mask = (batch.document_ids != PADDING).long()
    inputs: Json = {"input_ids": batch.input_ids, "attention_mask": mask}
    if batch.segment_ids is not None and getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = batch.segment_ids
    if model.config.is_encoder_decoder and hasattr(model, "get_decoder"):
        inputs["decoder_input_ids"] = batch.input_ids[:, :1]
    output = model(**inputs)
    return output.logits if "logits" in output else output.last_hidden_state


def _agree(a: Tensor, b: Tensor, batch: Batch) -> bool:
    if a.shape != b.shape:
        return False
    difference = (a - b).abs()
    if difference.shape[:2] == batch.document_ids.shape:
        difference = difference[batch.document_ids != PADDING]  # padding means nothing
    return bool(difference.max() <= TOLERANCE * b.abs().max())


def _note(threshold: float, setup: TrialSetup) -> str:
    """Returns what a user must do beside loading the model to get the study's predictions."""
    notes = [f"Texts were cut at {setup.max_tokens} tokens in training."]
    if (long_texts := getattr(setup.task, "long_texts", "cut")) != "cut":
        notes.append(f"Longer texts were read by `long_texts: {long_texts}`; prepare yours so.")
    if threshold and not math.isinf(threshold):
        notes.append(
            "The second label is predicted where its logit exceeds that of the first by at least "
            f"{threshold:.6g}, which was chosen on validation."
        )
    return " ".join(notes)


def export_baseline(trial: TrialKey, out: Path) -> str:
    """Writes a baseline's trial to ``out``: its record, its rows and the code that fits it. Returns
    a text on where it is.

    Raises ValueError if the task has changed, if the baseline predicts differently when it is
    fitted again, or if ``out`` exists.
    """
    _refuse_used(out)
    record, examples = _kept.path_of(trial), paths.examples(trial.task)
    _kept.refit(record, examples)
    with replacing(out) as folder:
        (folder / "examples").mkdir(parents=True)
        shutil.copyfile(record, folder / "record.json")
        for name in _kept.FILES:
            shutil.copyfile(examples / name, folder / "examples" / name)
        shutil.copytree(STAGES, folder / "stages", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copyfile(STAGES.parent / "requirements.lock", folder / "requirements.lock")
        write_card(folder, trial, use=USE_BASELINE, note=BASELINE_NOTE, library="scikit-learn")
    return f"{trial.model}, fitted to {trial.task}, is in {out}; its README.md says how to use it"


def _refuse_used(out: Path) -> None:
    if out.exists():
        raise ValueError(f"{out}: exists; remove it, or name another folder")


def find_checkpoint(model: str, seed: int | None) -> CheckpointKey:
    """Returns the checkpoint of a model with this seed, by default that with the lowest.

    Raises ValueError with the valid seeds if there is none.
    """
    seeds = sorted(int(file.parent.name) for file in (paths.PRETRAINED / model).glob("*/run.json"))
    if not seeds or seed not in (None, *seeds):
        raise ValueError(
            f"{paths.PRETRAINED / model}: no such checkpoint; seeds: {seeds}; baselines need --task"
        )
    return CheckpointKey(model, seeds[0] if seed is None else seed)
