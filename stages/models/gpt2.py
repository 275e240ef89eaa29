"""GPT-2: a decoder with learnt positions (Radford et al. 2019)."""

from stages.models._transformer import Transformer


class GPT2(Transformer):
    architecture = "decoder"
    family = "gpt2"
    names = {
        "d_model": ("n_embd",),
        "num_layers": ("n_layer",),
        "num_heads": ("n_head",),
        "d_ff": ("n_inner",),
    }
    defaults = {
        "activation_function": "gelu_pytorch_tanh",  # the function gelu_new, in one operation
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }
