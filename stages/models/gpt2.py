"""GPT-2: a decoder with learnt positions (Radford et al. 2019)."""

from stages.models._transformer import Transformer


class GPT2(Transformer):
    family = "gpt2"
    defaults = {
        "activation_function": "gelu_pytorch_tanh",  # the function gelu_new, in one operation
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }
