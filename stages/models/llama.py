"""Llama: a decoder with rotary positions, gated feed-forward layers and RMS norms (Touvron et al.
2023)."""

from stages.models._transformer import Transformer


class Llama(Transformer):
    """Unlike the published models it has biases in attention, as ``start: local`` needs, and its
    output embedding is the input embedding."""

    family = "llama"
    d_ff_factor = 2.75  # three matrices in place of two
    defaults = {"attention_bias": True, "tie_word_embeddings": True}
