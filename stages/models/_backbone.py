"""The interface of architectures, used by objectives, tasks and methods."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.core.components import Components, Settings
from stages.core.seeding import torch_stream
from stages.models._generation import Decoding
from stages.text.batch import Batch
from stages.text.tokenizer import FILE, TaskTokenizer, Tokenizer

Pooling = Literal["mean", "first", "last"]


class Backbone(nn.Module, ABC):
    """A model without a head.

    ``forward(batch)`` returns a state for each input token, ``unembed(states)`` the logits over the
    vocabulary. A model that ``can_generate`` also continues inputs: ``logits(batch)`` scores given
    continuations, ``generate(batch)`` writes new ones.
    """

    architecture: str  # its name in results
    # The architecture whose objectives, tasks and methods also fit this one; by default its own.
    trained_like: str
    is_transformer: bool = False  # its tokens exchange information by attention alone
    vocab_size: int
    num_layers: int
    output_layers = ("transform", "output", "output_bias")  # the modules that only unembed uses
    # Other architectures whose weights can initialise this one: they differ only in the mask.
    starts_from: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **settings: object) -> None:
        super().__init_subclass__(**settings)
        if "architecture" in vars(cls) and "trained_like" not in vars(cls):
            cls.trained_like = cls.architecture

    def __init__(self) -> None:
        super().__init__()
        # Set if states are a mix of layers; the weights of the mix are learnt with a task.
        self.mix: ScalarMix | None = None
        self.output_bias: nn.Parameter | None = None  # of the logits over the vocabulary

    @classmethod
    def tokenizer_of(cls, settings: Settings, folder: Path) -> TaskTokenizer:
        """The tokenizer in ``folder``, the folder of a tokenizer or of a run."""
        return Tokenizer(folder / FILE)

    @property
    def uncached(self) -> "Backbone":
        """The backbone that computes states: this one, unless it looks them up in a cache."""
        return self

    @property
    def compiled_alone(self) -> list[nn.Module] | None:
        """The modules to compile one by one in a model that reads values of its batches on the host
        (compiled code cannot do so); None if a whole step is compiled at once."""
        return None

    @property
    @abstractmethod
    def d_model(self) -> int:
        """The width of a token's state."""

    @property
    def is_causal(self) -> bool:
        """Returns whether a token's state depends only on that token and earlier ones. The state
        then predicts the next token, and a target follows its input in the same row."""
        return self.trained_like == "decoder"

    @property
    def used_architecture(self) -> str:
        """The architecture that remains after ``drop_output_layers``: an encoder-decoder without
        its decoder is an encoder."""
        return self.architecture

    @property
    def design(self) -> str | None:
        """A key that is equal for two models if their states of input tokens can differ only
        because of their weights; None if this is unknown."""
        return None

    @property
    def sizes(self) -> dict[str, int]:
        """The settings whose defaults follow from d_model, with their values."""
        return {}

    @classmethod
    def matched_to_encoder(
        cls, settings: Settings, vocab_size: int, *, with_head: bool
    ) -> dict[str, int]:
        """Returns the sizes to change so that the model has as many parameters as an encoder of the
        same d_model (``pretrain.matched: parameters``); by default none. ``settings`` include all
        ``sizes``. With ``with_head``, parameters that ``drop_output_layers`` removes do not count.

        Raises ValueError if no sizes match.
        """
        return {}

    @property
    def max_positions(self) -> int | None:
        """The maximum number of input tokens; None if there is no limit."""
        return None

    @property
    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """The layers from input to output, those of an encoder before those of its decoder."""

    def hidden_matrices(self) -> dict[nn.Parameter, int]:
        """The matrices of linear layers in the blocks, each with the number of matrices that are
        stacked in its rows: 2 in a fused layer of keys and values."""
        return {
            module.get_parameter("weight"): 1
            for block in self.blocks
            for module in block.modules()
            if is_linear(module)
        }

    @property
    @abstractmethod
    def token_embedding(self) -> nn.Module:
        """The module that maps token ids to vectors."""

    @property
    def lookup_tables(self) -> nn.Module:
        """All embeddings of tokens, positions and segments, whose parameters are counted separately
        in reports."""
        return self.token_embedding

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

    @abstractmethod
    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits over the vocabulary."""

    @abstractmethod
    def initialise(self, *, generator: torch.Generator) -> None:
        """Initialises all weights."""

    @property
    def starts_local(self) -> bool:
        """Returns whether ``initialise`` draws biases that make self-attention local."""
        return False

    def drop_locality(self) -> None:  # noqa: B027 (most models have none)
        """Sets to 0, as is usual, the biases that make self-attention local."""

    def add_pretraining_layers(self) -> None:  # noqa: B027 (most models have them from the start)
        """Adds the layers that only objectives need; called before ``initialise``.

        Raises ValueError if the model cannot have such layers.
        """

    def drop_pretraining_layers(self) -> None:  # noqa: B027
        """Removes the layers that no task needs; called before the weights are stored."""

    @property
    def stored_part(self) -> nn.Module:
        """The part whose weights are stored: the model without the layers that
        ``drop_pretraining_layers`` removes."""
        return self

    @property
    def logit_bias(self) -> nn.Parameter | None:
        """The bias of the logits over the vocabulary, which pretraining sets before its first step;
        None if the model has no such bias."""
        return self.output_bias

    def drop_output_layers(self) -> None:
        """Keeps only the layers that compute the states of input tokens. Tasks with a head of their
        own fine-tune only these layers. Afterwards there are no logits over the vocabulary."""
        for name in self.output_layers:
            setattr(self, name, None)

    @property
    def can_generate(self) -> bool:
        return False

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        """The decoder's states, computed with attention to the encoder's states of the same
        document."""
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
        """Returns the number of positions that an input and its target of these lengths take."""
        if self.is_causal and max_target_tokens:
            return max_tokens + max_target_tokens - 1  # in one row; the last token is not read
        return max(max_tokens, max_target_tokens)

    def too_long(
        self, max_tokens: int, *, num_added_tokens: int = 0, max_target_tokens: int = 0
    ) -> str | None:
        """Returns a message if the model has too few positions for an input of ``max_tokens``
        tokens, with the tokens that a method adds, or for its target; None if it has enough."""
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
    """A learnt mix of layers h_j: gamma * sum_j softmax(s)_j h_j (ELMo; Peters et al. 2018, eq. 1);
    initially their mean."""

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


MODELS = Components[Backbone]("models")


def is_linear(module: nn.Module) -> bool:
    """Returns whether a module is a linear layer, ``nn.Linear`` or GPT-2's."""
    return isinstance(module, nn.Linear) or is_conv1d(module)


def is_conv1d(module: nn.Module) -> bool:
    """Returns whether a module is GPT-2's linear layer, whose matrix is transposed compared with
    ``nn.Linear``. The name decides, since importing the class would load transformers."""
    return type(module).__name__ == "Conv1D"


def unsupported(architectures: tuple[str, ...], model: Backbone | type[Backbone]) -> str | None:
    """Returns why a component that lists these architectures does not support the model, as words
    to put after the component's name; None if it supports the model. An empty list supports all."""
    if not architectures or model.trained_like in architectures:
        return None
    return f"supports {', '.join(architectures)} only, not {model.architecture}"


def draw_weights(backbone: Backbone, *key: int, seed: int) -> None:
    """Initialises all weights from a run's ``seed`` and, for a trial of a run from scratch, the
    trial's own ``key``."""
    backbone.initialise(generator=torch_stream(seed, "weights", *key))


def outline(entry: Settings, vocab_size: int, *, where: str) -> Backbone:
    """The model of an entry ``model:`` without storage for its weights (torch's device meta).

    Raises ValueError with the path in params.yaml (``where``) for a wrong setting.
    """
    with torch.device("meta"):
        return MODELS.build(entry, vocab_size, where=where)
