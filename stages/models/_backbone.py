"""The interface of architectures, used by objectives, tasks and methods."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stages.core.components import Components, Settings
from stages.core.seeding import torch_stream
from stages.text.batch import Batch

Architecture = Literal["encoder", "decoder", "encoder_decoder", "bilstm"]
Pooling = Literal["mean", "first", "last"]
Start = Literal["usual", "local"]


class Backbone(nn.Module, ABC):
    """A model without a task's head; its weights are there after ``initialise`` or ``load``.
    ``compile`` compiles the parts that compute states."""

    model: Any  # of transformers; ELMo has none
    architecture: Architecture  # an encoder-decoder becomes an encoder by ``drop_output_layers``
    vocab_size: int
    num_layers: int
    d_model: int  # the width of a token's state
    max_positions: int | None = None  # the maximum number of input tokens; None: no limit
    sizes: ClassVar[tuple[str, ...]] = ()  # the settings whose defaults follow from d_model

    @property
    def is_causal(self) -> bool:
        """Whether a token's state depends only on that token and earlier ones. The state then
        predicts the next token, and a target follows its input in the same row."""
        return self.architecture == "decoder"

    @property
    @abstractmethod
    def design(self) -> str:
        """A key that is equal for two models if their states of input tokens can differ only
        because of their weights."""

    @property
    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """The layers from input to output, those of an encoder before those of its decoder."""

    @property
    @abstractmethod
    def token_embedding(self) -> nn.Module:
        """The module that maps token ids to vectors."""

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The state of each input token."""

    @abstractmethod
    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits over the vocabulary."""

    @abstractmethod
    def initialise(self, *, generator: torch.Generator) -> None:
        """Gives the model its first weights: random ones, or published ones."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes the weights, and what ``load`` needs to read them, into a folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Gives the model the weights in ``folder``; raises ValueError if they do not fit."""

    def add_output_layers(self) -> None:  # noqa: B027 (most models have them from the start)
        """Adds the layers that compute logits over the vocabulary, if the model lacks them; called
        before ``initialise``. Raises ValueError if the model cannot have such layers."""

    @abstractmethod
    def drop_output_layers(self) -> None:
        """Keeps only the layers that compute the states of input tokens, which are all that a task
        with a head of its own fine-tunes. Afterwards there are no logits over the vocabulary."""

    @property
    def logit_bias(self) -> Tensor | None:
        """The bias of the logits, which pretraining sets before its first step, if there is one."""
        return None

    @property
    def can_generate(self) -> bool:
        """Whether ``decode`` and ``generate`` continue inputs."""
        return False

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        """The state of each of ``decoder_input_ids``, which predicts the token after it: that of a
        decoder beside an encoder or, in a causal model, of a row that continues the input."""
        raise NotImplementedError

    def generate(
        self,
        batch: Batch,
        *,
        max_new_tokens: int,
        start_id: int,
        eos_id: int,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        draws: bool = False,
    ) -> list[list[int]]:
        """The continuation of each input, without the final <eos>.

        ``max_new_tokens`` includes <eos>; a longer text is cut. An encoder-decoder's text begins
        after ``start_id``. One beam is greedy decoding. With more beams, the score of a text is the
        sum of the log-probabilities of its tokens, <eos> included, divided by its number of tokens
        to the power of ``length_penalty``. With ``draws`` (and one beam) each token is sampled at
        temperature 1, with torch's own generator.
        """
        raise NotImplementedError


MODELS = Components[Backbone]("models")


def positions_taken(backbone: Backbone, max_tokens: int, max_target_tokens: int) -> int:
    """The number of positions that an input and its target (0: none) of these lengths take."""
    if backbone.is_causal and max_target_tokens:
        return max_tokens + max_target_tokens - 1  # in one row; the last token is not read
    return max(max_tokens, max_target_tokens)


def too_long(backbone: Backbone, max_tokens: int, max_target_tokens: int = 0) -> str | None:
    """Returns a message if the model has too few positions for an input of ``max_tokens`` tokens,
    those that a method adds included, or for its target; None if it has enough."""
    needed, most = positions_taken(backbone, max_tokens, max_target_tokens), backbone.max_positions
    if most is None or needed <= most:
        return None
    return f"takes {needed} positions, more than the model's {most}"


def unsupported(architectures: tuple[str, ...], model: Backbone) -> str | None:
    """Returns why a component that lists these architectures does not support the model, as words
    to put after the component's name; None if it supports the model. An empty list supports all."""
    if not architectures or model.architecture in architectures:
        return None
    return f"supports {', '.join(architectures)} only, not {model.architecture}"


def draw_weights(backbone: Backbone, *key: int, seed: int) -> None:
    """Initialises all weights from a model's ``seed`` and, for a trial of a model from scratch, the
    trial's own ``key``."""
    backbone.initialise(generator=torch_stream(seed, "weights", *key))


def outline(entry: Settings, vocab_size: int, *, where: str) -> Backbone:
    """The model of an entry ``architecture:`` without storage for its weights (on torch's device
    meta). Raises ValueError with the path in params.yaml (``where``) for a wrong setting."""
    with torch.device("meta"):
        return MODELS.build(entry, vocab_size, where=where)
