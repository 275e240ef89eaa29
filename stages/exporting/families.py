"""The families of ``transformers`` that our transformers are exported to, as tables.

=================== ============================================== ===========
our model           settings                                       family
=================== ============================================== ===========
``encoder``         post-norm, learned positions, embedding norm   BERT
``encoder``         pre-norm, rotary positions (the defaults)      ESM
``decoder``         pre-norm, learned positions                    GPT-2
``decoder``         pre-norm, rotary positions (the defaults)      StarCoder2
``decoder``         RMSNorm, rotary positions, SwiGLU              Llama
``encoder_decoder`` RMSNorm, relative positions, no biases         T5
=================== ============================================== ===========

``accepts`` lists the settings of a family. Other combinations cannot be exported, because no class
of ``transformers`` computes their outputs: none has our sinusoidal positions, or no positions, in
otherwise equal blocks; only T5 has relative positions, and it has no LayerNorm and no biases; no
encoder-decoder for text has rotary positions with LayerNorm.
"""

from dataclasses import replace

import transformers

from stages.exporting.rules import Family, Rule, within
from stages.models._dimensions import Dimensions
from stages.models._norm import NORM_EPS
from stages.text.tokenizer import BOS_ID, MASK_ID

LAYER_EPS, RMS_EPS = NORM_EPS["layernorm"], NORM_EPS["rmsnorm"]
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}  # as in stages.models._embedding.sinusoids
EITHER = (True, False)
PLAIN = {  # parts that most families lack
    "num_segments": (0,),
    "embedding_norm": (False,),
    "output_transform": (False,),
    "output_bias": (False,),
}
LAYER_NORM = {"norm": ("layernorm",), "bias": (True,)}
RMS_NORM = {"norm": ("rmsnorm",), "norm_position": ("pre",)}
HEAD = Rule("head.linear", "classifier")
SCORE = Rule("head.linear", "score")

