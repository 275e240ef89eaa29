"""What stands in a folder for transformers, loaded again and compared with the original."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from torch import Tensor

from stages.core.artifacts import Json
from stages.core.seeding import torch_stream
from stages.exporting.correspondence import Goal
from stages.models._heads import ModelWithHead
from stages.models._transformer import TransformerBackbone
from stages.text.batch import PADDING, Batch
from stages.text.tokenizer import NUM_SPECIAL, PAD_ID

TOLERANCE = 1e-3  # of outputs, relative to the largest; a wrong weight differs by far more
SAMPLE_TOKENS = 12


@dataclass(frozen=True)
class Written:
    """What stands in a folder, and how it is loaded."""

    model_class: str
    auto_class: str
    goal: Goal  # of what its outputs are
    note: str = ""
    load_options: Json = field(default_factory=dict)


@torch.no_grad()
def check(folder: Path, found: Written, model: ModelWithHead) -> None:
    """Raises ValueError unless the model that was written computes the same outputs."""
    loaded, report = getattr(transformers, found.auto_class).from_pretrained(
        folder,
        dtype=torch.float32,
        local_files_only=True,
        output_loading_info=True,
        **found.load_options,
    )
    odd = sorted({*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]})
    batch = _sample(model, found.goal)
    ours = outputs(model.eval(), batch, found.goal)
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
    backbone = model.backbone
    length = min(SAMPLE_TOKENS, backbone.max_positions or SAMPLE_TOKENS)
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
        return model.head.linear(backbone(batch))
    if batch.decoder_input_ids is not None:
        return backbone.unembed(backbone.decode(batch))
    states = backbone(batch)
    assert isinstance(backbone, TransformerBackbone), "of a public checkpoint a head is exported"
    gives_states = backbone.architecture == "encoder" and not backbone.dims.output_transform
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
