"""Decoders of transformers: GPT-2, GPT-NeoX and Llama."""

from collections.abc import Mapping
from dataclasses import replace

import torch
import transformers
from torch import Tensor

from stages.core.artifacts import Json
from stages.exporting.correspondence import (
    LAYER_EPS,
    RMS_EPS,
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

CAUSAL_ONLY = (
    "It was pretrained to read a prefix in both directions. The decoders of transformers are "
    "causal: the exported model reads a prompt from left to right, computes other states and "
    "logits of it than the run does here, and was not trained for that."
)


def without_output_bias(weights: Mapping[str, Tensor]) -> Weights:
    """The same logits from an output embedding of its own and no bias, as decoders of transformers
    have them.

    The last norm's outputs h = g n + b, whose n sum to 0 over the d dimensions, say nothing along
    c = 1 / g: c h is s = sum(b / g) for every token. With W + v c for the output embedding W, and
    h + g t for h, so that s + d t is far from 0, the logits are those with a bias of
    v (s + d t) + t W g.
    """
    found = dict(weights)
    bias = found.pop("output_bias").double()
    output = weights.get("output.weight", weights["embedding.tokens.weight"]).double()
    scale, shift = (weights[f"stack.norm.{kind}"].double() for kind in ("weight", "bias"))
    constant = (shift / scale).sum()
    t = torch.where(constant < 0, -1.0, 1.0)
    v = (bias - t * output @ scale) / (constant + t * len(scale))
    found["output.weight"] = (output + torch.outer(v, 1 / scale)).float()
    found["stack.norm.bias"] = (shift + t * scale).float()
    return found


def gpt2(dims: Dimensions, vocab_size: int, max_tokens: int, goal: Goal) -> Counterpart:
    """Radford et al. 2019."""
    config = transformers.GPT2Config(
        vocab_size=vocab_size,
        n_positions=dims.max_positions,
        n_embd=dims.d_model,
        n_layer=dims.num_layers,
        n_head=dims.num_heads,
        n_inner=dims.d_ff,
        activation_function=dims.activation,
        layer_norm_epsilon=LAYER_EPS,
        resid_pdrop=dims.dropout,
        embd_pdrop=dims.dropout,
        attn_pdrop=0.0,
        tie_word_embeddings=_tied(dims),
        **SPECIAL_IDS,
    )
    block = {
        "attention_norm": "ln_1",
        "attention.query attention.key_value": "attn.c_attn",
        "attention.output": "attn.c_proj",
        "feed_forward_norm": "ln_2",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    pairs = [
        same("embedding.tokens.weight", "transformer.wte.weight"),
        same("embedding.positions.weight", "transformer.wpe.weight"),
        *blocks(block, dims, theirs="transformer.h.", transposed=True),
        *modules({"stack.norm": "transformer.ln_f"}, dims),
    ]
    return _decoder(
        config,
        pairs,
        dims,
        goal,
        classes={
            "pretrained": "GPT2LMHeadModel",
            "tagging": "GPT2ForTokenClassification",
            "classification": "GPT2ForSequenceClassification",
        },
        output="lm_head",
        head="classifier",
    )


def gpt_neox(dims: Dimensions, vocab_size: int, max_tokens: int, goal: Goal) -> Counterpart:
    """Black et al. 2022, with sequential residuals."""
    config = transformers.GPTNeoXConfig(
        **_wide_settings(dims, vocab_size, max_tokens),
        hidden_act=dims.activation,
        layer_norm_eps=LAYER_EPS,
        hidden_dropout=dims.dropout,
        use_parallel_residual=False,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": ROTARY_BASE,
            "partial_rotary_factor": 1.0,
        },
    )
    config.rotary_pct = 1.0  # the name before version 5, whose default is a quarter
    block = {
        "attention_norm": "input_layernorm",
        "attention.query attention.key_value": "attention.query_key_value",
        "attention.output": "attention.dense",
        "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.down": "mlp.dense_4h_to_h",
    }
    # Rows of query, key and value of one head, then of the next.
    by_part = torch.arange(3 * dims.d_model).view(3, dims.num_heads, -1)
    by_head = by_part.transpose(0, 1).reshape(-1)
    pairs = [
        same("embedding.tokens.weight", "gpt_neox.embed_in.weight"),
        *(
            replace(pair, order=by_head) if "query_key_value" in pair.theirs[0] else pair
            for pair in blocks(block, dims, theirs="gpt_neox.layers.")
        ),
        *modules({"stack.norm": "gpt_neox.final_layer_norm"}, dims),
    ]
    return _decoder(
        config,
        pairs,
        dims,
        goal,
        classes={
            "pretrained": "GPTNeoXForCausalLM",
            "tagging": "GPTNeoXForTokenClassification",
            "classification": "GPTNeoXForSequenceClassification",
        },
        output="embed_out",  # read by every version; written lm_head by some
        head="classifier",
    )


def llama(dims: Dimensions, vocab_size: int, max_tokens: int, goal: Goal) -> Counterpart:
    """Touvron et al. 2023."""
    config = transformers.LlamaConfig(
        **_wide_settings(dims, vocab_size, max_tokens),
        hidden_act="silu",
        rms_norm_eps=RMS_EPS,
        attention_bias=dims.bias,
        mlp_bias=dims.bias,
        rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE},
    )
    block = {
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key_value": "self_attn.k_proj self_attn.v_proj",
        "attention.output": "self_attn.o_proj",
        "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.up": "mlp.up_proj mlp.gate_proj",
        "feed_forward.down": "mlp.down_proj",
    }
    pairs = [
        same("embedding.tokens.weight", "model.embed_tokens.weight"),
        *blocks(block, dims, theirs="model.layers."),
        *modules({"stack.norm": "model.norm"}, dims),
    ]
    return _decoder(
        config,
        pairs,
        dims,
        goal,
        classes={
            "pretrained": "LlamaForCausalLM",
            "tagging": "LlamaForTokenClassification",
            "classification": "LlamaForSequenceClassification",
        },
        output="lm_head",
        head="score",
    )


