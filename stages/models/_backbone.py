"""What every architecture offers to objectives, tasks and methods."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.core.components import Components
from stages.models._addition import Addition
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

    ``forward(batch)`` returns a state for each input token, ``unembed(states)`` the logits over the
    vocabulary. A model that ``can_generate`` also continues an input: ``logits(batch)`` scores a
    given text, ``generate(batch)`` writes one.
    """

    architecture: str  # its name in results
    # The architecture whose objectives, tasks and methods also fit this one; by default its own.
    trained_like: str
    is_transformer: bool = False  # its tokens exchange information by attention alone
    pooling: Pooling  # default pooling of token states
    vocab_size: int
    num_layers: int
    embedding: nn.Module  # all lookup tables: reports count their parameters separately
    output_layers = ("transform", "output", "output_bias")  # the modules that only unembed uses

    def __init_subclass__(cls, **settings: object) -> None:
        super().__init_subclass__(**settings)
        if "architecture" in vars(cls) and "trained_like" not in vars(cls):
            cls.trained_like = cls.architecture

    def __init__(self) -> None:
        super().__init__()
        # Set where a state is a mix of layers, whose weights are learnt with a task.
        self.mix: ScalarMix | None = None
        self.output_bias: nn.Parameter | None = None  # of the logits over the vocabulary
        # Set by prompt tuning: puts the ids of the learnt vectors before each input.
        self.with_prompt: Callable[[Batch], Batch] | None = None

    @classmethod
    def tokenizer_of(cls, settings: Mapping[str, Any], folder: Path) -> TaskTokenizer:
        """The tokenizer in ``folder``, which is the folder of a tokenizer or of a run."""
        return Tokenizer(folder / FILE)

    @property
    def uncached(self) -> "Backbone":
        """The backbone that computes the states, where a method looks them up."""
        return self

    @property
    @abstractmethod
    def d_model(self) -> int:
        """The width of a token's state."""

    @property
    def is_causal(self) -> bool:
        """Whether a state depends on its own and earlier tokens only, so that it predicts the next
        token, and a target stands in one row with its input."""
        return self.trained_like == "decoder"

    @property
    def sizes(self) -> dict[str, int]:
        """The settings whose defaults follow from d_model, with their values."""
        return {}

    @classmethod
    def matched_to_encoder(cls, settings: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
        """The settings of a model with as many parameters as an encoder of the same d_model, for
        ``budget.matched: parameters``; by default unchanged. ``settings`` have all ``sizes``.

        Raises ValueError for settings that no encoder can be matched with.
        """
        return dict(settings)

    @property
    def max_positions(self) -> int | None:
        """The maximum number of input tokens; None if there is no limit."""
        return None

    @property
    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """The layers from input to output; those of an encoder come before its decoder's."""

    @property
    @abstractmethod
    def token_embedding(self) -> nn.Module:
        """The module that maps token ids to vectors."""

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The state of each input token."""

    def layers(self, batch: Batch) -> Float[Tensor, "J B T D"]:
        """The input of each block, then the final states: J = num_layers + 1."""
        entering: list[Tensor] = []

        def keep(block: nn.Module, inputs: tuple[object, ...], named: dict[str, object]) -> None:
            entered = inputs[0] if inputs else named["hidden_states"]
            assert isinstance(entered, Tensor)
            entering.append(entered)

        hooks = [block.register_forward_pre_hook(keep, with_kwargs=True) for block in self.blocks]
        try:
            states = self(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack([*entering, states])

    def flops(self, batch: Batch) -> int:
        """Floating-point operations of ``forward`` in matrix products; padding counts where it is
        computed, and so does what a method has added."""
        return self.forward_flops(batch if self.with_prompt is None else self.with_prompt(batch))

    @abstractmethod
    def forward_flops(self, batch: Batch) -> int:
        """``flops`` of a batch that has its prompt, if there is one."""

    @abstractmethod
    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits over the vocabulary."""

    @abstractmethod
    def unembed_flops(self, num_positions: int) -> int:
        """Floating-point operations of ``unembed`` for ``num_positions`` states."""

    @abstractmethod
    def initialise(self, *, generator: torch.Generator) -> None:
        """Initialise all weights."""

    def add_pretraining_layers(self) -> None:  # noqa: B027 (most models have them from the start)
        """Add what only objectives need; called before ``initialise``.

        Raises ValueError if the model cannot have it.
        """

    def drop_pretraining_layers(self) -> None:  # noqa: B027
        """Remove what no task needs; called before the weights are stored."""

    def drop_output_layers(self) -> None:
        """Keep only what computes the states of input tokens, which is what tasks with a head of
        their own fine-tune: the logits over the vocabulary are not available afterwards."""
        for name in self.output_layers:
            setattr(self, name, None)

    @property
    def can_generate(self) -> bool:
        return False

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        """The decoder's states, which attend to the encoder's of the same document."""
        raise AssertionError(f"{self.architecture} has no decoder beside an encoder")

    def directions(self, batch: Batch) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T d"]]:
        """The states that predict the next and the previous token (ELMo)."""
        raise AssertionError(f"{self.architecture} does not read in two separate directions")

    def logits(self, batch: Batch) -> Float[Tensor, "B U V"]:
        """Logits of the token after each of ``decoder_input_ids``, given the input."""
        raise AssertionError(f"{self.architecture} cannot generate text")

    def generate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """The continuation of each input, without the final <eos>."""
        raise AssertionError(f"{self.architecture} cannot generate text")

    def positions_taken(self, max_tokens: int, max_target_tokens: int = 0) -> int:
        """How many of ``max_positions`` an input and its target of these lengths take."""
        if self.is_causal and max_target_tokens:
            return max_tokens + max_target_tokens - 1  # in one row; the last token is not read
        return max(max_tokens, max_target_tokens)

    def too_long(
        self, max_tokens: int, *, num_added_tokens: int = 0, max_target_tokens: int = 0
    ) -> str | None:
        """Why an input of this length, with the tokens that a method adds or with a target, has too
        few positions; None if it has enough."""
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
    """gamma * sum_j softmax(s)_j h_j over layers (ELMo; Peters et al. 2018, eq. 1); initially the
    mean of the layers."""

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
    """What transformers share. A subclass defines ``forward`` and ``block_flops``, and makes its
    ``Stack``s in the constructor."""

    schema = Dimensions
    is_transformer = True
    embedding: Embedding
    sublayers_per_block = 2  # that write into the residual stream; 3 with cross-attention

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
        that make self-attention local at first."""
        residual_std = std / (self.sublayers_per_block * self.dims.num_layers) ** 0.5
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


MODELS = Components[Backbone]("models")


def unsupported(architectures: tuple[str, ...], model: Backbone | type[Backbone]) -> str | None:
    """Why a component that lists these architectures does not support the model, to stand behind
    its name; None if it does. An empty list supports all."""
    if not architectures or model.trained_like in architectures:
        return None
    return f"supports {', '.join(architectures)} only, not {model.architecture}"


def outline(entry: Mapping[str, Any], vocab_size: int, *, where: str) -> Backbone:
    """The model of an entry ``model:`` without storage for its weights (torch's device meta).

    Raises ValueError with the path in params.yaml (``where``) for a wrong setting.
    """
    with torch.device("meta"):
        return MODELS.build(entry, vocab_size, where=where)
