"""What a method is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from stages.core.components import Components
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.text.batch import Batch
from stages.text.tokenizer import TaskTokenizer


@runtime_checkable
class Predictor(Protocol):
    """What turns rows into predictions, with a model: a Task, or what a method puts in its place.

    A row may be several examples, which its prediction combines.
    """

    has_prefix: bool  # the model was pretrained to see what it is given in both directions

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]: ...

    def collate(self, examples: list[Any], *, rngs: list[np.random.Generator]) -> Batch: ...

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Any]) -> list[Any]: ...

    def combine(self, row: Mapping[str, Any], predictions: list[Any]) -> str: ...


class Method(ABC):
    """Transforms a model and says, by ``requires_grad``, what of it trains.

    What requires a gradient after ``apply`` is what training may change, and all that is stored: a
    trial is its pretrained backbone, ``apply``, and the stored weights put in by their names.

    Not every method fits every model and task. Where a study has some that do not go together
    (``adaptation.fit``), they have no trials: the method is left out there, the report shows no
    number, and every other trial is made. What is refused, before anything runs, is a run, a task
    or a method that fits none of the others.
    """

    freezes_backbone: ClassVar[bool] = False  # then trials of one method share its states
    trains: ClassVar[bool] = True  # else its entry has no ``training:``
    prompts: ClassVar[bool] = False  # then it has a predictor of its own, in the task's place
    architectures: ClassVar[tuple[str, ...]] = ()  # those it fits; all if it names none
    fits: ClassVar[tuple[str, ...]] = ()  # the kinds of task, likewise
    num_added_tokens: int = 0  # by which each input grows inside the backbone
    num_shots: int = 0  # labelled examples in a prompt
    states_only: ClassVar[bool] = False  # what a backbone generates does not pass what is added

    def misfit(self, backbone: Backbone) -> str | None:
        """Why the method cannot adapt this backbone; None if it can. Looks at no weights."""
        if self.architectures and backbone.architecture not in self.architectures:
            return f"fits {', '.join(self.architectures)}, not {backbone.architecture}"
        return None

    @abstractmethod
    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        """Prepare the model in place; new weights are drawn from ``generator``."""

    def before_training(  # noqa: B027 (most methods have nothing to do)
        self, model: ModelWithHead, batches: Iterable[Batch]
    ) -> None:
        """See every batch that will be trained on or predicted, once, in a fixed order."""

    def predictor(
        self,
        words: Mapping[str, str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        rows: Sequence[Mapping[str, Any]],
        *,
        rng: np.random.Generator,
    ) -> Predictor:
        """What predicts in the task's place, from labelled ``rows`` and without training; ``words``
        are what each label is called.

        Raises ValueError, with the setting's name, for what does not go together.
        """
        raise AssertionError("a method without prompts leaves prediction to the task")

    def frozen(self, model: ModelWithHead, epoch: int) -> Iterable[nn.Parameter]:
        """What of that which ``apply`` lets train does not do so in this epoch, counted from 0; in
        each epoch none that trained in an earlier one."""
        return ()


METHODS = Components[Method]("methods")
