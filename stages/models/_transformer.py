"""The base class of our own transformers."""

from dataclasses import asdict

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models._attention import Attention
from stages.models._backbone import Backbone
from stages.models._blocks import FeedForward, Stack
from stages.models._dimensions import Dimensions
from stages.models._embedding import Embedding
from stages.models._norm import make_norm
from stages.text.batch import Batch

# Fields of Dimensions that only ``unembed`` uses.
OUTPUT_SETTINGS = ("tied", "output_bias", "output_transform")


class TransformerBackbone(Backbone):
    """A transformer. A subclass makes its ``Stack``s in the constructor, and defines ``reader``
    (the stack that computes the states of input tokens) or a ``forward`` of its own."""

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
        return self.reader(
            x,
            batch.document_ids,
            document_starts=batch.document_starts,
            prefix_starts=batch.prefix_starts,
            visible=batch.visible,
        )

    @property
    def design(self) -> str | None:
        """The architecture, vocabulary size, attention, remaining output layers and dimensions as
        text, or None if the model has a ``forward`` of its own. After ``drop_output_layers`` an
        encoder and the encoder of an encoder-decoder have the same design."""
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

    def hidden_matrices(self) -> dict[nn.Parameter, int]:
        matrices = super().hidden_matrices()
        for module in self.modules():
            if isinstance(module, Attention):
                matrices[module.key_value.get_parameter("weight")] = 2
            elif isinstance(module, FeedForward) and module.activation == "swiglu":
                matrices[module.up.get_parameter("weight")] = 2  # the values and their gates
        return matrices

    @property
    def token_embedding(self) -> nn.Module:
        return self.embedding.tokens

    @property
    def lookup_tables(self) -> nn.Module:
        return self.embedding

    @property
    def max_positions(self) -> int | None:
        return self.dims.max_positions if self.dims.positions == "learned" else None

    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        weight = self.embedding.tokens.weight if self.output is None else self.output.weight
        if self.transform is not None:
            states = self.transform(states)
        return F.linear(states, weight, self.output_bias)

    @torch.no_grad()
    def initialise(self, *, generator: torch.Generator, std: float = 0.02) -> None:
        """Initialises all weights. Matrices are normal with BERT's standard deviation of 0.02; in
        layers that write into the residual stream it is divided by the square root of the number of
        these layers in their stack (GPT-2), so that an encoder-decoder's encoder starts like an
        encoder. Scales of norms are 1, biases 0 except those that make self-attention local."""
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
