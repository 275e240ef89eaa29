"""GPT-NeoX: a decoder with rotary positions and biases, as Pythia has it (Black et al. 2022)."""

from collections.abc import Iterator

from torch import Tensor

from stages.models._transformer import Transformer


class GPTNeoX(Transformer):
    """All dimensions of a head are rotated, and attention and feed-forward layers follow each
    other; the published models rotate a quarter and compute both side by side."""

    architecture = "decoder"
    family = "gpt_neox"
    names = {
        "d_model": ("hidden_size",),
        "num_layers": ("num_hidden_layers",),
        "num_heads": ("num_attention_heads",),
        "d_ff": ("intermediate_size",),
    }
    defaults = {
        "tie_word_embeddings": True,
        "use_parallel_residual": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 1.0,
        },
    }

    def query_key_biases(self) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in self.model.base_model.layers:
            bias = layer.attention.query_key_value.bias
            if bias is not None:
                query, key, _ = bias.unflatten(0, (self.config.num_attention_heads, 3, -1)).unbind(
                    1
                )
                yield query, key
