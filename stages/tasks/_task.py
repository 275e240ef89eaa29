"""What a task is: labelled examples with a loss and a prediction rule."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stages.core.artifacts import Json
from stages.core.components import Components, Settings
from stages.kinds._cells import Row
from stages.kinds._kind import Kind
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.text.batch import PADDING, Batch, pad
from stages.text.tokenizer import TaskTokenizer, Wrapped


@dataclass(frozen=True)
class Example:
    """An encoded example; labels are IGNORE_INDEX where they are not known or do not count."""

    id: str  # of the row that it is of
    tokens: np.ndarray  # int64 [T]
    labels: np.ndarray  # int64: one for the text, one for each token, or the tokens to be written
    pair_start: int | None = None  # where the second text of a pair begins
    word_positions: np.ndarray | None = None  # int64: where each word that was not cut is read
    num_words: int = 0
    offsets: np.ndarray | None = None  # int64 [T, 2]: the context's characters of each token
    window: int = 0  # which of the row's, if a row is more than one example
    num_cut: int = 0  # tokens of the row that are in no example

    @property
    def key(self) -> str:
        """No two examples have the same."""
        return f"{self.id} {self.window}"


class Predicted(NamedTuple):
    """A prediction, the probability of each label where a task gives them, and the margin where
    there may be no answer."""

    prediction: Any
    scores: dict[str, float] | None = None
    margin: float | None = None

    @property
    def probability(self) -> float | None:
        """That of the prediction, if the labels have any."""
        return None if self.scores is None else self.scores.get(self.prediction)

    def at(self, threshold: float) -> Any:
        """The prediction, or "" if its margin is below the threshold."""
        return "" if self.margin is not None and self.margin < threshold else self.prediction


class Task(ABC):
    """Turns labelled rows into examples, examples into a batch and a batch into a loss.

    A task is told which model reads its inputs (``read_by``) before it encodes: where the label of
    a word stands depends on what a state has read. To a model that was pretrained with a prefix
    (``has_prefix``) the whole input is one, unless the input itself is what is predicted
    (``scores_text``).
    """

    kind: Kind  # of its rows; that of its own name if there is one
    has_prefix: bool = False
    is_causal: bool = False  # a state has read its own and earlier tokens only
    read_at: str = ""  # which states a label is predicted from, as the report names them

    architectures: ClassVar[tuple[str, ...]] = ()  # those it fits; all if it names none
    scores_text: ClassVar[bool] = False  # by the model's own likelihood: it adds no head

    # Settings whose entry may be a list of values: each trial keeps the best on validation.
    tried: ClassVar[tuple[str, ...]] = ()
    tried_by_head: ClassVar[tuple[str, ...]] = ()  # those of them that ``encode`` does not use

    generates: ClassVar[bool] = False  # text, for which a model needs its decoder
    max_target_tokens: int  # of one that generates

    def __init__(self, labels: list[str], tokenizer: TaskTokenizer, max_tokens: int) -> None:
        self.labels = labels
        self.index = {label: i for i, label in enumerate(labels)}
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens

    @classmethod  # noqa: B027 (most settings go together)
    def check(cls, max_tokens: int, **settings: Any) -> None:
        """Raises ValueError for settings of params.yaml that do not go together, or not with
        texts of ``max_tokens``; before there is a tokenizer."""

    @classmethod  # noqa: B027 (most states have read what is labelled)
    def check_read(cls, *, is_causal: bool, **settings: Any) -> None:
        """Raises ValueError for settings with which the state that is read has not read what is
        labelled, where states have read earlier tokens only (``is_causal``) or all."""

    @classmethod
    def values(cls, setting: str, value: Any, backbone: Backbone) -> Sequence[Any]:
        """Returns the values that ``value`` of a setting in ``tried`` stands for in this model:
        itself, or what ``auto`` means."""
        return [value]

    def read_by(self, backbone: Backbone, *, has_prefix: bool) -> None:
        """Sets what depends on the model whose states are read; called before ``encode``."""
        self.has_prefix = has_prefix
        self.is_causal = backbone.is_causal and not (has_prefix and not self.scores_text)
        self.read_at = self.states_read(backbone)

    def states_read(self, backbone: Backbone) -> str:
        """Returns what ``read_at`` is for this model, in a few words."""
        return "one state of the text"

    def take_facts(self, record: Settings) -> None:  # noqa: B027 (most tasks need none)
        """Take from ``record`` (``task.json``) what ``Kind.facts`` found in the train rows."""

    @abstractmethod
    def head(self, backbone: Backbone) -> nn.Module:
        """A head for the states of ``backbone``, its weights not yet drawn.

        Raises ValueError as ``check_read``.
        """

    @abstractmethod
    def encode(self, rows: Sequence[Row]) -> list[Example]:
        """Examples of rows, in their order; what is longer than ``max_tokens`` is cut, or is
        more than one example (windows).

        Raises ValueError if ``max_tokens`` leaves no room for a text.
        """

    @abstractmethod
    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Tensor]]:
        """{term: (weight, loss summed over labels)}, as an objective's."""

    @abstractmethod
    def flops(self, model: ModelWithHead, batch: Batch) -> int:
        """Floating-point operations of ``loss``, forward."""

    def frozen_flops(self, batch: Batch) -> int:
        """Those of what no backward pass follows: a task has no teacher."""
        return 0

    @abstractmethod
    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[Any]:
        """A prediction for each example of the batch: as it is written to a file, unless
        ``combine`` makes that of it."""

    def predict_scored(
        self, model: ModelWithHead, batch: Batch, examples: list[Example]
    ) -> list[Predicted]:
        """The same, with scores if the task has any."""
        return [Predicted(prediction) for prediction in self.predict(model, batch, examples)]

    def columns(self, row: Row, prediction: str) -> Json:
        """A row's prediction as it is shown to people: columns of a JSON object."""
        return {"prediction": prediction}

    def combine(self, row: Row, predictions: list[Any]) -> str:
        """The prediction of a row from those of its examples, in their order."""
        (prediction,) = predictions
        return prediction

    def margin(self, predictions: list[Any]) -> float | None:
        """By how much the prediction of a row is better than none, from those of its examples; None
        if a row must have an answer."""
        return None

    def collate(self, examples: list[Example], *, rngs: list[np.random.Generator]) -> Batch:
        """One padded row per example; nothing about a labelled example is random."""
        ones = [np.ones(len(example.tokens)) for example in examples]
        segments = [
            np.arange(len(e.tokens)) >= (len(e.tokens) if e.pair_start is None else e.pair_start)
            for e in examples
        ]
        input_ids = pad([example.tokens for example in examples], self.tokenizer.pad_id)
        has_prefix = self.has_prefix and not self.scores_text
        has_pairs = any(example.pair_start is not None for example in examples)
        return Batch(
            input_ids=input_ids,
            document_ids=pad(ones, PADDING),
            segment_ids=pad(segments, 0) if has_pairs else None,
            visible=torch.ones_like(input_ids, dtype=torch.bool) if has_prefix else None,
            **self.targets(examples),
            example_ids=[example.key for example in examples],
        )

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> Wrapped:
        """A text, or a pair, between its special tokens, cut to ``max_tokens``, longest first.

        Raises ValueError if there is no room for a token of each text.
        """
        try:
            return self.tokenizer.wrap_within(self.max_tokens, text, pair)
        except ValueError as error:
            raise ValueError(f"finetune.max_tokens: {self.max_tokens} {error}") from None

    def longest_as_text(self, longest_class: int) -> int:
        """How many tokens an answer may take where it is written as text; the longest class takes
        ``longest_class``, 0 where answers are free text."""
        return longest_class or self.max_tokens

    @abstractmethod
    def targets(self, examples: list[Example]) -> Json:
        """The fields of the batch that say what is to be predicted."""


TASKS = Components[Task]("tasks")
