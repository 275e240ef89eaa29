"""Writes a pretrained run, or a fine-tuned trial of it, as a model that ``transformers`` loads.

The written model is loaded and compared with the original before it is moved into place.
"""

from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

from stages.core import paths
from stages.core.artifacts import Json, read_json, replacing, write_json
from stages.core.components import Settings, unknown
from stages.core.params import HUB
from stages.exporting import fast_tokenizer, published
from stages.exporting.correspondence import Weights
from stages.exporting.counterparts import (
    Counterpart,
    Goal,
    check_architecture,
    counterpart,
    without_head_bias,
)
from stages.exporting.decoder_families import CAUSAL_ONLY
from stages.exporting.finetuned import finetuned
from stages.exporting.written import Written, check
from stages.models._backbone import MODELS
from stages.models._dimensions import Dimensions
from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.models._transformer import TransformerBackbone
from stages.models.hub import Hub
from stages.text.tokenizer import BOS_ID, EOS_ID, FILE, PAD_ID, Tokenizer
from stages.training.checkpoint import WEIGHTS, load_weights
from stages.trials.kept import read
from stages.trials.lookup import KeptFile, opened

RECORD = "export.json"  # marks a folder as an export, and says of what


OF_TEXTS = {  # a text's logits from those of its tokens: a mean of logits is those of the mean
    "mean": (
        "The logits of a text are the mean of its tokens': with mask = "
        "inputs.attention_mask[..., None], (model(**inputs).logits * mask).sum(1) / mask.sum(1)"
    ),
    "first": "The logits of a text are those of its first token: model(**inputs).logits[:, 0]",
    "last": "The logits of a text are those of its last token that is no padding.",
}


def export(run: str, trial: KeptFile | None, out: Path, *, force: bool = False) -> str:
    """Write the folder of a run or of a trial of it; returns where it is and how to load it.

    Raises ValueError for what does not exist or has no counterpart in transformers.
    """
    _check_place(out, force=force)
    record = _record(run)
    model, labels = _trained(run, record, trial)
    read_at = None if trial is None else read(trial.path(run)).read_at
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with replacing(out) as folder:
        folder.mkdir()
        if trial is not None and isinstance(model.backbone, Hub):
            found = _write_published(folder, model, labels, run, trial)
        else:
            found = _write(folder, model, labels, run, record)
        note = found.note or (CAUSAL_ONLY if record["has_prefix"] else "")
        if isinstance(model.head, PooledHead) and found.goal == "tagging":
            note = f"{note} {OF_TEXTS[model.head.pooling]}".strip()
        about = {
            "run": run,
            "fingerprint": record["fingerprint"],
            "trial": None if trial is None else vars(trial),
            "model_class": found.model_class,
            "read_at": read_at,
            "note": note,
        }
        write_json(folder / RECORD, about)
        check(folder, found, model)
    told = _how_to_load(out, run, trial, found, note)
    is_tagging = found.goal == "tagging" and not isinstance(model.head, PooledHead)
    return f"{told}\nThe label of a word is read at: {read_at}." if is_tagging else told


def _write(
    folder: Path, model: ModelWithHead, labels: list[str], run: str, record: Settings
) -> Written:
    """A model of ours, by its counterpart."""
    goal, max_tokens = _goal(model), record["settings"]["training"]["max_tokens"]
    found = _counterpart(model, max_tokens, goal)
    _write_model(folder, found, _weights(model, goal), labels)
    _write_tokenizer(folder, found, run, _dims(model), max_tokens)
    return Written(found.model_class, found.auto_class, goal, found.note, found.load_options)


def _write_published(
    folder: Path, model: ModelWithHead, labels: list[str], run: str, trial: KeptFile
) -> Written:
    """What was fine-tuned on a public checkpoint."""
    kept, setup = opened(run, trial)
    theirs, goal = published.with_head(model, labels)
    vocabulary = setup.tokenizer.files
    published.save(theirs, folder, vocabulary, kept.max_tokens)
    auto = "Token" if goal == "tagging" else "Sequence"
    tokenizer, end = transformers.AutoTokenizer.from_pretrained(folder), setup.tokenizer.after[-1:]
    note = ""
    if tuple(tokenizer("a")["input_ids"][-1:]) != tuple(end):
        note = f"Put {tokenizer.decode(end)} behind each text: the model was trained so."
    return Written(type(theirs).__name__, f"AutoModelFor{auto}Classification", goal, note)


def _trained(run: str, record: Settings, trial: KeptFile | None) -> tuple[ModelWithHead, list[str]]:
    """The model of the run or of the trial with its weights, and its labels.

    Raises ValueError for a public checkpoint as published, an architecture that transformers does
    not have, and a trial that is not a plain model.
    """
    name = record["settings"]["model"]["name"]
    if name != HUB:
        check_architecture(name)
    elif trial is None:
        raise ValueError(
            f"pretrain.{run}.model: is a public checkpoint, in transformers' own form already: "
            f"{paths.PRETRAINED / run}; add --task to export what was fine-tuned on it"
        )
    if trial is not None:
        return finetuned(run, trial)
    vocab_size = Tokenizer(paths.PRETRAINED / run / FILE).vocab_size
    return ModelWithHead(_backbone(run, record, vocab_size), torch.nn.Identity()), []


