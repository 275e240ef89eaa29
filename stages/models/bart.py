"""BART: an encoder-decoder with learnt positions (Lewis et al. 2020). Encoder and decoder have
``num_layers`` blocks each, as in ``t5``."""

from stages.models._transformer import Transformer


class Bart(Transformer):
    family = "bart"
    defaults = {"dropout": 0.0, "forced_eos_token_id": None}
