"""What our own transformers share, and what their blocks cost."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models._addition import Addition
from stages.models._attention import Attention
from stages.models._backbone import Backbone
from stages.models._backward import Layer, Part
from stages.models._blocks import Stack
from stages.models._dimensions import Dimensions
from stages.models._embedding import Embedding
from stages.models._norm import make_norm
from stages.text.batch import Batch

OUTPUT_SETTINGS = ("tied", "output_bias", "output_transform")  # of Dimensions, for unembed alone


class TransformerBackbone(Backbone):
    """What transformers share. A subclass defines ``block_flops``, makes its ``Stack``s in the
    constructor, and says by ``reader`` which of them computes the states of input tokens, or
    defines ``forward``."""

    schema = Dimensions
    is_transformer = True

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__()
        self.vocab_size, self.num_layers = vocab_size, dims.num_layers
        self.dims = dims
        self.embedding = Embedding(vocab_size, dims)
        self.transform = OutputTransform(dims) if dims.output_transform else None
        self.output = None if dims.tied else nn.Linear(dims.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if dims.output_bias else None

    @property
    def d_model(self) -> int:
        return self.dims.d_model

    @property
    def reader(self) -> Stack:
        """The stack that computes the states of input tokens."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        x = self.embedding(batch.input_ids, batch.document_ids, batch.segment_ids)
        return self.reader(x, batch.document_ids, visible=batch.visible)

    @property
    def design(self) -> str | None:
        """Of models that share ``forward``: vocabulary, attention, dimensions, and what is left of
        the output layers. After ``drop_output_layers`` an encoder and the encoder of an
        encoder-decoder are designed alike."""
        if type(self).forward is not TransformerBackbone.forward:
            return None
        dims = {k: v for k, v in asdict(self.dims).items() if k not in OUTPUT_SETTINGS}
        left = [name for name in self.output_layers if getattr(self, name) is not None]
        attention = f"causal={self.reader.causal}"
        return f"{self.used_architecture}, {self.vocab_size}, {attention}, {left}, {dims}"

    @property
    def sizes(self) -> dict[str, int]:
        return {name: getattr(self.dims, name) for name in ("num_layers", "num_heads", "d_ff")}

    @property
    def blocks(self) -> list[nn.Module]:
        stacks = [part for part in self.children() if isinstance(part, Stack)]
        return [block for stack in stacks for block in stack.blocks]

    @property
    def token_embedding(self) -> nn.Module:
        return self.embedding.tokens

    @property
    def lookup_tables(self) -> nn.Module:
        return self.embedding

    @property
    def max_positions(self) -> int | None:
        return self.dims.max_positions if self.dims.positions == "learned" else None

    @abstractmethod
    def block_flops(self, batch: Batch) -> int:
        """Floating-point operations of its stacks of blocks, without additions."""

    def forward_flops(self, batch: Batch) -> int:
        return self.block_flops(batch) + self._added_flops(batch)

    def _added_flops(self, batch: Batch) -> int:
        """Of the additions inside: those of a decoder beside an encoder process the tokens that are
        decoded. A causal model reads its target in the row of its input."""
        added = [(name, m) for name, m in self.named_modules() if isinstance(m, Addition)]
        per_input = sum(m.flops_per_token for name, m in added if not name.startswith("decoder."))
        per_target = sum(m.flops_per_token for name, m in added if name.startswith("decoder."))
        rows, num_inputs = batch.input_ids.shape
        num_targets = 0 if batch.decoder_input_ids is None else batch.decoder_input_ids.shape[1]
        if num_targets and self.is_causal:
            num_inputs += num_targets - 1
        per_batch = sum(m.flops_per_batch for _, m in added)
        return per_batch + rows * (per_input * num_inputs + per_target * num_targets)

    def parts(self, batch: Batch) -> Iterable[Part]:
        if self.design is None:  # it has a forward pass of its own
            return super().parts(batch)
        added = [m for m in self.modules() if isinstance(m, Addition)]
        weights = [weight for module in added for weight in module.parameters()]
        return [*self.stack_parts(batch), Part([Layer(weights, self._added_flops(batch))])]

    def stack_parts(self, batch: Batch) -> Iterator[Part]:
        """The matrix products of ``block_flops`` in their order."""
        rows, length = batch.input_ids.shape
        if self.is_causal and batch.decoder_input_ids is not None:
            length += batch.decoder_input_ids.shape[1] - 1
        yield from self.reader.parts(rows, length)

    def input_weights(self) -> Iterator[nn.Parameter]:
        return self.embedding.parameters()

    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        weight = self.embedding.tokens.weight if self.output is None else self.output.weight
        if self.transform is not None:
            states = self.transform(states)
        return F.linear(states, weight, self.output_bias)

    def unembed_flops(self, num_positions: int) -> int:
        d = self.dims.d_model
        transform = d * d if self.dims.output_transform else 0
        return 2 * num_positions * (d * self.vocab_size + transform)

    @torch.no_grad()
    def initialise(self, *, generator: torch.Generator, std: float = 0.02) -> None:
        """Initialise all weights: normal with BERT's 0.02, for layers that write into the residual
        stream divided by the square root of their number (GPT-2); norms 1, biases 0 except those
        that make self-attention local at first. Each stack has a stream of its own, so that the
        encoder of an encoder-decoder is drawn as an encoder is."""
        stacks = {
            name: part.num_sublayers
            for name, part in self.named_children()
            if isinstance(part, Stack)
        }
        for name, weight in self.named_parameters():
            if weight.dim() >= 2:
                writes = name.endswith(("output.weight", "down.weight")) and "." in name[:-7]
                number = stacks.get(name.partition(".")[0], 2 * self.dims.num_layers)
                residual_std = std / number**0.5
                weight.normal_(0, residual_std if writes else std, generator=generator)
            else:
                weight.fill_(1.0 if name.endswith("weight") else 0.0)
        for module in self.modules():
            if isinstance(module, Attention):
                module.initialise_locality(self.dims.locality, generator=generator)

    @property
    def starts_local(self) -> bool:
        return self.dims.locality > 0 and any(
            module.can_be_local for module in self.modules() if isinstance(module, Attention)
        )

    def drop_locality(self) -> None:
        for module in self.modules():
            if isinstance(module, Attention):
                module.drop_locality()


class OutputTransform(nn.Module):
    """A linear layer, GELU (ReLU where the blocks have it) and a norm before the output embedding
    (BERT's masked language model)."""

    def __init__(self, dims: Dimensions) -> None:
        super().__init__()
        self.linear = nn.Linear(dims.d_model, dims.d_model, bias=dims.bias)
        self.norm = make_norm(dims)
        self.activation = F.relu if dims.activation == "relu" else F.gelu

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        return self.norm(self.activation(self.linear(states)))


def stack_flops(
    dims: Dimensions, rows: int, length: int, *, memory_length: int | None = None
) -> int:
    """Floating-point operations of ``num_layers`` blocks on ``rows`` rows of ``length`` tokens.

    A matrix product of [n, a] and [a, b] is 2 n a b operations. With ``memory_length`` each block
    also has cross-attention to a memory of that length.
    """
    d, tokens = dims.d_model, rows * length
    up = 2 * dims.d_ff if dims.activation == "swiglu" else dims.d_ff
    per_layer = 2 * tokens * (4 * d * d + d * up + dims.d_ff * d)
    per_layer += 4 * rows * length * length * d
    if memory_length is not None:
        memory = rows * memory_length
        per_layer += 2 * (2 * tokens * d * d + 2 * memory * d * d)
        per_layer += 4 * rows * length * memory_length * d
    return dims.num_layers * per_layer