BERT_LAYERS = (
    Rule("attention.query", "attention.self.query"),
    Rule("attention.key_value", "attention.self.key attention.self.value"),
    Rule("attention.output", "attention.output.dense"),
    Rule("feed_forward.up", "intermediate.dense"),
    Rule("feed_forward.down", "output.dense"),
)
BERT = Family(  # Devlin et al. 2019
    name="BERT",
    architecture="encoder",
    accepts={
        **LAYER_NORM,
        "norm_position": ("post",),
        "positions": ("learned",),
        "activation": ("gelu", "relu"),
        "embedding_norm": (True,),
    },
    config=transformers.BertConfig,
    settings={
        "intermediate_size": "d_ff",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "max_position_embeddings": "max_length",
        "type_vocab_size": "num_segments",
    },
    constants={"layer_norm_eps": LAYER_EPS, "attention_probs_dropout_prob": 0.0},
    rules=(
        Rule("embedding.tokens", "embeddings.word_embeddings"),
        Rule("embedding.positions", "embeddings.position_embeddings"),
        Rule("embedding.segments", "embeddings.token_type_embeddings"),
        Rule("embedding.norm", "embeddings.LayerNorm"),
        *within(
            "stack.blocks.*.",
            "encoder.layer.*.",
            *BERT_LAYERS,
            Rule("attention_norm", "attention.output.LayerNorm"),
            Rule("feed_forward_norm", "output.LayerNorm"),
        ),
        Rule("transform.linear", "cls.predictions.transform.dense"),
        Rule("transform.norm", "cls.predictions.transform.LayerNorm"),
        Rule("output", "cls.predictions.decoder"),
        Rule("output_bias", "cls.predictions.decoder.bias"),
        HEAD,
    ),
    zeros=(
        "embeddings.token_type_embeddings",
        "cls.predictions.bias",
        "cls.predictions.decoder.bias",
        "pooler",
    ),
)
ESM = Family(  # Lin et al. 2023; an encoder with rotary positions, here used for any text
    name="ESM",
    architecture="encoder",
    accepts={
        **LAYER_NORM,
        "norm_position": ("pre",),
        "positions": ("rotary",),
        "activation": ("gelu",),
        "num_segments": (0,),
    },
    config=transformers.EsmConfig,
    settings={
        "intermediate_size": "d_ff",
        "hidden_dropout_prob": "dropout",
        "max_position_embeddings": "max_length",
        "emb_layer_norm_before": "embedding_norm",
    },
    constants={
        "position_embedding_type": "rotary",
        "rope_theta": ROPE["rope_theta"],
        "layer_norm_eps": LAYER_EPS,
        "attention_probs_dropout_prob": 0.0,
        "token_dropout": False,
        "mask_token_id": MASK_ID,
    },
    rules=(
        Rule("embedding.tokens", "embeddings.word_embeddings"),
        Rule("embedding.norm", "embeddings.layer_norm"),
        *within(
            "stack.blocks.*.",
            "encoder.layer.*.",
            *BERT_LAYERS,
            Rule("attention_norm", "attention.LayerNorm"),
            Rule("feed_forward_norm", "LayerNorm"),
        ),
        Rule("stack.norm", "encoder.emb_layer_norm_after"),
        Rule("transform.linear", "lm_head.dense"),
        Rule("transform.norm", "lm_head.layer_norm"),
        Rule("output", "lm_head.decoder"),
        Rule("output_bias", "lm_head.bias"),
        HEAD,
    ),
    zeros=("lm_head.bias", "pooler", "contact_head"),  # ``contact_head`` is for proteins
)
GPT2 = Family(  # Radford et al. 2019
    name="GPT-2",
    architecture="decoder",
    accepts={
        **PLAIN,
        **LAYER_NORM,
        "norm_position": ("pre",),
        "positions": ("learned",),
        "activation": ("gelu", "relu"),
        "output_bias": EITHER,
    },
    config=transformers.GPT2Config,
    settings={
        "n_inner": "d_ff",
        "activation_function": "activation",
        "resid_pdrop": "dropout",
        "embd_pdrop": "dropout",
        "max_position_embeddings": "max_length",
    },
    constants={"layer_norm_epsilon": LAYER_EPS, "attn_pdrop": 0.0},
    rules=(
        Rule("embedding.tokens", "wte"),
        Rule("embedding.positions", "wpe"),
        *within(
            "stack.blocks.*.",
            "h.*.",
            Rule("attention_norm", "ln_1"),
            Rule("attention.query attention.key_value", "attn.c_attn", transposed=True),
            Rule("attention.output", "attn.c_proj", transposed=True),
            Rule("feed_forward_norm", "ln_2"),
            Rule("feed_forward.up", "mlp.c_fc", transposed=True),
            Rule("feed_forward.down", "mlp.c_proj", transposed=True),
        ),
        Rule("stack.norm", "ln_f"),
        Rule("output", "lm_head"),
        HEAD,
        SCORE,
    ),
    classifies_texts=True,
)
LLAMA_SETTINGS = {
    "intermediate_size": "d_ff",
    "num_key_value_heads": "num_heads",
    "max_position_embeddings": "max_length",
}
LLAMA_RULES = (
    Rule("embedding.tokens", "embed_tokens"),
    *within(
        "stack.blocks.*.",
        "layers.*.",
        Rule("attention_norm", "input_layernorm"),
        Rule("attention.query", "self_attn.q_proj"),
        Rule("attention.key_value", "self_attn.k_proj self_attn.v_proj"),
        Rule("attention.output", "self_attn.o_proj"),
        Rule("feed_forward_norm", "post_attention_layernorm"),
        Rule("feed_forward.up", "mlp.c_fc"),  # StarCoder2's names
        Rule("feed_forward.down", "mlp.c_proj"),
        Rule("feed_forward.up", "mlp.up_proj mlp.gate_proj"),  # Llama's
        Rule("feed_forward.down", "mlp.down_proj"),
    ),
    Rule("stack.norm", "norm"),
    Rule("output", "lm_head"),
    SCORE,
)
STARCODER2 = Family(  # Lozhkov et al. 2024; GPT-2 with rotary positions, here used for any text
    name="StarCoder2",
    architecture="decoder",
    accepts={**GPT2.accepts, "positions": ("rotary",)},
    config=transformers.Starcoder2Config,
    settings=LLAMA_SETTINGS
    | {
        "hidden_act": "activation",
        "residual_dropout": "dropout",
        "embedding_dropout": "dropout",
    },
    constants={"norm_epsilon": LAYER_EPS, "rope_parameters": ROPE},
    rules=LLAMA_RULES,
    classifies_texts=True,
)
LLAMA = Family(  # Touvron et al. 2023
    name="Llama",
    architecture="decoder",
    accepts={**PLAIN, **RMS_NORM, "positions": ("rotary",), "activation": ("swiglu",)},
    config=transformers.LlamaConfig,
    settings=LLAMA_SETTINGS
    | {"hidden_act": "activation", "attention_bias": "bias", "mlp_bias": "bias"},
    constants={"rms_norm_eps": RMS_EPS, "rope_parameters": ROPE},
    rules=LLAMA_RULES,
)


