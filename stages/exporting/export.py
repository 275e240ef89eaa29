"""Writes a pretrained run, or a fine-tuned trial of it, as a model that ``transformers`` loads.

The written model is loaded and compared with the original before it is moved into place.
"""

from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from stages.core import paths
from stages.core.artifacts import Json, read_json, replacing, write_json
from stages.core.components import Settings, unknown
from stages.core.params import HUB
from stages.core.seeding import torch_stream
from stages.exporting import fast_tokenizer
from stages.exporting.correspondence import Weights
from stages.exporting.counterparts import (
    Counterpart,
    Goal,
    check_architecture,
    counterpart,
    without_head_bias,
)
from stages.exporting.decoder_families import CAUSAL_ONLY
from stages.models._backbone import MODELS
from stages.models._dimensions import Dimensions
from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.models._transformer import TransformerBackbone
from stages.tasks._writing import Writing
from stages.text.batch import PADDING, Batch
from stages.text.tokenizer import BOS_ID, EOS_ID, FILE, NUM_SPECIAL, PAD_ID, Tokenizer
from stages.training.checkpoint import WEIGHTS, load_weights
from stages.trials.kept import read
from stages.trials.lookup import KeptFile, opened

RECORD = "export.json"  # marks a folder as an export, and says of what
TOLERANCE = 1e-3  # of outputs, relative to the largest; a wrong weight differs by far more


def export(run: str, trial: KeptFile | None, out: Path, *, force: bool = False) -> str:
    """Write the folder of a run or of a trial of it; returns where it is and how to load it.

    Raises ValueError for what does not exist or has no counterpart in transformers.
    """
    _check_place(out, force=force)
    record = _record(run)
    model, labels = _trained(run, record, trial)
    goal = _goal(model)
    read_at = None if trial is None else read(trial.path(run)).read_at
    max_tokens = record["settings"]["training"]["max_tokens"]
    found = _counterpart(model, max_tokens, goal)
    note = found.note or (CAUSAL_ONLY if record["has_prefix"] else "")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with replacing(out) as folder:
        folder.mkdir()
        _write_model(folder, found, _weights(model, goal), labels)
        _write_tokenizer(folder, found, run, _dims(model), max_tokens)
        about = {
            "run": run,
            "fingerprint": record["fingerprint"],
            "trial": None if trial is None else vars(trial),
            "model_class": found.model_class,
            "read_at": read_at,
            "note": note,
        }
        write_json(folder / RECORD, about)
        _check(folder, found, model, goal)
    told = _how_to_load(out, run, trial, found, note)
    return f"{told}\nThe label of a word is read at: {read_at}." if goal == "tagging" else told


def _trained(run: str, record: Settings, trial: KeptFile | None) -> tuple[ModelWithHead, list[str]]:
    """The model of the run or of the trial with its weights, and its labels.

    Raises ValueError for a public checkpoint, an architecture that transformers does not have, and
    a trial that is not a plain model.
    """
    name = record["settings"]["model"]["name"]
    if name == HUB:
        raise ValueError(
            f"pretrain.{run}.model: is a public checkpoint, in transformers' own form already: "
            f"{paths.PRETRAINED / run}; what was fine-tuned on it cannot be exported"
        )
    check_architecture(name)
    if trial is not None:
        return _finetuned(run, trial)
    vocab_size = Tokenizer(paths.PRETRAINED / run / FILE).vocab_size
    return ModelWithHead(_backbone(run, record, vocab_size), torch.nn.Identity()), []


def _goal(model: ModelWithHead) -> Goal:
    if isinstance(model.head, PooledHead):
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


