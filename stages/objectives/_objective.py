"""What an objective is, and how logits become a loss."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

Terms = dict[str, tuple[float, Tensor]]  # {term: (its weight, its loss summed over targets)}


class Objective(ABC):
    """Turns rows of packed documents into a batch and a batch into a loss.

    A loss is a sum over targets; the training loop divides by ``batch.num_targets`` of the whole
    step, so that the size of a micro-batch changes nothing.
    """

    architectures: ClassVar[tuple[str, ...]]  # those it fits
    trains: ClassVar[bool] = True

    def __init__(self, vocabulary: Vocabulary, max_tokens: int) -> None:
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens

    @abstractmethod
    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        """A batch of rows; ``rngs[i]`` draws what is random about row i."""

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> Terms:
        """The terms of the loss."""

    @abstractmethod
    def flops(self, model: Any, batch: Batch) -> int:
        """Floating-point operations of ``loss``, forward."""

    def for_validation(self) -> "Objective":
        """The objective whose loss runs with other settings of this one are compared by."""
        return self


def cross_entropy(logits: Float[Tensor, "*N V"], labels: Int[Tensor, "*N"]) -> Float[Tensor, ""]:
    """The sum over labels, in float32, those equal to IGNORE_INDEX left out."""
    return F.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
