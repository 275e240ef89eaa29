"""The interface of objectives, and what several of them share."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from stages.core.artifacts import Json
from stages.core.components import Components
from stages.models._backbone import Backbone, unsupported
from stages.models._heads import ModelWithHead, gather, labelled
from stages.objectives._cross_entropy import cross_entropy
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

PROMPT_TOKENS = 12  # most tokens of a prompt, including <bos>
Terms = dict[str, tuple[float, Tensor]]  # {term: (its weight, its loss summed over targets)}


class Objective(ABC):
    """Turns rows of packed documents (``text/packing.py``) into a batch (``text/batch.py``) and a
    batch into a loss.

    ``model.backbone`` is pretrained and kept; ``model.head`` holds weights that only the objective
    needs, and is dropped at the end.

    A loss is a sum over targets; the training loop divides it by ``batch.num_targets`` of the whole
    step, so that the size of a micro-batch changes nothing.
    """

    architectures: ClassVar[tuple[str, ...]] = ()  # supported ones; empty means all
    term: ClassVar[str] = "tokens"  # name of the loss of predicted tokens
    trains: ClassVar[bool] = True
    predicts_tokens: ClassVar[bool] = True  # labels are token ids; False for other classes
    has_teacher: ClassVar[bool] = False  # the model's parent is a teacher, not the initial weights
    has_prefix: ClassVar[bool] = False  # a decoder attends to its prefix bidirectionally
    draws_text: ClassVar[bool] = False  # samples of text are drawn at random, not greedily
    compares_documents: bool = False  # each row comes with another row, ``Row.other``

    def __init__(self, vocabulary: Vocabulary, max_tokens: int) -> None:
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        # The model's architecture; set from outside if several are supported.
        self.architecture = next(iter(self.architectures), "")

    def incompatibility(self, backbone: Backbone) -> str | None:
        """Returns why the objective cannot train this backbone, as words that follow the
        objective's name; None if it can. Reads no weights."""
        return unsupported(self.architectures, backbone)

    def head(self, backbone: Backbone) -> nn.Module:
        """The weights that are trained with the backbone, not yet initialised."""
        return nn.Identity()

    def learn_from(self, teacher: Backbone, student: Backbone) -> None:
        """Keeps the frozen teacher and initialises the student from it.

        Raises ValueError if the two are incompatible. The checks of a study call this method on
        models without storage.
        """
        raise AssertionError("only an objective that has_teacher learns from one")

    @abstractmethod
    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        """Returns a batch of rows. Everything random about row i is drawn from ``rngs[i]``. Rows of
        different lengths, and their labels, are padded with ``pad``."""

    def targets(self, labels: Int[Tensor, "..."]) -> Json:
        """Returns the fields of a batch that hold the labels and their number."""
        return {
            "labels": labels,
            "num_targets": {self.term: int((labels != IGNORE_INDEX).sum())},
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        """Returns {term: (its weight, its loss summed over targets)}; by default the cross-entropy
        of the labels, which are tokens."""
        backbone, writes = model.backbone, batch.decoder_input_ids is not None
        states = backbone.decode(batch) if writes else backbone(batch)
        return {self.term: (1.0, token_loss(backbone, states, batch))}

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray | None:
        """Returns the input for a sample of generated text, made from the beginning of a document;
        None for no sample. An objective that ``draws_text`` also gets an empty document."""
        return None

    def for_validation(self) -> "Objective":
        """The objective for validation. Subclasses with settings of their own return one with fixed
        settings, so that models can be compared."""
        return self


def token_loss(backbone: Backbone, states: Tensor, batch: Batch) -> Tensor:
    """Returns the cross-entropy summed over the labels of a batch, with logits only where the batch
    says that labels are."""
    labels = batch.labels
    assert labels is not None
    if batch.target_positions is not None:
        states = gather(states, batch.target_positions)
    elif batch.label_places is not None:
        states, labels = labelled(states, labels, batch.label_places)
    return cross_entropy(backbone.unembed(states), labels)


def tokens_of(rows: list[Row]) -> Json:
    """Returns the fields of a batch that hold the tokens of rows of equal length and the documents
    that they belong to."""
    return {
        "input_ids": torch.from_numpy(np.stack([row.tokens for row in rows])),
        "document_ids": torch.from_numpy(np.stack([row.document_ids for row in rows])),
    }


def neighbours(
    input_ids: Int[Tensor, "B T"], document_ids: Int[Tensor, "B T"]
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Returns the token after and the token before each token of a document; IGNORE_INDEX where
    there is none."""
    same = document_ids[:, 1:] == document_ids[:, :-1]
    after, before = (
        torch.full_like(input_ids, IGNORE_INDEX),
        torch.full_like(input_ids, IGNORE_INDEX),
    )
    after[:, :-1] = input_ids[:, 1:].where(same, IGNORE_INDEX)
    before[:, 1:] = input_ids[:, :-1].where(same, IGNORE_INDEX)
    return after, before


def document_parts(row: Row) -> list[slice]:
    """Returns where in a row each of its documents is."""
    cuts = (np.flatnonzero(np.diff(row.document_ids)) + 1).tolist()
    return [*map(slice, [0, *cuts], [*cuts, len(row.tokens)])]


def first_words(passage: Row, vocabulary: Vocabulary) -> np.ndarray:
    """Returns the whole words among the first PROMPT_TOKENS tokens: the prompt of a decoder."""
    begins = np.flatnonzero(vocabulary.starts_word[passage.tokens[: PROMPT_TOKENS + 1]])
    return passage.tokens[: begins[-1] if len(begins) > 1 else PROMPT_TOKENS]


OBJECTIVES = Components[Objective]("objectives")