def _finetuned(run: str, trial: KeptFile) -> tuple[ModelWithHead, list[str]]:
    """The trial's model with its weights, and its labels.

    Raises ValueError if its method or task adds what a plain model does not have.
    """
    kept, setup = opened(run, trial)
    about = setup.task_record
    writes = isinstance(setup.task, Writing)
    if not writes and about["task"]["name"] not in ("classification", "tagging"):
        raise ValueError(f"tasks.{trial.task}: {about['task']['name']} cannot be exported")
    if setup.task.has_prefix:
        raise ValueError(
            f"pretrain.{run}.objective: a fine-tuned model that sees its input in both directions "
            "has no counterpart in transformers, whose decoders are causal"
        )
    model = setup.headed(seed=kept.finetune_seed)
    trained = load_file(trial.path(run))
    if not trained:
        raise ValueError(
            f"finetune.methods.{trial.method}: trains nothing; leave out --task and export the run"
        )
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    if odd := [name for name, w in trained.items() if shapes.get(name) != w.shape]:
        raise ValueError(
            f"finetune.methods.{trial.method}: transformers has no counterpart of what this "
            f"method adds to a model ({odd[0]})"
        )
    model.load_state_dict(trained, strict=False)  # what was frozen is as it was pretrained
    return model, [] if writes else about["labels"]


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


@torch.no_grad()
def _check(folder: Path, found: Counterpart, model: ModelWithHead, goal: Goal) -> None:
    """Raises ValueError unless the model that was written computes the same outputs."""
    loaded, report = getattr(transformers, found.auto_class).from_pretrained(
        folder,
        dtype=torch.float32,
        local_files_only=True,
        output_loading_info=True,
        **found.load_options,
    )
    odd = sorted({*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]})
    batch = _sample(model, goal)
    ours = outputs(model.eval(), batch, goal)
    error = (ours - their_outputs(loaded.eval(), batch)).abs()
    if ours.dim() == 3 and batch.decoder_input_ids is None:
        error = error[batch.document_ids != PADDING]  # states of padding mean nothing
    if odd or not error.max() <= TOLERANCE * ours.abs().max():
        raise ValueError(
            f"transformers {transformers.__version__} computes something else than this run "
            f"({', '.join(odd) or f'outputs differ by {error.max():.2g}'}); nothing was written"
        )


def _sample(model: ModelWithHead, goal: Goal) -> Batch:
    """Two rows of random text, the second with padding, and the input of a decoder."""
    backbone, length = model.backbone, min(12, _dims(model).max_positions)
    generator = torch_stream(0, "export")
    ids = torch.randint(NUM_SPECIAL, backbone.vocab_size, (2, length), generator=generator)
    documents = torch.ones_like(ids)
    documents[1, length // 2 :] = PADDING
    ids[documents == PADDING] = PAD_ID
    decodes = backbone.architecture == "encoder_decoder" and goal == "pretrained"
    return Batch(
        input_ids=ids,
        document_ids=documents,
        num_targets={},
        decoder_input_ids=ids[:1].expand(2, -1) if decodes else None,
        decoder_document_ids=torch.ones_like(ids) if decodes else None,
    )


def outputs(model: ModelWithHead, batch: Batch, goal: Goal) -> Tensor:
    """The outputs of our model: logits over labels or over the vocabulary, or else states."""
    backbone = model.backbone
    if goal == "classification":
        return model.head(backbone(batch), batch.document_ids)
    if goal == "tagging":
        return model.head(backbone(batch))
    if batch.decoder_input_ids is not None:
        return backbone.unembed(backbone.decode(batch))
    states = backbone(batch)
    gives_states = backbone.architecture == "encoder" and not _dims(model).output_transform
    return states if gives_states else backbone.unembed(states)


def their_outputs(model: transformers.PreTrainedModel, batch: Batch) -> Tensor:
    """The same outputs of a model of transformers."""
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": (batch.document_ids != PADDING).long(),
    }
    if batch.decoder_input_ids is not None:
        inputs["decoder_input_ids"] = batch.decoder_input_ids
    found = model(**inputs)
    return found.logits if "logits" in found else found.last_hidden_state


def _how_to_load(out: Path, run: str, trial: KeptFile | None, found: Counterpart, note: str) -> str:
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
