"""ModernBERT: an encoder with rotary positions, gated feed-forward layers and attention that is
local in two of three layers (Warner et al. 2024)."""

from stages.models._transformer import Transformer


class ModernBert(Transformer):
    """Unlike the published models it has biases of queries and keys, as ``start: local`` needs, and
    the rotary base of its local layers everywhere, since rows are short."""

    family = "modernbert"
    d_ff_factor = 2.5  # three matrices in place of two, and the published ratio is 1.5
    defaults = {
        "attention_bias": True,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10_000.0}
            for kind in ("full_attention", "sliding_attention")
        },
    }
