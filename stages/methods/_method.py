"""The interface of a method, and the types of methods."""

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
    """Turns rows into predictions with a model: a Task, or the predictor of a PromptMethod.

    A row may be several examples, and ``combine`` makes one prediction of theirs. Only the
    predictor knows the types of its examples and predictions.
    """

    has_prefix: bool  # the model was pretrained with bidirectional attention to its input

    def encode(self, rows: Sequence[Row]) -> list[Any]: ...

    def collate(self, examples: list[Any], *, rngs: list[np.random.Generator]) -> Batch: ...

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Any]) -> list[Any]: ...

    def combine(self, row: Row, predictions: list[Any]) -> str: ...


class Method(ABC):
    """Changes a model for fine-tuning and marks, by ``requires_grad``, the weights that train.

    Training changes only weights that require a gradient after ``apply``, and only these are
    stored. The model of a trial is rebuilt from the pretrained backbone, ``apply`` and the stored
    weights.

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
    num_added_tokens: int = 0  # tokens that are added to each input inside the backbone
    num_shots: int = 0  # labelled examples that each prompt shows

    def incompatibility(self, backbone: Backbone) -> str | None:
        """Returns why the method cannot adapt this backbone, or None if it can. The reason
        continues a message that begins with the method's name and a colon. No weights are read."""
        return None

    @abstractmethod
    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        """Prepares the model in place. New weights are drawn from ``generator``."""


class TrainedMethod(Method):
    """Trains weights of the model, or weights that it adds, with the settings ``training:`` in its
    entry. Other types of methods have no such settings."""

    freezes_backbone = False

    def frozen(self, model: ModelWithHead, epoch: int) -> Iterable[nn.Parameter]:
        """Returns the weights that ``apply`` lets train and that are frozen in this epoch, counted
        from 0. A weight that trains in an epoch trains in all later epochs."""
        return ()


class SolvedMethod(Method):
    """Fits a head to states that a frozen backbone computes once for all trials. The loss plus an
    L2 penalty is minimised (``training/solver.py``) for each value of ``C``, and the head that is
    best on validation is kept."""

    requires_head = True
    without_effect = ("dropout",)  # of the head: the loss is minimised without dropout
    C: Sequence[float]  # inverse strengths of the penalty

    @abstractmethod
    def remember(
        self, model: ModelWithHead, batches: Iterable[Batch], *, anew: bool = False
    ) -> None:
        """Computes the states of batches that will be fitted to or predicted, in the order of
        ``batches``. The model then looks them up. Known states are computed again only with
        ``anew``."""


class UntrainedMethod(Method):
    """Uses the model as it was pretrained."""

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(False)


class PromptMethod(UntrainedMethod):
    """Predicts by a prompt, instead of by the task's head."""

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
        """Returns the predictor for labelled ``rows``; ``words`` are the verbalisers of the labels.

        Raises ValueError, with the setting's name, for settings that are incompatible.
        """


METHODS = Components[Method]("methods")
