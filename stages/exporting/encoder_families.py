"""Encoders of transformers: BERT and ESM."""

import torch
import transformers

from stages.core.artifacts import Json
from stages.exporting.correspondence import (
    LAYER_EPS,
    ROTARY_BASE,
    SPECIAL_IDS,
    Counterpart,
    Goal,
    Pair,
    Weights,
    blocks,
    modules,
    same,
)
from stages.models._dimensions import Dimensions
from stages.text.tokenizer import MASK_ID

STATES_ONLY: Json = {
    "note": (
        "It gives states, no logits of a vocabulary: transformers has those of an encoder with "
        "output_transform: true alone."
    ),
    "load_options": {"add_pooling_layer": False},  # that layer would be random
}


def bert(dims: Dimensions, vocab_size: int, max_tokens: int, goal: Goal) -> Counterpart | None:
    """Devlin et al. 2019."""
    if goal == "classification":
        return None
    masked = goal == "pretrained" and dims.output_transform
    prefix = "bert." if masked or goal == "tagging" else ""
    config = transformers.BertConfig(
        **_encoder_settings(dims, vocab_size),
        hidden_act=dims.activation,
        max_position_embeddings=dims.max_positions,
        type_vocab_size=max(dims.num_segments, 1),
        tie_word_embeddings=dims.tied,
    )
    embeddings = f"{prefix}embeddings."
    pairs = [
        same("embedding.tokens.weight", f"{embeddings}word_embeddings.weight"),
        same("embedding.positions.weight", f"{embeddings}position_embeddings.weight"),
        *modules({"embedding.norm": "LayerNorm"}, dims, theirs=embeddings),
    ]
    constants = {}
    segments = f"{embeddings}token_type_embeddings.weight"
    if dims.num_segments:
        pairs.append(same("embedding.segments.weight", segments))
    else:
        constants[segments] = torch.zeros(1, dims.d_model)
    block = {
        "attention.query": "attention.self.query",
        "attention.key_value": "attention.self.key attention.self.value",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }
    pairs += blocks(block, dims, theirs=f"{prefix}encoder.layer.")
    if masked:
        head = "cls.predictions."
        transform = {"transform.linear": "transform.dense", "transform.norm": "transform.LayerNorm"}
        pairs += modules(transform, dims, theirs=head)
        if not dims.tied:
            pairs.append(same("output.weight", f"{head}decoder.weight"))
        for bias in (f"{head}bias", *([] if dims.tied else [f"{head}decoder.bias"])):
            if dims.output_bias:
                pairs.append(same("output_bias", bias))
            else:
                constants[bias] = torch.zeros(vocab_size)
    return _encoder("Bert", config, pairs, constants, masked=masked, goal=goal)


def esm(dims: Dimensions, vocab_size: int, max_tokens: int, goal: Goal) -> Counterpart | None:
    """Lin et al. 2023; an encoder with rotary positions, here used for any text."""
    if goal == "classification":
        return None
    masked = goal == "pretrained" and dims.output_transform
    prefix = "esm." if masked or goal == "tagging" else ""
    config = transformers.EsmConfig(
        **_encoder_settings(dims, vocab_size),
        position_embedding_type="rotary",
        rope_theta=ROTARY_BASE,
        max_position_embeddings=max_tokens,
        emb_layer_norm_before=dims.embedding_norm,
        token_dropout=False,
        mask_token_id=MASK_ID,
        tie_word_embeddings=dims.tied,
    )
    pairs = [same("embedding.tokens.weight", f"{prefix}embeddings.word_embeddings.weight")]
    if dims.embedding_norm:
        pairs += modules({"embedding.norm": f"{prefix}embeddings.layer_norm"}, dims)
    block = {
        "attention_norm": "attention.LayerNorm",
        "attention.query": "attention.self.query",
        "attention.key_value": "attention.self.key attention.self.value",
        "attention.output": "attention.output.dense",
        "feed_forward_norm": "LayerNorm",
        "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense",
    }
    pairs += blocks(block, dims, theirs=f"{prefix}encoder.layer.")
    pairs += modules({"stack.norm": f"{prefix}encoder.emb_layer_norm_after"}, dims)
    if masked:
        transform = {"transform.linear": "dense", "transform.norm": "layer_norm"}
        pairs += modules(transform, dims, theirs="lm_head.")
        if not dims.tied:
            pairs.append(same("output.weight", "lm_head.decoder.weight"))
        if dims.output_bias:
            pairs.append(same("output_bias", "lm_head.bias"))
    width = dims.d_model // dims.num_heads
    constants = {
        f"{prefix}rotary_embeddings.inv_freq": ROTARY_BASE ** -(torch.arange(0, width, 2) / width),
        # The head for protein contacts, which every EsmModel has.
        f"{prefix}contact_head.regression.weight": torch.zeros(1, dims.num_layers * dims.num_heads),
        f"{prefix}contact_head.regression.bias": torch.zeros(1),
    }
    if masked and not dims.output_bias:
        constants["lm_head.bias"] = torch.zeros(vocab_size)
    return _encoder("Esm", config, pairs, constants, masked=masked, goal=goal)


def _encoder_settings(dims: Dimensions, vocab_size: int) -> Json:
    """The settings that BERT and ESM share."""
    return {
        "vocab_size": vocab_size,
        "hidden_size": dims.d_model,
        "num_hidden_layers": dims.num_layers,
        "num_attention_heads": dims.num_heads,
        "intermediate_size": dims.d_ff,
        "layer_norm_eps": LAYER_EPS,
        "hidden_dropout_prob": dims.dropout,
        "attention_probs_dropout_prob": 0.0,
        **SPECIAL_IDS,
    }


def _encoder(
    name: str,
    config: transformers.PretrainedConfig,
    pairs: list[Pair],
    constants: Weights,
    *,
    masked: bool,
    goal: Goal,
) -> Counterpart:
    """An encoder with the head of the export, or without a head."""
    kind = "ForTokenClassification" if goal == "tagging" else "ForMaskedLM" if masked else ""
    return Counterpart(
        model_class=f"{name}{kind or 'Model'}",
        auto_class=f"AutoModel{kind}",
        config=config,
        pairs=pairs,
        constants=constants,
        head="classifier" if goal == "tagging" else None,
        **({} if kind else STATES_ONLY),
    )