def _goal(model: ModelWithHead) -> Goal:
    """Encoders of transformers classify texts behind a layer that ours lack: theirs has the logits
    of tokens, from which those of texts are pooled."""
    if isinstance(model.head, PooledHead) and model.backbone.architecture != "encoder":
        return "classification"
    return "tagging" if isinstance(model.head, LinearHead) else "pretrained"


def _dims(model: ModelWithHead) -> Dimensions:
    assert isinstance(model.backbone, TransformerBackbone), "check_architecture refuses others"
    return model.backbone.dims


def _counterpart(model: ModelWithHead, max_tokens: int, goal: Goal) -> Counterpart:
    """Raises ValueError if transformers has no model that computes the same."""
    backbone = model.backbone
    found = counterpart(
        backbone.architecture,
        _dims(model),
        vocab_size=backbone.vocab_size,
        max_tokens=max_tokens,
        goal=goal,
    )
    if goal == "classification" and model.head.pooling != "last":
        raise ValueError(
            f"transformers' {found.model_class} classifies by the state of the last token; this "
            f"trial's pooling is {model.head.pooling}"
        )
    return found


def _write_tokenizer(
    folder: Path, found: Counterpart, run: str, dims: Dimensions, max_tokens: int
) -> None:
    learned = dims.positions == "learned"
    fast_tokenizer.save(
        paths.PRETRAINED / run / FILE,
        folder,
        ends="begin" if found.auto_class == "AutoModelForCausalLM" else "both",
        specials_in_text=found.auto_class in ("AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"),
        num_segments=dims.num_segments,
        max_tokens=found.config.max_position_embeddings if learned else max_tokens,
    )


def _check_place(out: Path, *, force: bool) -> None:
    """Raises ValueError unless the folder is new, or an earlier export that may be replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / RECORD).is_file():
        raise ValueError(f"{out}: holds something else than an export; choose another folder")
    if not force:
        raise ValueError(f"{out}: is there already; --force replaces it")


def _record(run: str) -> Json:
    path = paths.PRETRAINED / run / "run.json"
    if not path.is_file():
        runs = sorted(found.parent.name for found in paths.PRETRAINED.glob("*/run.json"))
        if not runs:
            raise ValueError(f"{paths.PRETRAINED}: no run is there; `dvc repro` trains them")
        raise ValueError(f"{paths.PRETRAINED}: {unknown(run, runs)}")
    return read_json(path)


def _backbone(run: str, record: Settings, vocab_size: int) -> TransformerBackbone:
    """The pretrained model with its weights."""
    backbone = MODELS.build(record["settings"]["model"], vocab_size, where=f"pretrain.{run}.model")
    try:
        load_weights(backbone, paths.PRETRAINED / run / WEIGHTS)
    except ValueError:  # which would name every weight
        raise ValueError(
            f"{paths.PRETRAINED / run}: belongs to another version of this code; run `dvc repro`"
        ) from None
    assert isinstance(backbone, TransformerBackbone)
    return backbone


def _weights(model: ModelWithHead, goal: Goal) -> Weights:
    """All weights by the names that counterparts give them."""
    weights = dict(model.backbone.state_dict())
    weights |= {f"head.{name}": weight for name, weight in model.head.state_dict().items()}
    return without_head_bias(weights) if goal == "classification" else weights


def _write_model(folder: Path, found: Counterpart, weights: Weights, labels: list[str]) -> None:
    config = found.config
    config.architectures = [found.model_class]
    config.dtype = "float32"
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: i for i, label in enumerate(labels)}
    config.save_pretrained(folder)
    if found.auto_class in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM"):
        start = {"decoder_start_token_id": BOS_ID} if config.is_encoder_decoder else {}
        transformers.GenerationConfig(
            bos_token_id=BOS_ID, eos_token_id=EOS_ID, pad_token_id=PAD_ID, **start
        ).save_pretrained(folder)
    save_file(found.to_theirs(weights), folder / WEIGHTS, metadata={"format": "pt"})
    # This file alone is created readable by its owner only.
    (folder / WEIGHTS).chmod((folder / "config.json").stat().st_mode)


def _how_to_load(out: Path, run: str, trial: KeptFile | None, found: Written, note: str) -> str:
    what = run if trial is None else f"{run}, fine-tuned on {trial.task},"
    options = "".join(f", {name}={value}" for name, value in found.load_options.items())
    lines = [
        f"{what} is in {out} as {found.model_class}:",
        f"  model = transformers.{found.auto_class}.from_pretrained({str(out)!r}{options})",
        f"  tokenizer = transformers.AutoTokenizer.from_pretrained({str(out)!r})",
    ]
    if trial is not None and found.auto_class == "AutoModelForCausalLM":
        lines.append("What it writes stands behind a text and tokenizer.eos_token.")
    return "\n".join([*lines, note] if note else lines)
