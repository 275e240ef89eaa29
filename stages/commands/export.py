"""Write a pretrained run, or a fine-tuned trial of it, as a model that `transformers` loads.

What is written computes what this study's model computes: it is loaded again and compared before
it takes its place. What `transformers` cannot compute is refused.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from stages.commands._kept_trials import KeptFile, add_options, chosen, find_trial, opened
from stages.core import paths
from stages.core.artifacts import read_json, replacing, write_json
from stages.core.components import unknown
from stages.core.params import HUB
from stages.core.process import exit_on_mistake
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
from stages.models._backbone import MODELS, TransformerBackbone
from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.tasks._writing import Writing
from stages.text.batch import PADDING, Batch
from stages.text.tokenizer import BOS_ID, EOS_ID, FILE, NUM_SPECIAL, PAD_ID, Tokenizer
from stages.training.checkpoint import WEIGHTS, load_weights

RECORD = "export.json"  # what a folder holds, and the sign that it is an export
TOLERANCE = 1e-3  # of outputs, relative to the largest; a wrong weight differs by far more


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m stages.commands.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", help="the run, by its name in params.yaml")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--task", help="export a trial on this task, not the run itself")
    add_options(parser)
    parser.add_argument("--force", action="store_true", help="replace an earlier export")
    options = parser.parse_args()

    def checked() -> None:
        wanted = chosen(options)
        if options.task is None and any(wanted):
            raise ValueError("--method, --label-budget and --seed are of a trial; add --task")
        trial = None if options.task is None else find_trial(options.run, options.task, *wanted)
        print(export(options.run, trial, options.out, force=options.force))

    exit_on_mistake(checked)


def export(run: str, trial: KeptFile | None, out: Path, *, force: bool = False) -> str:
    """Write the folder; returns where it is and how to load it.

    Raises ValueError for what does not exist or has no counterpart.
    """
    _check_place(out, force=force)
    record = _record(run)
    name = record["settings"]["model"]["name"]
    if name == HUB:
        raise ValueError(
            f"pretrain.{run}.model: is a public checkpoint, in transformers' own form already: "
            f"{paths.PRETRAINED / run}; what was fine-tuned on it cannot be exported"
        )
    check_architecture(name)
    tokenizer_path = paths.PRETRAINED / run / FILE
    max_tokens = record["settings"]["training"]["max_tokens"]
    goal: Goal = "pretrained"
    if trial is None:
        backbone = _backbone(run, record, Tokenizer(tokenizer_path).vocab_size)
        model, labels = ModelWithHead(backbone, torch.nn.Identity()), []
    else:
        model, labels = _finetuned(run, trial)
        backbone = model.backbone
        if isinstance(model.head, PooledHead):
            goal = "classification"
        elif isinstance(model.head, LinearHead):
            goal = "tagging"
    found = counterpart(
        backbone.architecture,
        backbone.dims,
        vocab_size=backbone.vocab_size,
        max_tokens=max_tokens,
        goal=goal,
    )
    if goal == "classification" and model.head.pooling != "last":
        raise ValueError(
            f"transformers' {found.model_class} looks at the state of the last token; this "
            f"trial's pooling is {model.head.pooling}"
        )
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with replacing(out) as folder:
        folder.mkdir()
        _write_model(folder, found, _weights(model, goal), labels)
        fast_tokenizer.save(
            tokenizer_path,
            folder,
            ends="begin" if found.auto_class == "AutoModelForCausalLM" else "both",
            specials_in_text=found.auto_class in ("AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"),
            num_segments=backbone.dims.num_segments,
            max_tokens=found.config.max_position_embeddings
            if backbone.dims.positions == "learned"
            else max_tokens,
        )
        write_json(
            folder / RECORD,
            {
                "run": run,
                "fingerprint": record["fingerprint"],
                "trial": None if trial is None else vars(trial),
                "model_class": found.model_class,
            },
        )
        _check(folder, found, model, goal)
    return _told(out, run, trial, found)


def _check_place(out: Path, *, force: bool) -> None:
    """Raises ValueError unless the folder is free, or an earlier export that may go."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / RECORD).is_file():
        raise ValueError(f"{out}: holds something else than an export; choose another folder")
    if not force:
        raise ValueError(f"{out}: is there already; --force replaces it")


def _record(run: str) -> dict[str, Any]:
    path = paths.PRETRAINED / run / "run.json"
    if not path.is_file():
        runs = sorted(found.parent.name for found in paths.PRETRAINED.glob("*/run.json"))
        if not runs:
            raise ValueError(f"{paths.PRETRAINED}: no run is there; `dvc repro` trains them")
        raise ValueError(f"{paths.PRETRAINED}: {unknown(run, runs)}")
    return read_json(path)


