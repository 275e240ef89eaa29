"""Llama: a decoder with rotary positions, gated feed-forward layers and RMS norms (Touvron et al.
2023)."""

from collections.abc import Iterator

from torch import Tensor

from stages.models._transformer import Transformer


class Llama(Transformer):
    """Unlike the published models it has biases in attention, as ``start: local`` needs, and its
    output embedding is the input embedding."""

    architecture = "decoder"
    family = "llama"
    d_ff_factor = 2.75  # three matrices in place of two
    names = {
        "d_model": ("hidden_size",),
        "num_layers": ("num_hidden_layers",),
        "num_heads": ("num_attention_heads", "num_key_value_heads"),
        "d_ff": ("intermediate_size",),
    }
    defaults = {"attention_bias": True, "tie_word_embeddings": True}

    def query_key_biases(self) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in self.model.base_model.layers:
            query, key = layer.self_attn.q_proj.bias, layer.self_attn.k_proj.bias
            if query is not None and query.shape == key.shape:
                yield query, key
