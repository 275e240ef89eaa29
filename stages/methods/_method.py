"""The interface of methods, and their types."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from stages.core.components import Components
from stages.kinds._cells import Row
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch
from stages.text.tokenizer import TaskTokenizer


@runtime_checkable
class Predictor(Protocol):
    """Turns rows into predictions with a model: a Task, or the predictor of a PromptMethod.

    A row may become several examples, whose predictions ``combine`` merges into one. Only the
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

    Not every method supports every model and task. Incompatible combinations have no trials
    (``trials/compatibility.py``): the report shows no number for them, and all other trials run. A
    run, task or method without any compatible combination is refused before anything runs.

    A method is a ``TrainedMethod``, a ``SolvedMethod``, an ``UntrainedMethod`` or a
    ``PromptMethod``.
    """

    freezes_backbone: ClassVar[bool] = True  # if so, its trials share the backbone's states
    prompts: ClassVar[bool] = False  # if so, its own predictor replaces the task's
    requires_head: ClassVar[bool] = False  # its trained weights would not affect generated text
    fits: ClassVar[tuple[str, ...]] = ()  # supported kinds of task; empty means all
    # Settings that may be a list of values, of which each trial keeps the best on validation.
    tried: ClassVar[tuple[str, ...]] = ()
    # Settings that a task may try but that change nothing with this method.
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
    """Trains weights of the model, or weights that the method adds to it, with the settings
    ``training:`` of the method's entry. Other types of methods have no such settings."""

    freezes_backbone = False

    def frozen(self, model: ModelWithHead, epoch: int) -> Iterable[nn.Parameter]:
        """Returns the weights that are frozen in this epoch (counted from 0) although ``apply``
        lets them train. A weight that trains in an epoch trains in all later epochs."""
        return ()

    def merged(self, trained: Mapping[str, Tensor], model: ModelWithHead) -> dict[str, Tensor]:
        """Returns the trained weights with additions merged into weights of the unchanged
        ``model``, so that an export needs no code of the method. Additions that cannot be merged
        stay, and are refused by exports."""
        return dict(trained)


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
        """Computes and keeps the states of ``batches``, in this order; fitting and prediction then
        look them up. Known states are computed again only with ``anew``."""


class UntrainedMethod(Method):
    """Uses the model as it was pretrained."""

    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        model.requires_grad_(False)


class PromptMethod(UntrainedMethod):
    """Predicts with a prompt instead of the task's head."""

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
        """Returns a predictor that can show the labelled ``rows`` in its prompts; ``words`` maps
        labels to verbalisers.

        Raises ValueError, with the setting's name, for settings that are incompatible.
        """


METHODS = Components[Method]("methods")
