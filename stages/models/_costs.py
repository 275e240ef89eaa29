"""The cost of a transformer, computed from its configuration: parameters and memory.

No model is built. The tests compare these numbers with the parameters of built models and with the
memory that autograd keeps.
"""

from dataclasses import dataclass
from typing import Literal

from stages.models._attention import RELATIVE_BUCKETS
from stages.models._dimensions import Dimensions

Architecture = Literal["encoder", "decoder", "encoder_decoder"]
FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class NumParams:
    """Parameters of the input embedding, of the blocks, and of the output layers. A tied output
    embedding is counted once, as the input embedding."""

    embedding: int
    body: int
    head: int

    @property
    def total(self) -> int:
        return self.embedding + self.body + self.head


def num_params(architecture: Architecture, vocab_size: int, dims: Dimensions) -> NumParams:
    """Returns the number of parameters, for example V d + 6 N d^2 for one stack of N layers with
    d_ff = d, without biases and norms."""
    d = dims.d_model
    norm = d * (2 if dims.norm == "layernorm" and dims.bias else 1)
    embedding = vocab_size * d + dims.num_segments * d + norm * dims.embedding_norm
    embedding += dims.max_positions * d if dims.positions == "learned" else 0
    head = 0 if dims.tied else vocab_size * d
    head += vocab_size if dims.output_bias else 0
    head += _linear(dims, d, d) + norm if dims.output_transform else 0
    body = 0
    for cross in _stacks(architecture):
        attention = _linear(dims, d, d) + _linear(dims, d, 2 * d) + _linear(dims, d, d) + norm
        feed_forward = _linear(dims, d, _up(dims)) + _linear(dims, dims.d_ff, d) + norm
        body += dims.num_layers * (attention * (2 if cross else 1) + feed_forward)
        body += norm if dims.norm_position == "pre" else 0
        body += RELATIVE_BUCKETS * dims.num_heads if dims.positions == "relative" else 0
    return NumParams(embedding, body, head)


def activation_bytes_per_token(
    architecture: Architecture,
    vocab_size: int,
    dims: Dimensions,
    *,
    length: int,
    predicted: float = 1.0,
) -> float:
    """The bytes per token that an encoder or decoder keeps for its backward pass, in rows of
    ``length`` tokens, in float32 on a CPU, without dropout. ``predicted`` is the share of tokens
    whose logits are computed: 1 for causal, the mask rate for mlm.

    Fused attention keeps the mask, as numbers, for each block. With relative positions, whose bias
    is learnt, attention is not fused and keeps the attention weights of all heads.
    """
    assert architecture != "encoder_decoder", "its two kinds of tokens keep different amounts"
    d, d_ff = dims.d_model, dims.d_ff
    norm = 2 * d + (2 if dims.norm == "layernorm" else d + 1)  # input, output, statistics
    attention = 4 * d  # queries, keys, values and their mixture
    relative = dims.positions == "relative"
    attention += dims.num_heads * length if relative else dims.num_heads + length
    feed_forward = {"gelu": 2, "relu": 1, "swiglu": 4}[dims.activation] * d_ff
    last = norm if dims.norm_position == "pre" else d
    transform = d + norm if dims.output_transform else 0
    first = norm - d if dims.embedding_norm else 0  # its output is counted in the first block
    floats = first + dims.num_layers * (attention + feed_forward + 2 * norm) + last
    return FLOAT32 * (floats + predicted * (vocab_size + transform))


def _stacks(architecture: Architecture) -> tuple[bool, ...]:
    """Returns for each stack of blocks whether it attends to a memory."""
    return (False, True) if architecture == "encoder_decoder" else (False,)


def _linear(dims: Dimensions, inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs * dims.bias


def _up(dims: Dimensions) -> int:
    return dims.d_ff * (2 if dims.activation == "swiglu" else 1)
