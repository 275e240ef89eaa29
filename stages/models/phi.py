"""Phi: a decoder with rotary positions, biases, and attention beside the feed-forward layer (Li et
al. 2023)."""

from stages.models._transformer import Transformer


class Phi(Transformer):
    """All dimensions of a head are rotated, and the output embedding is the input embedding; the
    published models rotate a part of them and have two embeddings."""

    family = "phi"
    defaults = {
        "hidden_act": "gelu_pytorch_tanh",  # the same function as gelu_new, in one operation
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 1.0,
        },
    }
