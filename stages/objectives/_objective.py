"""What an objective is, and how logits become a loss."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from stages.core.components import Components
from stages.models._backbone import Backbone, unsupported
from stages.models._heads import ModelWithHead
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

PROMPT_TOKENS = 12  # at most, <bos> among them
Terms = dict[str, tuple[float, Tensor]]  # {term: (its weight, its loss summed over targets)}


class Objective(ABC):
    """Turns rows of packed documents into a batch and a batch into a loss.

    ``model.backbone`` is what is pretrained and kept; ``model.head`` holds what an objective needs
    beside it and drops in the end.

    A loss is a sum over targets; the training loop divides by ``batch.num_targets`` of the whole
    step, so that the size of a micro-batch changes nothing.
    """

    architectures: ClassVar[tuple[str, ...]] = ()  # those it supports; all if it lists none
    trains: ClassVar[bool] = True
    has_teacher: ClassVar[bool] = False  # then the run's parent teaches and is not gone on from
    has_prefix: ClassVar[bool] = False  # then a decoder sees what comes before in both directions
    draws_text: ClassVar[bool] = False  # then a sample is drawn, and else the likeliest text
    compares_documents: bool = False  # then each row comes with another, ``Row.other``

    def __init__(self, vocabulary: Vocabulary, max_tokens: int) -> None:
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        # The model's; set from outside where several are supported.
        self.architecture = next(iter(self.architectures), "")

    def incompatibility(self, backbone: Backbone) -> str | None:
        """Why the objective cannot train this backbone, to stand behind its name; None if it can.
        Looks at no weights."""
        return unsupported(self.architectures, backbone)

    def head(self, backbone: Backbone) -> nn.Module:
        """What is trained beside the backbone, its weights not yet drawn."""
        return nn.Identity()

    def learn_from(self, teacher: Backbone, student: Backbone) -> None:
        """Keep the teacher, frozen, and begin the student from it.

        Raises ValueError if the two do not go together; check_params calls it for that, on models
        without storage.
        """
        raise AssertionError("only an objective that has_teacher learns from one")

    @abstractmethod
    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        """A batch of rows; ``rngs[i]`` draws what is random about row i."""

    @abstractmethod
    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        """The terms of the loss."""

    @abstractmethod
    def flops(self, model: ModelWithHead, batch: Batch) -> int:
        """Floating-point operations of ``loss``, forward, of what a backward pass follows."""

    def frozen_flops(self, batch: Batch) -> int:
        """Those of what no backward pass follows: a teacher's."""
        return 0

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray | None:
        """What the model reads to show what it writes, of the beginning of a document; None if it
        writes nothing. One that ``draws_text`` is also given a document without text."""
        return None

    def for_validation(self) -> "Objective":
        """The objective whose loss runs with other settings of this one are compared by."""
        return self


def first_words(passage: Row, vocabulary: Vocabulary) -> np.ndarray:
    """What a decoder goes on from."""
    begins = np.flatnonzero(vocabulary.starts_word[passage.tokens[: PROMPT_TOKENS + 1]])
    return passage.tokens[: begins[-1] if len(begins) > 1 else PROMPT_TOKENS]


def cross_entropy(logits: Float[Tensor, "*N V"], labels: Int[Tensor, "*N"]) -> Float[Tensor, ""]:
    """The sum over labels, in float32, those equal to IGNORE_INDEX left out."""
    return F.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )


OBJECTIVES = Components[Objective]("objectives")
