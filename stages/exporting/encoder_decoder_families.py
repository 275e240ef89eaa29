"""Encoder-decoders of transformers: T5 and BART."""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
import transformers
from torch import Tensor

from stages.exporting.correspondence import (
    RMS_EPS,
    SPECIAL_IDS,
    Counterpart,
    Goal,
    Pair,
    Weights,
    blocks,
    modules,
    same,
    within,
)
from stages.models._dimensions import Dimensions
from stages.text.tokenizer import BOS_ID


def t5(dims: Dimensions, vocab_size: int, max_tokens: int, goal: Goal) -> Counterpart | None:
    """Raffel et al. 2020; fine-tuned for tagging, only the encoder is exported."""
    if goal == "classification":
        return None
    config = _t5_config(dims, vocab_size)
    prefix = "transformer." if goal == "tagging" else ""
    pairs = [
        same("embedding.tokens.weight", f"{prefix}shared.weight"),
        *_t5_stack(dims, "encoder", f"{prefix}encoder", cross=False),
    ]
    if goal == "tagging":
        return Counterpart(
            model_class="T5ForTokenClassification",
            auto_class="AutoModelForTokenClassification",
            config=config,
            pairs=pairs,
            head="classifier",
        )
    # T5 divides what it multiplies with tied embeddings by the root of d_model.
    last = math.sqrt(dims.d_model) if dims.tied else 1.0
    for pair in _t5_stack(dims, "decoder", "decoder", cross=True):
        pairs.append(replace(pair, factor=last) if pair.ours == ("decoder.norm.weight",) else pair)
    if not dims.tied:
        pairs.append(same("output.weight", "lm_head.weight"))
    return Counterpart(
        model_class="T5ForConditionalGeneration",
        auto_class="AutoModelForSeq2SeqLM",
        config=config,
        pairs=pairs,
    )


def _t5_config(dims: Dimensions, vocab_size: int) -> transformers.T5Config:
    gated = dims.activation == "swiglu"
    config = transformers.T5Config(
        vocab_size=vocab_size,
        d_model=dims.d_model,
        d_kv=dims.d_model // dims.num_heads,
        d_ff=dims.d_ff,
        num_layers=dims.num_layers,
        num_heads=dims.num_heads,
        feed_forward_proj="gated-silu" if gated else dims.activation,
        layer_norm_epsilon=RMS_EPS,
        dropout_rate=dims.dropout,
        **SPECIAL_IDS,
    )
    config.decoder_start_token_id = BOS_ID
    # The constructor sets both to True. Versions before 5 read only the first; later ones take
    # embeddings that are stored separately, and differ, for untied.
    config.tie_word_embeddings = config.scale_decoder_outputs = dims.tied
    return config


def _t5_stack(dims: Dimensions, ours: str, theirs: str, *, cross: bool) -> list[Pair]:
    """The pairs of the encoder or of the decoder, which has ``cross``-attention."""
    attention = {"query": "q", "key_value": "k v", "output": "o"}
    feed_forward = {"up": "wi_1 wi_0" if dims.activation == "swiglu" else "wi", "down": "wo"}
    last = 2 if cross else 1
    block = {
        **within("attention.", "layer.0.SelfAttention.", attention),
        "attention_norm": "layer.0.layer_norm",
        **within("feed_forward.", f"layer.{last}.DenseReluDense.", feed_forward),
        "feed_forward_norm": f"layer.{last}.layer_norm",
    }
    if cross:
        block |= within("cross_attention.", "layer.1.EncDecAttention.", attention)
        block |= {"cross_norm": "layer.1.layer_norm"}
    table = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    scale = (dims.d_model // dims.num_heads) ** -0.5  # T5 does not scale the logits of attention
    return [
        *(
            replace(pair, factor=scale) if "query" in pair.ours[0] else pair
            for pair in blocks(block, dims, ours=f"{ours}.blocks.", theirs=f"{theirs}.block.")
        ),
        same(f"{ours}.relative.table.weight", f"{theirs}.{table}"),
        *modules({f"{ours}.norm": f"{theirs}.final_layer_norm"}, dims),
    ]


def bart(dims: Dimensions, vocab_size: int, max_tokens: int, goal: Goal) -> Counterpart | None:
    """Lewis et al. 2020. BART has an embedding norm and positions for each half, ours one for both;
    the first two rows of its position table are unused."""
    if goal != "pretrained":
        return None
    config = transformers.BartConfig(
        vocab_size=vocab_size,
        max_position_embeddings=dims.max_positions,
        d_model=dims.d_model,
        encoder_layers=dims.num_layers,
        decoder_layers=dims.num_layers,
        encoder_attention_heads=dims.num_heads,
        decoder_attention_heads=dims.num_heads,
        encoder_ffn_dim=dims.d_ff,
        decoder_ffn_dim=dims.d_ff,
        activation_function=dims.activation,
        dropout=dims.dropout,
        tie_word_embeddings=dims.tied,
        decoder_start_token_id=BOS_ID,
        forced_eos_token_id=None,
        **SPECIAL_IDS,
    )
    attention = {"query": "q_proj", "key_value": "k_proj v_proj", "output": "out_proj"}
    encoder = {
        **within("attention.", "self_attn.", attention),
        "attention_norm": "self_attn_layer_norm",
        "feed_forward.up": "fc1",
        "feed_forward.down": "fc2",
        "feed_forward_norm": "final_layer_norm",
    }
    decoder = encoder | {
        **within("cross_attention.", "encoder_attn.", attention),
        "cross_norm": "encoder_attn_layer_norm",
    }
    pairs = [same("embedding.tokens.weight", "model.shared.weight")]
    for half, block in (("encoder", encoder), ("decoder", decoder)):
        prefix = f"model.{half}."
        positions = f"{prefix}embed_positions.weight"
        pairs += [
            Pair(ours=("embedding.positions.weight",), theirs=(positions,), unused=2),
            *modules({"embedding.norm": "layernorm_embedding"}, dims, theirs=prefix),
            *blocks(block, dims, ours=f"{half}.blocks.", theirs=f"{prefix}layers."),
        ]
        if not dims.tied:  # then nothing of theirs is tied
            pairs.append(same("embedding.tokens.weight", f"{prefix}embed_tokens.weight"))
    if not dims.tied:
        pairs.append(same("output.weight", "lm_head.weight"))
    if dims.output_bias:
        pairs.append(same("output_bias", "final_logits_bias"))
    return Counterpart(
        model_class="BartForConditionalGeneration",
        auto_class="AutoModelForSeq2SeqLM",
        config=config,
        pairs=pairs,
        prepare=_with_row_of_biases if dims.output_bias else dict,
        constants={} if dims.output_bias else {"final_logits_bias": torch.zeros(1, vocab_size)},
    )


def _with_row_of_biases(weights: Mapping[str, Tensor]) -> Weights:
    """BART stores the biases of the logits as a matrix of one row."""
    return {**weights, "output_bias": weights["output_bias"].unsqueeze(0)}