def _backbone(run: str, record: Mapping[str, Any], vocab_size: int) -> TransformerBackbone:
    """The pretrained model with its weights."""
    backbone = MODELS.build(record["settings"]["model"], vocab_size, where=f"pretrain.{run}.model")
    try:
        load_weights(backbone, paths.PRETRAINED / run / WEIGHTS)
    except ValueError:  # which would name every weight
        raise ValueError(
            f"{paths.PRETRAINED / run}: is of another version of this code; run `dvc repro`"
        ) from None
    assert isinstance(backbone, TransformerBackbone)
    return backbone


def _finetuned(run: str, trial: KeptFile) -> tuple[ModelWithHead, list[str]]:
    """The trial's model with its weights, and its labels.

    Raises ValueError if its method or task has added what a plain model has not.
    """
    kept, pairing = opened(run, trial)
    about = pairing.task_record
    writes = isinstance(pairing.task, Writing)
    if not writes and about["task"]["name"] not in ("classification", "tagging"):
        raise ValueError(f"tasks.{trial.task}: {about['task']['name']} cannot be exported")
    if pairing.task.has_prefix:
        raise ValueError(
            f"pretrain.{run}.objective: a fine-tuned model that sees its input in both directions "
            "has no counterpart in transformers, whose decoders are causal"
        )
    model = pairing.headed(seed=kept.finetune_seed)
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
    # It alone is written for its owner only.
    (folder / WEIGHTS).chmod((folder / "config.json").stat().st_mode)


@torch.no_grad()
def _check(folder: Path, found: Counterpart, model: ModelWithHead, goal: Goal) -> None:
    """Raises ValueError unless what was written gives the outputs of the model."""
    loaded, report = getattr(transformers, found.auto_class).from_pretrained(
        folder,
        dtype=torch.float32,
        local_files_only=True,
        output_loading_info=True,
        **found.load_options,
    )
    odd = sorted({*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]})
    batch = _sample(model.backbone, goal)
    ours = outputs(model.eval(), batch, goal)
    error = (ours - their_outputs(loaded.eval(), batch)).abs()
    if ours.dim() == 3 and batch.decoder_input_ids is None:
        error = error[batch.document_ids != PADDING]  # states of padding mean nothing
    if odd or not error.max() <= TOLERANCE * ours.abs().max():
        raise ValueError(
            f"transformers {transformers.__version__} computes something else than this run "
            f"({', '.join(odd) or f'outputs differ by {error.max():.2g}'}); nothing was written"
        )


def _sample(backbone: TransformerBackbone, goal: Goal) -> Batch:
    """Two rows of random text, the second with padding, and what a decoder is given."""
    length = min(12, backbone.dims.max_positions)
    generator = torch_stream(0, "export")
    ids = torch.randint(NUM_SPECIAL, backbone.vocab_size, (2, length), generator=generator)
    documents = torch.ones_like(ids)
    documents[1, length // 2 :] = PADDING
    ids[documents == PADDING] = PAD_ID
    decoder: dict[str, Any] = {}
    if backbone.architecture == "encoder_decoder" and goal == "pretrained":
        decoder = {"decoder_input_ids": ids[:1].expand(2, -1)}
        decoder["decoder_document_ids"] = torch.ones_like(ids)
    return Batch(input_ids=ids, document_ids=documents, num_targets={}, **decoder)


def outputs(model: ModelWithHead, batch: Batch, goal: Goal) -> Tensor:
    """What our model says: logits of labels or of the vocabulary, or else states."""
    backbone = model.backbone
    if goal == "classification":
        return model.head(backbone(batch), batch.document_ids)
    if goal == "tagging":
        return model.head(backbone(batch))
    if batch.decoder_input_ids is not None:
        return backbone.unembed(backbone.decode(batch))
    states = backbone(batch)
    gives_states = backbone.architecture == "encoder" and not backbone.dims.output_transform
    return states if gives_states else backbone.unembed(states)


def their_outputs(model: Any, batch: Batch) -> Tensor:
    """The same of a model of transformers."""
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": (batch.document_ids != PADDING).long(),
    }
    if batch.decoder_input_ids is not None:
        inputs["decoder_input_ids"] = batch.decoder_input_ids
    found = model(**inputs)
    return found.logits if "logits" in found else found.last_hidden_state


def _told(out: Path, run: str, trial: KeptFile | None, found: Counterpart) -> str:
    what = run if trial is None else f"{run}, fine-tuned on {trial.task},"
    options = "".join(f", {name}={value}" for name, value in found.load_options.items())
    lines = [
        f"{what} is in {out} as {found.model_class}:",
        f"  model = transformers.{found.auto_class}.from_pretrained({str(out)!r}{options})",
        f"  tokenizer = transformers.AutoTokenizer.from_pretrained({str(out)!r})",
    ]
    if trial is not None and found.auto_class == "AutoModelForCausalLM":
        lines.append("What it writes stands behind a text and tokenizer.eos_token.")
    return "\n".join([*lines, found.note] if found.note else lines)


if __name__ == "__main__":
    main()
