"""BERT: an encoder with learnt positions and segments (Devlin et al. 2019)."""

from stages.models._transformer import Transformer


class Bert(Transformer):
    architecture = "encoder"
    family = "bert"
    names = {
        "d_model": ("hidden_size",),
        "num_layers": ("num_hidden_layers",),
        "num_heads": ("num_attention_heads",),
        "d_ff": ("intermediate_size",),
    }
    defaults = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
