"""Writes a pretrained run, or a fine-tuned trial of it, as a model that ``transformers`` loads.

The written model is loaded and compared with the original before it is moved into place.
"""

import math
from pathlib import Path

import torch
import transformers

from stages.core import paths
from stages.core.artifacts import Json, read_json, replacing, write_json
from stages.core.components import Settings, unknown
from stages.core.keys import RunKey, TrialKey
from stages.core.params import HUB
from stages.exporting import fast_tokenizer, published
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
from stages.exporting.finetuned import finetuned
from stages.models._backbone import MODELS
from stages.models._heads import ModelWithHead, PooledHead
from stages.models._transformer import TransformerBackbone
from stages.models.hub import Hub
from stages.tasks._pooled import MOST_WINDOWS
from stages.text.tokenizer import FILE, Tokenizer
from stages.training.checkpoint import WEIGHTS, load_weights
from stages.trials.kept import path_of
from stages.trials.lookup import opened

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
    "Of texts of more than {max_tokens} tokens it has read the first and the last half of so many. "
    "The tokenizer cuts their end: shorten them yourself."
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
TEXTS_BY_TOKENS = {  # a mean of logits is the logits of the mean
    "mean": (
        "The logits of a text are the mean of its tokens': with mask = "
        "inputs.attention_mask[..., None], (model(**inputs).logits * mask).sum(1) / mask.sum(1)"
    ),
    "first": "The logits of a text are those of its first token: model(**inputs).logits[:, 0]",
    "last": "The logits of a text are those of its last token that is no padding.",
}


def export(checkpoint: RunKey, trial: TrialKey | None, out: Path, *, force: bool = False) -> str:
    """Writes a checkpoint, or a trial of it, to the folder ``out``. Returns a text that says where
    the model is and how to load it.

    Raises ValueError for a run or trial that does not exist or has no counterpart in
    ``transformers``.
    """
    check_place(out, force=force)
    record = _record(checkpoint)
    _check_model(checkpoint, record, trial)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    labels: list[str] = []
    setup, read_at, threshold = None, None, 0.0
    if trial is None:
        model = _pretrained(checkpoint, record)
    else:
        kept, setup = opened(trial)
        model, labels = finetuned(kept, setup, path_of(trial))
        read_at, threshold = kept.read_at, kept.threshold
    with replacing(out) as folder:
        folder.mkdir()
        if setup is not None and isinstance(model.backbone, Hub):
            auto_class, theirs = published.with_head(model, labels)
            theirs.save_pretrained(folder)
            notes = [published.save_tokenizer(setup.tokenizer, folder, setup.max_tokens)]
        else:
            max_tokens = record["settings"]["training"]["max_tokens"]
            auto_class, theirs = counterpart(model, max_tokens=max_tokens, labels=labels)
            theirs.save_pretrained(folder)
            _save_tokenizer(checkpoint, folder, model, auto_class, max_tokens)
            notes = [STATES_ONLY] if auto_class == STATES else []
        if record["has_prefix"]:
            notes.append(CAUSAL_ONLY)
        if isinstance(model.head, PooledHead) and auto_class == TOKEN_LABELS:
            notes.append(TEXTS_BY_TOKENS[model.head.pooling])
        if setup is not None:
            long_texts = LONG_TEXTS[getattr(setup.task, "long_texts", "cut")]
            notes.append(long_texts.format(max_tokens=setup.max_tokens, most_windows=MOST_WINDOWS))
        if math.isinf(threshold):
            notes.append(ONE_LABEL.format(label=labels[int(threshold < 0)]))
        elif threshold:
            notes.append(CHOSEN_THRESHOLD.format(second=labels[1], threshold=threshold))
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
        is_of_tokens = isinstance(model.head, PooledHead) and auto_class == TOKEN_LABELS
        card = model_card(
            trial or checkpoint,
            record,
            load=LOAD.format(auto_class=auto_class),
            note=note,
            pipeline=None if is_of_tokens else PIPELINES.get(auto_class),
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
        lines.append("What it writes stands behind a text and tokenizer.eos_token.")
    if note:
        lines.append(note)
    if auto_class == TOKEN_LABELS and not isinstance(model.head, PooledHead):
        lines.append(f"The label of a word is read at: {read_at}.")
    return "\n".join(lines)


def _save_tokenizer(
    checkpoint: RunKey, folder: Path, model: ModelWithHead, auto_class: str, max_tokens: int
) -> None:
    backbone = model.backbone
    assert isinstance(backbone, TransformerBackbone)
    fast_tokenizer.save(
        paths.pretrained(checkpoint) / FILE,
        folder,
        has_end=auto_class != CAUSAL_LM,
        specials_in_text=auto_class in (MASKED_LM, SEQ2SEQ_LM),
        has_segments=backbone.dims.num_segments > 1,
        max_tokens=backbone.max_positions or max_tokens,
    )


def check_place(out: Path, *, force: bool) -> None:
    """Raises ValueError unless the folder is new or empty, or an earlier export that ``force``
    replaces."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / RECORD).is_file():
        raise ValueError(f"{out}: holds something else than an export; choose another folder")
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


def _check_model(checkpoint: RunKey, record: Settings, trial: TrialKey | None) -> None:
    """Raises ValueError for a public checkpoint as published, and for an architecture that
    ``transformers`` does not have."""
    name = record["settings"]["model"]["name"]
    if name != HUB:
        check_architecture(name)
    elif trial is None:
        raise ValueError(
            f"pretrain.runs.{checkpoint.run}.model: is a public checkpoint, in transformers' own "
            f"form already: {paths.pretrained(checkpoint)}; add --task to export what was "
            "fine-tuned on it"
        )


def _pretrained(checkpoint: RunKey, record: Settings) -> ModelWithHead:
    """Returns the pretrained model with its weights and no head."""
    folder = paths.pretrained(checkpoint)
    vocab_size = Tokenizer(folder / FILE).vocab_size
    where = f"{folder / 'run.json'}: model"
    backbone = MODELS.build(record["settings"]["model"], vocab_size, where=where)
    try:
        load_weights(backbone, folder / WEIGHTS)
    except ValueError:  # its message would name every weight
        raise ValueError(
            f"{folder}: belongs to another version of this code; run `dvc repro`"
        ) from None
    return ModelWithHead(backbone, torch.nn.Identity())
