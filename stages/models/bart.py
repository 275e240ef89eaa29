"""BART: an encoder-decoder with learnt positions (Lewis et al. 2020). Encoder and decoder have
``num_layers`` blocks each, as in ``t5``."""

from stages.models._transformer import Transformer


class Bart(Transformer):
    architecture = "encoder_decoder"
    family = "bart"
    names = {
        "d_model": ("d_model",),
        "num_layers": ("encoder_layers", "decoder_layers"),
        "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
        "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
    }
    defaults = {"dropout": 0.0, "forced_eos_token_id": None}
