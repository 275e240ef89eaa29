"""The model of ``transformers`` that computes the same outputs as one of ours, and the check."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from stages.core.seeding import torch_stream
from stages.exporting.families import family_of
from stages.exporting.rules import Family, Weights
from stages.models._dimensions import Dimensions
from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.models._transformer import TransformerBackbone
from stages.text.batch import PADDING, Batch
from stages.text.tokenizer import NUM_SPECIAL, PAD_ID

# The auto classes with which a user loads exports.
STATES, MASKED_LM = "AutoModel", "AutoModelForMaskedLM"
CAUSAL_LM, SEQ2SEQ_LM = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
TOKEN_LABELS = "AutoModelForTokenClassification"
TEXT_LABELS = "AutoModelForSequenceClassification"

TOLERANCE = 1e-3  # of outputs, relative to the largest; a wrong weight differs by far more
SAMPLE_TOKENS = 12


def counterpart(
    model: ModelWithHead, *, max_tokens: int, labels: list[str] | None = None
) -> tuple[str, Any]:
    """Returns the name of the auto class, and the model of ``transformers`` with our weights.

    Unless positions are learned, its configuration has ``max_tokens`` as the maximum length.
    ``labels`` are the labels of a head. Raises ValueError if ``transformers`` has no such model.
    """
    dims, weights = _dims(model), dict(model.backbone.state_dict())
    weights |= {f"head.{name}": weight for name, weight in model.head.state_dict().items()}
    with_head = isinstance(model.head, LinearHead)
    family = family_of(model.backbone.architecture, dims, with_head=with_head)
    auto_class = _auto_class(model, family)
    if auto_class == STATES:
        weights = {n: weight for n, weight in weights.items() if not n.startswith("output")}
    if auto_class == TEXT_LABELS:
        weights = without_head_bias(weights)
    if auto_class == CAUSAL_LM and dims.output_bias:
        weights = without_output_bias(weights)
    config = family.configuration(
        dims,
        vocab_size=model.backbone.vocab_size,
        max_tokens=max_tokens,
        tied="output.weight" not in weights,
        labels=labels or [],
    )
    theirs = getattr(transformers, auto_class).from_config(config, dtype=torch.float32)
    family.fill(theirs, weights, dims)
    return auto_class, theirs.eval()


def _dims(model: ModelWithHead) -> Dimensions:
    assert isinstance(model.backbone, TransformerBackbone), "family_of refuses others"
    return model.backbone.dims


def _auto_class(model: ModelWithHead, family: Family) -> str:
    """Returns the name of the auto class. A text classifier gets the class for token labels if the
    family's class for text labels has an extra layer before its classifier or pools differently."""
    if isinstance(model.head, PooledHead) and family.classifies_texts:
        return TEXT_LABELS if model.head.pooling == "last" else TOKEN_LABELS
    if isinstance(model.head, LinearHead):
        return TOKEN_LABELS
    if family.architecture == "encoder":
        return MASKED_LM if _dims(model).output_transform else STATES
    return CAUSAL_LM if family.architecture == "decoder" else SEQ2SEQ_LM


def without_output_bias(weights: Weights) -> Weights:
    """Returns the weights of a model that computes the same logits without an output bias, which
    decoders of ``transformers`` lack.

    The last norm outputs h = g n + b (scale g, bias b), where n sums to 0 over the d dimensions.
    So with c = 1 / g, the product c h is s = sum(b / g) for every token. Replace the output
    embedding W by W + v c, and h by h + t g (t = 1 or -1, so that s + d t is far from 0): the
    logits change by v (s + d t) + t W g. v is chosen so that this equals the output bias.
    """
    weights = dict(weights)
    bias = weights.pop("output_bias").double()
    output = weights.get("output.weight", weights["embedding.tokens.weight"]).double()
    scale, shift = (weights[f"stack.norm.{kind}"].double() for kind in ("weight", "bias"))
    constant = (shift / scale).sum()
    t = torch.where(constant < 0, -1.0, 1.0)
    v = (bias - t * output @ scale) / (constant + t * len(scale))
    weights["output.weight"] = (output + torch.outer(v, 1 / scale)).float()
    weights["stack.norm.bias"] = (shift + t * scale).float()
    return weights


