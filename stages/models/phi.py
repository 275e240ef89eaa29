"""Phi: a decoder with rotary positions, biases, and attention beside the feed-forward layer (Li et
al. 2023)."""

from collections.abc import Iterator

from torch import Tensor

from stages.models._transformer import Transformer


class Phi(Transformer):
    """All dimensions of a head are rotated, and the output embedding is the input embedding; the
    published models rotate a part of them and have two embeddings."""

    architecture = "decoder"
    family = "phi"
    names = {
        "d_model": ("hidden_size",),
        "num_layers": ("num_hidden_layers",),
        "num_heads": ("num_attention_heads", "num_key_value_heads"),
        "d_ff": ("intermediate_size",),
    }
    defaults = {
        "hidden_act": "gelu_pytorch_tanh",  # the same function as gelu_new, in one operation
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 1.0,
        },
    }

    def query_key_biases(self) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in self.model.base_model.layers:
            yield layer.self_attn.q_proj.bias, layer.self_attn.k_proj.bias
