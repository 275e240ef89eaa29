"""What every architecture offers to objectives, tasks and methods."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.core.components import Components
from stages.models._attention import Attention
from stages.models._blocks import Stack
from stages.models._dimensions import Dimensions
from stages.models._embedding import Embedding
from stages.models._generation import Decoding
from stages.models._norm import make_norm
from stages.text.batch import Batch
from stages.text.tokenizer import FILE, TaskTokenizer, Tokenizer

Pooling = Literal["mean", "first", "last"]


class Backbone(nn.Module, ABC):
    """A model without a head.

    ``forward(batch)`` gives a state for each input token, ``unembed(states)`` the logits of the
    vocabulary. One that ``can_generate`` gives what follows an input: ``logits(batch)`` of a given
    text, ``generate(batch)`` the text.
    """

    architecture: str
    pooling: Pooling  # the state of a text, from those of its tokens, if not told
    vocab_size: int
    num_layers: int
    embedding: Any  # a module, whose parameters are told apart from the others in sizes
    unembedding = ("transform", "output", "output_bias")  # what ``unembed`` alone uses

    def __init__(self) -> None:
        super().__init__()
        # Of layers, where that is what a state is; learnt with a task alone.
        self.mix: ScalarMix | None = None
        self.output_bias: nn.Parameter | None = None  # of the vocabulary's logits

    @classmethod
    def tokenizer_of(cls, settings: Mapping[str, Any], folder: Path) -> TaskTokenizer:
        """The tokenizer that stands in ``folder``, be it that of a tokenizer or that of a run."""
        return Tokenizer(folder / FILE)

    @property
    @abstractmethod
    def d_model(self) -> int:
        """The width of a token's state."""

    @property
    def sizes(self) -> dict[str, int]:
        """Of its settings, those that d_model gives where they are left out."""
        return {}

    @property
    def max_positions(self) -> int | None:
        """The tokens of the longest text that it takes; None if there is no longest."""
        return None

    @property
    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """The layers, from the input to the output; of an encoder-decoder, the encoder's first."""

    @property
    @abstractmethod
    def token_embedding(self) -> nn.Module:
        """What looks the ids of tokens up."""

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The state of each input token."""

    def layers(self, batch: Batch) -> Float[Tensor, "J B T D"]:
        """What goes into each block, and the states at the end: J = num_layers + 1."""
        entering: list[Tensor] = []

        def keep(block: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            entering.append(inputs[0] if inputs else named["hidden_states"])

        hooks = [block.register_forward_pre_hook(keep, with_kwargs=True) for block in self.blocks]
        try:
            states = self(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack([*entering, states])

    @abstractmethod
    def flops(self, batch: Batch) -> int:
        """Floating-point operations of ``forward`` in matrix products, padding included if it is
        computed."""

    @abstractmethod
    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits over the vocabulary."""

    @abstractmethod
    def unembed_flops(self, num_positions: int) -> int:
        """Floating-point operations of ``unembed`` on so many states."""

    @abstractmethod
    def initialise(self, *, generator: torch.Generator) -> None:
        """Draw all weights anew."""

    def for_pretraining(self) -> "Backbone":
        """With all that an objective needs; before the weights are drawn."""
        return self

    def after_pretraining(self) -> "Backbone":
        """Without what no task is fine-tuned on; before the weights are stored."""
        return self

    def for_tokens(self) -> "Backbone":
        """The part that gives the states of input tokens, without what gives the vocabulary's
        logits: what a task is fine-tuned on, unless it is one of writing."""
        for name in self.unembedding:
            setattr(self, name, None)
        return self

    @property
    def can_generate(self) -> bool:
        return False

    def logits(self, batch: Batch) -> Float[Tensor, "B U V"]:
        """Of the token after each of ``decoder_input_ids``, in view of the input."""
        raise AssertionError(f"{self.architecture} writes no text")

    def generate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """The text that follows each input, without the <eos> that ends it."""
        raise AssertionError(f"{self.architecture} writes no text")

    def positions_taken(self, max_tokens: int, max_target_tokens: int = 0) -> int:
        """Of ``max_positions``, by an input of so many tokens and what is written of it."""
        if self.architecture == "decoder" and max_target_tokens:
            return max_tokens + max_target_tokens - 1  # in one row; the last token is not read
        return max(max_tokens, max_target_tokens)

    def too_long(
        self, max_tokens: int, *, num_added_tokens: int = 0, max_target_tokens: int = 0
    ) -> str | None:
        """Why an input of so many tokens, with those that a method adds or with a text to write,
        has too few positions; None if it has enough."""
        most = self.max_positions
        needed = self.positions_taken(max_tokens + num_added_tokens, max_target_tokens)
        if most is None or needed <= most:
            return None
        parts = ""
        if num_added_tokens:
            parts = f" ({max_tokens} and {num_added_tokens} added by the method)"
        elif max_target_tokens:
            parts = f" ({max_tokens} to read, {max_target_tokens} to write)"
        return f"{needed}{parts} is more than the model's {most} positions"


class ScalarMix(nn.Module):
    """gamma * sum_j softmax(s)_j h_j over layers (ELMo; Peters et al. 2018, eq. 1); at the start
    their mean."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Float[Tensor, "J B T D"]) -> Float[Tensor, "B T D"]:
        weights = self.gamma * self.s.softmax(dim=0)
        return (weights[:, None, None, None] * layers).sum(dim=0)

    @torch.no_grad()
    def initialise(self) -> None:
        self.s.zero_()
        self.gamma.fill_(1.0)


class TransformerBackbone(Backbone):
    """What the architectures that are made of blocks share."""

    schema = Dimensions
    embedding: Embedding

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
    def max_positions(self) -> int | None:
        return self.dims.max_positions if self.dims.positions == "learned" else None

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
        """Draw all weights anew: normal with BERT's 0.02, smaller for layers that write into the
        residual stream (GPT-2: over the root of their number); norms 1, biases 0 but for those by
        which self-attention begins local."""
        writers = 3 if self.architecture == "encoder_decoder" else 2
        residual_std = std / (writers * self.dims.num_layers) ** 0.5
        for name, weight in self.named_parameters():
            if weight.dim() >= 2:
                writes = name.endswith(("output.weight", "down.weight")) and "." in name[:-7]
                weight.normal_(0, residual_std if writes else std, generator=generator)
            else:
                weight.fill_(1.0 if name.endswith("weight") else 0.0)
        for module in self.modules():
            if isinstance(module, Attention):
                module.initialise_locality(self.dims.locality, generator=generator)


class OutputTransform(nn.Module):
    """A layer, GELU or the blocks' activation, and a norm, before the vocabulary (BERT's masked
    language model)."""

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
    """Operations of ``num_layers`` blocks on ``rows`` rows of ``length`` tokens.

    A matrix product of [n, a] and [a, b] is 2 n a b operations. With ``memory_length`` each block
    attends to a memory of that length too.
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


MODELS = Components[Backbone]("models")


def outline(entry: Mapping[str, Any], vocab_size: int, *, where: str) -> Backbone:
    """The model of an entry ``model:`` without storage for its weights (torch's device meta).

    Raises ValueError with the path in params.yaml (``where``) for a wrong setting.
    """
    with torch.device("meta"):
        return MODELS.build(entry, vocab_size, where=where)
