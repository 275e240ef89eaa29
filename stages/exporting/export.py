"""Writes a pretrained run, or a fine-tuned trial of it, as a model that ``transformers`` loads.

The written model is loaded and compared with the original before it is moved into place. A baseline
is written as a model of MLflow, which predicts without the project.
"""

import math
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

from stages.baselines import _kept
from stages.core import paths
from stages.core.artifacts import Json, read_json, replacing, write_json
from stages.core.components import STAGES, unknown
from stages.core.keys import RunKey, TrialKey
from stages.core.params import HUB
from stages.exporting import fast_tokenizer, mlflow_model, published
from stages.exporting.card import model_card
from stages.exporting.counterpart import (
    CAUSAL_LM,
    MASKED_LM,
    SEQ2SEQ_LM,
    STATES,
    TOKEN_LABELS,
    check,
    counterpart,
)
from stages.exporting.families import check_architecture
from stages.methods._method import METHODS, TrainedMethod
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead, PooledHead
from stages.models._transformer import TransformerBackbone
from stages.models.hub import Hub
from stages.tasks._pooled import MOST_WINDOWS
from stages.tasks._writing import Writing
from stages.text.tokenizer import FILE, Tokenizer
from stages.tracking.model_folder import write_model
from stages.training.checkpoint import WEIGHTS, load_weights
from stages.trials.kept import KeptTrial, path_of
from stages.trials.lookup import opened
from stages.trials.setup import TrialSetup

RECORD = "export.json"  # marks a folder as an export, and describes it
RECORDS = "*/*/run.json"  # the records of checkpoints

LOAD = """\
import transformers

model = transformers.{auto_class}.from_pretrained("FOLDER")
tokenizer = transformers.AutoTokenizer.from_pretrained("FOLDER")"""
STATES_ONLY = (
    "It gives states, no logits of a vocabulary: transformers has those of an encoder with "
    "output_transform: true alone. Its pooler_output is 0."
)
CAUSAL_ONLY = (
    "It was pretrained to read a prefix in both directions. The decoders of transformers are "
    "causal: the exported model reads a prompt from left to right, computes other states and "
    "logits of it than the run does here, and was not trained for that."
)
CHOSEN_THRESHOLD = (
    "The scores are of a threshold that was chosen on validation: {second} is predicted where "
    "logits[:, 1] - logits[:, 0] is at least {threshold:.6g}, not where its logit is larger."
)
ONE_LABEL = (
    "The scores are of a threshold that was chosen on validation, with which all texts are {label}."
)
HEAD_AND_TAIL = (
    "Of texts of more than {max_tokens} tokens it has read the first and the last ones, half of "
    "{max_tokens} each. The tokenizer cuts their end: shorten them yourself."
)
WINDOWS = (
    "It has read texts of more than {max_tokens} tokens in windows of {max_tokens} tokens, each of "
    "which shares half of its tokens with the next one; of a text with more than {most_windows} "
    "windows it has read {most_windows}, at even distances. The logits of a text are the mean of "
    "the logits of its windows. The tokenizer cuts the end of texts: make the windows yourself."
)
LONG_TEXTS = {"cut": "", "head_tail": HEAD_AND_TAIL, "windows": WINDOWS}
PIPELINES = {
    CAUSAL_LM: "text-generation",
    MASKED_LM: "fill-mask",
    STATES: "feature-extraction",
    TOKEN_LABELS: "token-classification",
    "AutoModelForSequenceClassification": "text-classification",
}
TEXTS_BY_TOKENS = {  # the mean of the tokens' logits is the logits of their mean state
    "mean": (
        "The logits of a text are the mean of its tokens': with mask = "
        "inputs.attention_mask[..., None], (model(**inputs).logits * mask).sum(1) / mask.sum(1)"
    ),
    "first": "The logits of a text are those of its first token: model(**inputs).logits[:, 0]",
    "last": "The logits of a text are those of its last token that is no padding.",
}
EXPORTED = ("classification", "tagging")
LOAD_BASELINE = """\
import mlflow, pandas

model = mlflow.pyfunc.load_model("FOLDER")
model.predict(pandas.DataFrame(...))"""
BASELINE_NOTE = """\
`{record}` has its settings. Loading fits it again, in seconds, to the rows in `{examples}`;
`code/` has the code. It needs the packages of `requirements.lock`."""


