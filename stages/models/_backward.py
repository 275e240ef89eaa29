"""Operations of a backward pass, where some weights train and others are frozen.

Each product of states and a weight matrix has two gradients of its own size: that of the weight, if
it trains, and that of the states, if they depend on a trained weight. A product of two states
(attention) has both, if the states depend on one. So a fully trained model takes twice its forward
pass, and a frozen one with small trained additions about once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Layer:
    """Weights that multiply the same states, and the operations of that forward."""

    weights: Sequence[nn.Parameter]  # biases and norms too: later states depend on them
    flops: float
    reads_memory: bool = False  # the states are an encoder's, not those of the layer before


@dataclass(frozen=True)
class Part:
    """Layers that read the same states side by side, then products of the states they give."""

    layers: Sequence[Layer] = ()
    state_flops: float = 0
    begins_decoder: bool = False  # its states are new ones; those before are its memory


def backward_flops(parts: Iterable[Part], *, depends: bool) -> int:
    """The operations of the backward pass through parts in the order of the forward pass;
    ``depends`` says whether the states at the input depend on a trained weight."""
    total, at_input, memory_depends = 0.0, depends, False
    for part in parts:
        if part.begins_decoder:
            memory_depends, depends = depends, at_input
        reads = [memory_depends if layer.reads_memory else depends for layer in part.layers]
        for layer, states in zip(part.layers, reads, strict=True):
            total += layer.flops * (states + _trained_share(layer.weights))
        depends = depends or any(reads) or any(trains(layer.weights) for layer in part.layers)
        total += 2 * part.state_flops * depends
    return round(total)


def trains(weights: Iterable[nn.Parameter]) -> bool:
    return any(weight.requires_grad for weight in weights)


def _trained_share(weights: Sequence[nn.Parameter]) -> float:
    """Of the matrices' operations, those of matrices that train."""
    matrices = [weight for weight in weights if weight.dim() >= 2]
    trained = sum(weight.numel() for weight in matrices if weight.requires_grad)
    return trained / max(sum(weight.numel() for weight in matrices), 1)


def layers_of(linear: nn.Module, num_states: int, *, reads_memory: bool = False) -> list[Layer]:
    """A linear layer on so many states, and what a method has put into it: its operations are
    counted elsewhere, but states depend on it."""
    own = [*linear.parameters(recurse=False)]
    matrices = sum(weight.numel() for weight in own if weight.dim() >= 2)
    added = [weight for child in linear.children() for weight in child.parameters()]
    return [Layer(own, 2 * num_states * matrices, reads_memory), Layer(added, 0, reads_memory)]


def parts_by_weight(
    blocks: Sequence[nn.Module], flops: float, *, state_flops: float = 0
) -> list[Part]:
    """Blocks that process the same tokens: their matrices share ``flops`` by their sizes, and the
    blocks ``state_flops`` equally. Each weight is a part, in the order of registration."""
    weights = [list(block.parameters()) for block in blocks]
    numel = sum(each.numel() for block in weights for each in block if each.dim() >= 2)
    found = []
    for block in weights:
        shares = [each.numel() / numel * flops if each.dim() >= 2 else 0.0 for each in block]
        layers = [Layer([each], share) for each, share in zip(block, shares, strict=True)]
        found += [Part([layer]) for layer in layers] + [Part([], state_flops / len(blocks))]
    return found
