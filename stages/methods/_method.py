"""The interface of methods, and their types."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from stages.core.components import Components
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.tasks._cells import Row
from stages.tasks._task import Example, Predicted
from stages.text.batch import Batch
from stages.text.tokenizer import Tokenizer

States = Float[np.ndarray, "N D"]
Targets = Shaped[np.ndarray, "N ..."]
Weights = Float[np.ndarray, " N"]


@runtime_checkable
class Predictor(Protocol):
    """Turns rows into predictions with a model: a Task, or the predictor of a PromptMethod. A row
    may become several examples, whose predictions ``combine`` merges into one."""

    has_prefix: bool  # the model was pretrained with bidirectional attention to its input

    def encode(self, rows: Sequence[Row]) -> list[Any]: ...

    def collate(self, examples: list[Any], *, rngs: list[np.random.Generator]) -> Batch: ...

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Any]) -> list[Any]: ...

    def combine(self, row: Row, predictions: list[Any]) -> str | Predicted: ...


@runtime_checkable
class Lesson(Protocol):
    """What training minimises: a task or, instead, a criterion of a method."""

    max_tokens: int

    def collate(self, examples: list[Example], *, rngs: list[np.random.Generator]) -> Batch: ...

    def loss(self, model: ModelWithHead, batch: Batch) -> Mapping[str, tuple[float, Tensor]]: ...


class Method:
    """Changes a model for fine-tuning and marks, by ``requires_grad``, the weights that train.

    Only weights that require a gradient after ``apply`` change, and only these are stored. The
    model of a trial is rebuilt from the pretrained backbone, ``apply`` and the stored weights.

    A method is a ``TrainedMethod``, a ``SolvedMethod``, an ``UntrainedMethod`` or a
    ``PromptMethod``. A combination with a model or a task that is not supported has no trials
    (``trials/compatibility.py``).
    """

    freezes_backbone: ClassVar[bool] = True  # if so, its trials share the backbone's states
    prompts: ClassVar[bool] = False  # if so, its own predictor replaces the task's
    requires_head: ClassVar[bool] = False  # its trained weights would not affect generated text
    fits: ClassVar[tuple[str, ...]] = ()  # supported kinds of task; empty means all
    num_added_tokens: int = 0  # tokens that are added to each input inside the backbone
    num_shots: int = 0  # labelled examples that each prompt shows

    def incompatibility(self, backbone: Backbone) -> str | None:
        """Returns why the method cannot adapt this backbone, or None if it can. The reason
        continues a message that begins with the method's name and a colon. No weights are read."""
        return None

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        """Prepares the model in place. New weights are drawn from ``generator``."""
        model.requires_grad_(False)

    def merge(self, model: ModelWithHead) -> None:
        """Merges what ``apply`` has added into the weights of the pretrained model, in place, so
        that an export needs no code of the method. Raises ValueError if that is impossible."""


class TrainedMethod(Method):
    """Trains weights of the model, or weights that the method adds to it, with the settings
    ``training:`` of the method's entry. Other types of methods have no such settings.

    ``apply`` lets all weights train by default; ``freeze_backbone`` leaves only the head to train.
    """

    freezes_backbone = False
    probe: "SolvedMethod | None" = None  # fits the head after each epoch; else the head trains

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(True)

    def lesson(
        self, task: Lesson, examples: Sequence[Example], *, rng: np.random.Generator
    ) -> tuple[Lesson, Sequence[Example]]:
        """Returns what training minimises, and the examples of an epoch, made of the ``examples``
        of the labelled rows."""
        return task, examples

    def epoch_size(self, num_rows: int) -> tuple[int, int]:
        """Returns (the most examples that ``lesson`` makes of labelled rows, rows in an
        example)."""
        return num_rows, 1

    def frozen(self, model: ModelWithHead, epoch: int) -> Iterable[nn.Parameter]:
        """Returns the weights that are frozen in this epoch (counted from 0) although ``apply``
        lets them train. A weight that trains in an epoch trains in all later epochs."""
        return ()


class Solution(NamedTuple):
    """The linear layer that minimises loss and penalty at one C."""

    C: float
    weight: Float[np.ndarray, "K D"]
    bias: Float[np.ndarray, " K"]
    num_iterations: int
    converged: bool


class SolvedMethod(Method, ABC):
    """Fits a linear head to states that a frozen backbone computes once, for each value of ``C``.
    The head that is best on validation is kept."""

    requires_head = True
    C: Sequence[float]  # inverse strengths of the penalty

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(False)
        model.head.requires_grad_(True)

    @abstractmethod
    def solutions(
        self, states: States, targets: Targets, weights: Weights, *, num_outputs: int
    ) -> Iterator[Solution]:
        """Yields the solution for each C, from the smallest. ``targets`` are classes (integers
        [N]), labels that each row has (0 or 1, [N L]) or numbers (floats [N]); ``weights`` are
        those of the states in the loss."""


class UntrainedMethod(Method):
    """Uses the model as it was pretrained."""


class PromptMethod(UntrainedMethod, ABC):
    """Predicts with a prompt instead of the task's head."""

    prompts = True

    @abstractmethod
    def predictor(
        self,
        words: Mapping[str, str],
        tokenizer: Tokenizer,
        max_tokens: int,
        rows: Sequence[Row],
        *,
        rng: np.random.Generator,
    ) -> Predictor:
        """Returns a predictor that can show the labelled ``rows`` in its prompts; ``words`` maps
        labels to verbalisers. Raises ValueError, with the setting's name, for settings that are
        incompatible."""


def mix_of_layers(backbone: Backbone) -> list[nn.Parameter]:
    """Returns the weights of ELMo's mix of layers, which each task learns for itself (Peters et al.
    2018, section 3.3)."""
    mix = getattr(backbone, "mix", None)
    return [*mix.parameters()] if mix is not None else []


def freeze_backbone(model: ModelWithHead) -> None:
    """Freezes all weights but those of the head and of ELMo's mix of layers."""
    model.requires_grad_(False)
    for weight in (*model.head.parameters(), *mix_of_layers(model.backbone)):
        weight.requires_grad_(True)


METHODS = Components[Method]("methods")