def export(checkpoint: RunKey, trial: TrialKey | None, out: Path, *, force: bool = False) -> str:
    """Writes a checkpoint, or a trial of it, to the folder ``out``. Returns a text that says where
    the model is and how to load it.

    Raises ValueError for a run or trial that does not exist or has no counterpart in
    ``transformers``.
    """
    check_place(out, force=force)
    record = _record(checkpoint)
    if record["settings"]["model"]["name"] != HUB:
        check_architecture(record["settings"]["model"]["name"])
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kept_trial = setup = read_at = None
    labels: list[str] = []
    if trial is None:
        model = _pretrained(checkpoint, record)
    else:
        kept_trial, setup = opened(trial)
        model, labels = _finetuned(kept_trial, setup, path_of(trial))
        read_at = kept_trial.read_at
    with replacing(out) as folder:
        folder.mkdir()
        if setup is not None and isinstance(model.backbone, Hub):
            auto_class, theirs = published.with_head(model, labels)
            theirs.save_pretrained(folder)
            notes = [published.save_tokenizer(setup.tokenizer, folder, setup.max_tokens)]
        else:
            backbone, max_tokens = model.backbone, record["settings"]["training"]["max_tokens"]
            auto_class, theirs = counterpart(model, max_tokens=max_tokens, labels=labels)
            theirs.save_pretrained(folder)
            assert isinstance(backbone, TransformerBackbone), "counterpart refuses others"
            fast_tokenizer.save(
                paths.pretrained(checkpoint) / FILE,
                folder,
                has_end=auto_class != CAUSAL_LM,
                specials_in_text=auto_class in (MASKED_LM, SEQ2SEQ_LM),
                has_segments=backbone.dims.num_segments > 1,
                max_tokens=backbone.max_positions or max_tokens,
            )
            notes = [STATES_ONLY] if auto_class == STATES else []
        if record["has_prefix"]:
            notes.append(CAUSAL_ONLY)
        by_tokens = isinstance(model.head, PooledHead) and auto_class == TOKEN_LABELS
        if by_tokens:
            notes.append(TEXTS_BY_TOKENS[model.head.pooling])
        if kept_trial is not None and setup is not None:
            notes += [long_texts_note(setup), _threshold_note(kept_trial.threshold, labels)]
        note = " ".join(filter(None, notes))
        about: Json = {
            **checkpoint._asdict(),
            "fingerprint": record["fingerprint"],
            "trial": None if trial is None else trial._asdict(),
            "model_class": type(theirs).__name__,
            "read_at": read_at,
            "note": note,
        }
        write_json(folder / RECORD, about)
        card = model_card(
            trial or checkpoint,
            record,
            load=LOAD.format(auto_class=auto_class),
            note=note,
            pipeline=None if by_tokens else PIPELINES.get(auto_class),
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
        for file in folder.iterdir():  # safetensors makes its file readable by its owner only
            file.chmod((folder / RECORD).stat().st_mode)
        check(folder, auto_class, model)
    what = f"{checkpoint}" if trial is None else f"{checkpoint}, fine-tuned on {trial.task},"
    lines = [
        f"{what} is in {out} as {about['model_class']}:",
        f"  model = transformers.{auto_class}.from_pretrained({str(out)!r})",
        f"  tokenizer = transformers.AutoTokenizer.from_pretrained({str(out)!r})",
    ]
    if trial is not None and auto_class == CAUSAL_LM:
        lines.append("What it writes follows a text and tokenizer.eos_token.")
    if note:
        lines.append(note)
    if auto_class == TOKEN_LABELS and not by_tokens:
        lines.append(f"The label of a word is read at: {read_at}.")
    return "\n".join(lines)


def _threshold_note(threshold: float, labels: list[str]) -> str:
    """Returns a note on a trial's threshold for its logits; "" if the largest logit decides."""
    if math.isinf(threshold):
        return ONE_LABEL.format(label=labels[int(threshold < 0)])
    return CHOSEN_THRESHOLD.format(second=labels[1], threshold=threshold) if threshold else ""


def long_texts_note(setup: TrialSetup) -> str:
    """Returns a note on which parts of texts longer than ``max_tokens`` a trial has read; "" if it
    has read their beginning, which the exported tokenizer keeps too."""
    note = LONG_TEXTS[getattr(setup.task, "long_texts", "cut")]
    return note.format(max_tokens=setup.max_tokens, most_windows=MOST_WINDOWS)


def export_baseline(trial: TrialKey, out: Path, *, force: bool = False) -> str:
    """Writes a baseline's trial to ``out``. Returns a text on where it is and how to use it.

    Raises ValueError if the task has changed, if the baseline predicts differently when it is
    fitted again, or if ``out`` must not be written (``check_place``).
    """
    check_place(out, force=force)
    record, examples = _kept.path_of(trial), paths.examples(trial.task)
    _kept.refit(record, examples)
    files = [record, *(examples / name for name in _kept.FILES)]
    with replacing(out) as folder:
        write_model(folder, trial.task, files, mlflow_model.__name__, put=shutil.copyfile)
        shutil.copyfile(STAGES.parent / "requirements.lock", folder / "requirements.lock")
        about = trial._asdict() | {"record": str(record), "examples": str(examples)}
        card = model_card(
            trial,
            None,
            load=LOAD_BASELINE,
            note=BASELINE_NOTE.format(record=record, examples=examples),
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
        write_json(folder / RECORD, about)
    return (
        f"{trial.run}, fitted to {trial.task}, is in {out} as a model of MLflow with its code:\n"
        f"  model = mlflow.pyfunc.load_model({str(out)!r})\n"
        "In the project, `python -m stages.commands.predict` needs no export."
    )


def check_place(out: Path, *, force: bool) -> None:
    """Raises ValueError unless the folder is new or empty or, with ``force``, has an earlier
    export."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / RECORD).is_file():
        raise ValueError(f"{out}: holds something other than an export; choose another folder")
    if not force:
        raise ValueError(f"{out}: is there already; --force replaces it")


def first_checkpoint(run: str) -> RunKey:
    """Returns the existing checkpoint of a run with the lowest seed.

    Raises ValueError with the valid runs if the run has no checkpoint.
    """
    seeds = _seeds(run)
    if not seeds:
        runs = sorted({record.parents[1].name for record in paths.PRETRAINED.glob(RECORDS)})
        if not runs:
            raise ValueError(f"{paths.PRETRAINED}: no run is there; `dvc repro` trains them")
        raise ValueError(f"{paths.PRETRAINED}: {unknown(run, runs)}; a baseline needs --task")
    return RunKey(run, seeds[0])


def _seeds(run: str) -> list[int]:
    """Returns the seeds of the checkpoints of a run, in ascending order."""
    records = (paths.PRETRAINED / run).glob("*/run.json")
    return sorted(int(record.parent.name) for record in records)


def _record(checkpoint: RunKey) -> Json:
    """Returns the record of a checkpoint.

    Raises ValueError with the valid runs or seeds if the checkpoint does not exist.
    """
    first_checkpoint(checkpoint.run)
    path = paths.pretrained(checkpoint) / "run.json"
    if not path.is_file():
        seeds = ", ".join(map(str, _seeds(checkpoint.run)))
        raise ValueError(
            f"{path.parents[1]}: no checkpoint of seed {checkpoint.pretrain_seed}; valid: {seeds}"
        )
    return read_json(path)


def _pretrained(checkpoint: RunKey, record: Json) -> ModelWithHead:
    """Returns the pretrained model with its weights and no head.

    Raises ValueError for a public checkpoint, or for weights of another version of this code.
    """
    folder = paths.pretrained(checkpoint)
    if record["settings"]["model"]["name"] == HUB:
        raise ValueError(
            f"pretrain.runs.{checkpoint.run}.model: is a public checkpoint, in transformers' own "
            f"form already: {folder}; add --task to export what was fine-tuned on it"
        )
    vocab_size = Tokenizer(folder / FILE).vocab_size
    where = f"{folder / 'run.json'}: model"
    backbone = MODELS.build(record["settings"]["model"], vocab_size, where=where)
    try:
        load_weights(backbone, folder / WEIGHTS)
    except ValueError:  # the message would name every weight
        raise ValueError(
            f"{folder}: belongs to another version of this code; run `dvc repro`"
        ) from None
    return ModelWithHead(backbone, torch.nn.Identity())


def _finetuned(kept: KeptTrial, setup: TrialSetup, path: Path) -> tuple[ModelWithHead, list[str]]:
    """Returns the trial's model with the weights in ``path``, and its labels. What the method adds
    to the model is merged into its weights.

    Raises ValueError for a task or an objective that cannot be exported, and for a method that
    trains nothing or adds what cannot be merged.
    """
    task = setup.task_record["task"]["name"]
    writes = isinstance(setup.task, Writing)
    if not writes and task not in EXPORTED:
        raise ValueError(f"tasks.{kept.task}: {task} cannot be exported")
    if setup.task.has_prefix:
        raise ValueError(
            f"{kept.run}: objective: a fine-tuned model that sees its input in both "
            "directions has no counterpart in transformers, whose decoders are causal"
        )
    model = setup.headed(seed=kept.finetune_seed)
    trained = load_file(path)
    if not trained:
        raise ValueError(
            f"finetune.methods.{kept.method}: trains nothing; leave out --task and export the run"
        )
    method = METHODS.build(kept.component, where=f"finetune.methods.{kept.method}.method")
    if isinstance(method, TrainedMethod):
        trained = method.merged(trained, model)
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    added = [name for name, weight in trained.items() if shapes.get(name) != weight.shape]
    if added:
        raise ValueError(
            f"finetune.methods.{kept.method}: transformers has no counterpart of what this "
            f"method adds to a model ({added[0]})"
        )
    model.load_state_dict(trained, strict=False)  # frozen weights keep their pretrained values
    return model, [] if writes else setup.task_record["labels"]