def without_head_bias(weights: Weights) -> Weights:
    """Returns the weights of a model that computes the same logits without a bias in the head,
    which text classifiers on decoders of ``transformers`` lack.

    The final norm's bias b becomes b + W^+ c, where W and c are the head's weight and bias: W b
    grows by c. Raises ValueError if W W^+ c is not c, as can happen with more labels than
    dimensions.
    """
    weights = dict(weights)
    head, bias = weights["head.linear.weight"].double(), weights.pop("head.linear.bias").double()
    change = torch.linalg.pinv(head) @ bias
    if not torch.allclose(head @ change, bias, rtol=1e-5, atol=1e-7):
        raise ValueError(
            "the classifier has a bias; that of transformers has none, and no bias of the final "
            "norm replaces it"
        )
    weights["stack.norm.bias"] = (weights["stack.norm.bias"].double() + change).float()
    return weights


@torch.no_grad()
def check(folder: Path, auto_class: str, model: ModelWithHead) -> None:
    """Raises ValueError unless the model in ``folder`` computes the same outputs as ``model``."""
    theirs, report = getattr(transformers, auto_class).from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
    )
    faults = sorted(
        {*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]}
    )
    batch = _sample(model, auto_class)
    expected = outputs(model.eval(), batch, auto_class)
    error = (expected - their_outputs(theirs.eval(), batch)).abs()
    if expected.dim() == 3 and batch.decoder_input_ids is None:
        error = error[batch.document_ids != PADDING]  # states of padding mean nothing
    if faults or not error.max() <= TOLERANCE * expected.abs().max():
        raise ValueError(
            f"transformers {transformers.__version__} computes something other than this run "
            f"({', '.join(faults) or f'outputs differ by {error.max():.2g}'}); nothing was written"
        )


def _sample(model: ModelWithHead, auto_class: str) -> Batch:
    """Returns two rows of random text, the second padded, with input for the decoder if needed."""
    backbone = model.backbone
    length = min(SAMPLE_TOKENS, backbone.max_positions or SAMPLE_TOKENS)
    generator = torch_stream(0, "export")
    ids = torch.randint(NUM_SPECIAL, backbone.vocab_size, (2, length), generator=generator)
    documents = torch.ones_like(ids)
    documents[1, length // 2 :] = PADDING
    ids[documents == PADDING] = PAD_ID
    decodes = auto_class == SEQ2SEQ_LM
    return Batch(
        input_ids=ids,
        document_ids=documents,
        num_targets={},
        decoder_input_ids=ids[:1].expand(2, -1) if decodes else None,
        decoder_document_ids=torch.ones_like(ids) if decodes else None,
    )


def outputs(model: ModelWithHead, batch: Batch, auto_class: str) -> Tensor:
    """Returns our model's outputs of the kind that the auto class gives: logits or token states."""
    backbone = model.backbone
    if auto_class == TEXT_LABELS:
        return model.head(backbone(batch), batch.document_ids)
    if auto_class == TOKEN_LABELS:
        return model.head.linear(backbone(batch))
    if auto_class == SEQ2SEQ_LM:
        return backbone.unembed(backbone.decode(batch))
    return backbone(batch) if auto_class == STATES else backbone.unembed(backbone(batch))


def their_outputs(model: transformers.PreTrainedModel, batch: Batch) -> Tensor:
    """Returns the logits of a model of ``transformers``, or its states if it has no logits."""
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": (batch.document_ids != PADDING).long(),
    }
    if batch.decoder_input_ids is not None:
        inputs["decoder_input_ids"] = batch.decoder_input_ids
    output = model(**inputs)
    return output.logits if "logits" in output else output.last_hidden_state
