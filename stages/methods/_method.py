"""What a method is, and the types of methods."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from stages.core.components import Components
from stages.kinds._cells import Row
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch
from stages.text.tokenizer import TaskTokenizer


@runtime_checkable
class Predictor(Protocol):
    """Turns rows into predictions with a model: a Task, or what a PromptMethod puts in its place.

    A row may be several examples, whose predictions ``combine`` makes one. What an example and its
    prediction are is known to the predictor alone.
    """

    has_prefix: bool  # the model was pretrained with bidirectional attention to its input

    def encode(self, rows: Sequence[Row]) -> list[Any]: ...

    def collate(self, examples: list[Any], *, rngs: list[np.random.Generator]) -> Batch: ...

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Any]) -> list[Any]: ...

    def combine(self, row: Row, predictions: list[Any]) -> str: ...


class Method(ABC):
    """Transforms a model and says, by ``requires_grad``, what of it trains.

    What requires a gradient after ``apply`` is what training may change, and all that is stored: a
    trial is its pretrained backbone, ``apply``, and the stored weights put in by their names.

    Not every method supports every model and task. Combinations that are incompatible have no
    trials (``trials/compatibility.py``): the report shows no number there, and all other trials
    run. A run, a task or a method that is incompatible with all others is refused before anything
    runs.

    A method is a ``TrainedMethod``, a ``SolvedMethod``, an ``UntrainedMethod`` or a
    ``PromptMethod``.
    """

    freezes_backbone: ClassVar[bool] = True  # then its trials share the states it computes
    prompts: ClassVar[bool] = False  # then it has a predictor of its own, in the task's place
    requires_head: ClassVar[bool] = False  # what it trains has no effect on generated text
    fits: ClassVar[tuple[str, ...]] = ()  # the kinds of task that it supports; all if it lists none
    # Settings whose entry may be a list of values: each trial keeps the best on validation.
    tried: ClassVar[tuple[str, ...]] = ()
    # Settings that tasks try and that change nothing with this method.
    without_effect: ClassVar[tuple[str, ...]] = ()
    num_added_tokens: int = 0  # by which each input grows inside the backbone
    num_shots: int = 0  # labelled examples that each prompt shows

    def incompatibility(self, backbone: Backbone) -> str | None:
        """Why the method cannot adapt this backbone, to stand behind its name and a colon; None if
        it can. Looks at no weights."""
        return None

    @abstractmethod
    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        """Prepare the model in place; new weights are drawn from ``generator``."""


class TrainedMethod(Method):
    """Trains weights of the model, or weights that it adds, as ``training:`` in its entry says; no
    other method has such an entry."""

    freezes_backbone = False

    def frozen(self, model: ModelWithHead, epoch: int) -> Iterable[nn.Parameter]:
        """Which of the weights that ``apply`` lets train are frozen in this epoch, counted from 0;
        a weight that trains in an epoch trains in all later ones."""
        return ()


class SolvedMethod(Method):
    """Fits a head to states that a frozen backbone computes once, for all trials: to the minimum of
    loss and L2 penalty (``training/solver.py``), once for each of ``C``. The one that is best on
    validation is kept."""

    requires_head = True
    without_effect = ("dropout",)  # of the head: the loss that is minimised has none
    C: Sequence[float]  # inverse strengths of the penalty

    @abstractmethod
    def remember(
        self, model: ModelWithHead, batches: Iterable[Batch], *, anew: bool = False
    ) -> None:
        """Compute the states of every batch that will be fitted to or predicted, in a fixed order;
        later they are looked up. With ``anew`` also those that are known."""


class UntrainedMethod(Method):
    """Uses the model as it was pretrained."""

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(False)


class PromptMethod(UntrainedMethod):
    """Predicts by a prompt, in the task's place."""

    prompts = True

    @abstractmethod
    def predictor(
        self,
        words: Mapping[str, str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        rows: Sequence[Row],
        *,
        rng: np.random.Generator,
    ) -> Predictor:
        """The predictor from labelled ``rows``; ``words`` are the verbalisers of the labels.

        Raises ValueError, with the setting's name, for settings that are incompatible.
        """


METHODS = Components[Method]("methods")