def attention_scale(dims: Dimensions) -> float:
    """Returns the factor that turns our query weights into T5's: our attention divides its logits
    by the root of a head's width, and T5's does not."""
    return (dims.d_model // dims.num_heads) ** -0.5


def tied_scale(dims: Dimensions) -> float:
    """Returns the factor that turns our decoder's final norm into T5's: T5, but not our model,
    divides the states by the root of ``d_model`` before it multiplies them with tied embeddings."""
    return dims.d_model**0.5 if dims.tied else 1.0


T5_ATTENTION = (
    Rule("query", "q", scale=attention_scale),
    Rule("key_value", "k v"),
    Rule("output", "o"),
)
T5_SELF_ATTENTION = (
    *within("attention.", "layer.0.SelfAttention.", *T5_ATTENTION),
    Rule("attention_norm", "layer.0.layer_norm"),
)
T5_FEED_FORWARD = (
    Rule("feed_forward.up", "DenseReluDense.wi"),
    Rule("feed_forward.up", "DenseReluDense.wi_1 DenseReluDense.wi_0"),  # swiglu
    Rule("feed_forward.down", "DenseReluDense.wo"),
    Rule("feed_forward_norm", "layer_norm"),
)
RELATIVE_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"
T5 = Family(  # Raffel et al. 2020; with a head for labels, only the encoder
    name="T5",
    architecture="encoder_decoder",
    accepts={**PLAIN, **RMS_NORM, "bias": (False,), "positions": ("relative",)},
    config=transformers.T5Config,
    settings={
        "d_ff": "d_ff",
        "num_decoder_layers": "num_layers",
        "d_kv": "head_width",
        "feed_forward_proj": "feed_forward",
        "dropout_rate": "dropout",
    },
    constants={"layer_norm_epsilon": RMS_EPS, "decoder_start_token_id": BOS_ID},
    rules=(
        Rule("embedding.tokens", "shared"),
        Rule("embedding.tokens", "encoder.embed_tokens"),
        Rule("embedding.tokens", "decoder.embed_tokens"),
        Rule("encoder.relative.table", f"encoder.{RELATIVE_BIAS}"),
        Rule("decoder.relative.table", f"decoder.{RELATIVE_BIAS}"),
        *within(
            "encoder.blocks.*.",
            "encoder.block.*.",
            *T5_SELF_ATTENTION,
            *within("", "layer.1.", *T5_FEED_FORWARD),
        ),
        *within(
            "decoder.blocks.*.",
            "decoder.block.*.",
            *T5_SELF_ATTENTION,
            *within("cross_attention.", "layer.1.EncDecAttention.", *T5_ATTENTION),
            Rule("cross_norm", "layer.1.layer_norm"),
            *within("", "layer.2.", *T5_FEED_FORWARD),
        ),
        Rule("encoder.norm", "encoder.final_layer_norm"),
        Rule("decoder.norm", "decoder.final_layer_norm", scale=tied_scale),
        Rule("output", "lm_head"),
        HEAD,
    ),
)
FAMILIES = (BERT, ESM, GPT2, STARCODER2, LLAMA, T5)


def family_of(architecture: str, dims: Dimensions, *, with_head: bool) -> Family:
    """Returns the family whose models compute the same outputs as ours with these settings.

    Raises ValueError with the settings that the nearest family refuses. With a head for labels,
    the settings of the vocabulary's logits do not count, since the model computes none.
    """
    check_architecture(architecture)
    families = [family for family in FAMILIES if family.architecture == architecture]
    if with_head:
        dims = replace(dims, tied=True, output_bias=False, output_transform=False)
    nearest = min(families, key=lambda family: len(family.refused(dims)))
    if names := nearest.refused(dims):
        here = ", ".join(f"{name}: {_yaml(getattr(dims, name))}" for name in names)
        accepted = ", ".join(f"{n}: {' or '.join(map(_yaml, nearest.accepts[n]))}" for n in names)
        raise ValueError(
            f"transformers has no {architecture} with {here}; the nearest, {nearest.name}, has "
            f"{accepted}"
        )
    return nearest


def check_architecture(architecture: str) -> None:
    """Raises ValueError if no family is for the architecture."""
    known = dict.fromkeys(family.architecture for family in FAMILIES)
    if architecture not in known:
        raise ValueError(
            f"{architecture} models have no counterpart in transformers; {', '.join(known)} have"
        )


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