def _tied(dims: Dimensions) -> bool:
    """Whether input and output embeddings are tied in transformers; not where the output absorbs a
    bias."""
    return dims.tied and not dims.output_bias


def _wide_settings(dims: Dimensions, vocab_size: int, max_tokens: int) -> Json:
    """The settings that GPT-NeoX and Llama share."""
    return {
        "vocab_size": vocab_size,
        "hidden_size": dims.d_model,
        "num_hidden_layers": dims.num_layers,
        "num_attention_heads": dims.num_heads,
        "intermediate_size": dims.d_ff,
        "max_position_embeddings": max_tokens,
        "tie_word_embeddings": _tied(dims),
        **SPECIAL_IDS,
    }


def _decoder(
    config: transformers.PretrainedConfig,
    pairs: list[Pair],
    dims: Dimensions,
    goal: Goal,
    *,
    classes: Mapping[Goal, str],
    output: str,
    head: str,
) -> Counterpart:
    """A decoder with the head that the goal asks for; ``output`` names an output embedding, where
    it is not the input's."""
    auto: dict[Goal, str] = {
        "pretrained": "AutoModelForCausalLM",
        "tagging": "AutoModelForTokenClassification",
        "classification": "AutoModelForSequenceClassification",
    }
    heads: dict[Goal, str | None] = {
        "pretrained": None,
        "tagging": head,
        "classification": "score",
    }
    if goal == "pretrained" and not config.tie_word_embeddings:
        pairs = [*pairs, same("output.weight", f"{output}.weight")]
    return Counterpart(
        model_class=classes[goal],
        auto_class=auto[goal],
        config=config,
        pairs=pairs,
        prepare=without_output_bias if dims.output_bias else dict,
        head=heads[goal],
    )
