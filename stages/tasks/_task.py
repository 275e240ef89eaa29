"""The interface of tasks: kinds of labelled rows, and how a model learns them.

A task is one public class in ``stages/tasks/NAME.py``. Preparing, scoring and the classical
baselines read tasks without torch, so a task imports torch, and what needs it, inside the methods
that use it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Components, Settings
from stages.tasks._cells import Row
from stages.tasks._kind import Kind
from stages.text.ignored import IGNORE_INDEX

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.models._backbone import Backbone
    from stages.models._heads import ModelWithHead
    from stages.text.batch import Batch
    from stages.text.tokenizer import Tokenizer, Wrapped


@dataclass(frozen=True)
class Example:
    """An encoded example; labels are IGNORE_INDEX where they are unknown or do not count."""

    id: str  # id of the example's row
    tokens: np.ndarray  # int64 [T]
    labels: np.ndarray  # int64 (float32 for numbers): of the text or its tokens, or tokens to write
    pair_start: int | None = None  # start of the second text of a pair
    word_positions: np.ndarray | None = None  # int64: where each uncut word is predicted
    num_words: int = 0
    offsets: np.ndarray | None = None  # int64 [T, 2]: the (begin, end) of each token's characters
    window: int = 0  # index of the example among the examples of its row
    num_cut: int = 0  # number of the row's tokens that are in no example
    weights: np.ndarray | None = None  # float64: of the labels in the loss; None: all 1

    @property
    def key(self) -> str:
        """A key that no other example has."""
        return f"{self.id} {self.window}"


class Predicted(NamedTuple):
    """A prediction, the probability of each label (if the task has any), and the margin (if a
    threshold decides between the prediction and ``otherwise``)."""

    prediction: Any
    scores: dict[str, float] | None = None
    margin: float | None = None
    otherwise: Any = ""  # the prediction below the threshold; "": no answer

    @property
    def probability(self) -> float | None:
        """The probability of the prediction, if labels have probabilities."""
        return None if self.scores is None else self.scores.get(self.prediction)

    def at(self, threshold: float) -> Any:
        """Returns the prediction, or ``otherwise`` if the margin is below the threshold."""
        is_below = self.margin is not None and self.margin < threshold
        return self.otherwise if is_below else self.prediction


class Task(Kind, ABC):
    """A kind of rows that models learn: turns rows into examples, examples into a batch and a batch
    into a loss.

    The constructor's keyword-only parameters are settings of params.yaml. Before ``encode``,
    ``read_by`` tells the task which model reads its inputs, because the position of a word's label
    depends on what a state has read. For a model that was pretrained with a prefix (``has_prefix``)
    the whole input is the prefix, unless the input itself is predicted (``scores_text``).
    """

    has_prefix: bool = False
    is_causal: bool = False  # a state has read its own and earlier tokens only
    read_at: str = ""  # states that a label is predicted from, as shown in the report

    architectures: ClassVar[tuple[str, ...]] = ()  # architectures that the task fits; empty for all
    scores_text: ClassVar[bool] = False  # uses the model's own likelihood and adds no head

    generates: ClassVar[bool] = False  # writes text, for which a model needs its decoder
    max_target_tokens: int  # set if the task generates

    def __init__(self, labels: list[str], tokenizer: Any, max_tokens: int) -> None:
        self.kind: Kind = self  # reads and scores the rows; another task if this writes its answers
        self.labels = labels
        self.index = {label: i for i, label in enumerate(labels)}
        self.tokenizer: Tokenizer = tokenizer
        self.max_tokens = max_tokens

    @classmethod  # noqa: B027 (most settings go together)
    def check(cls, max_tokens: int, **settings: Any) -> None:
        """Raises ValueError for settings of params.yaml that do not fit each other or texts of
        ``max_tokens``. It is called before there is a tokenizer."""

    @classmethod  # noqa: B027 (most states have read what is labelled)
    def check_read(cls, *, is_causal: bool, **settings: Any) -> None:
        """Raises ValueError for settings that predict a label from a state that has not read the
        labelled text. A state has read all tokens or, if ``is_causal``, no later ones."""

    def read_by(self, backbone: "Backbone", *, has_prefix: bool) -> None:
        """Sets the attributes that depend on model and prefix. It is called before ``encode``."""
        self.has_prefix = has_prefix
        self.is_causal = backbone.is_causal and not (has_prefix and not self.scores_text)
        self.read_at = self.states_read(backbone)

    def states_read(self, backbone: "Backbone") -> str:
        """Returns the text of ``read_at`` for this model, a few words."""
        return "one state of the text"

    def take_facts(self, record: Settings) -> None:  # noqa: B027 (most tasks need none)
        """Sets attributes from the facts in ``record``, the ``task.json`` (``facts``)."""

    @abstractmethod
    def head(self, backbone: "Backbone") -> "nn.Module":
        """Returns a head for the states of ``backbone``. The caller initialises its weights.

        Raises the errors of ``check_read``.
        """

    @abstractmethod
    def encode(self, rows: Sequence[Row]) -> list[Example]:
        """Returns the examples of rows in order. A row longer than ``max_tokens`` is cut, or
        becomes several examples (windows).

        Raises ValueError if ``max_tokens`` leaves no room for a text.
        """

    def weighted(self, examples: list[Example]) -> list[Example]:
        """Returns the training examples of a trial with the weights of their labels in the loss.
        Validation examples get no weights, so that validation losses are comparable."""
        return examples

    @abstractmethod
    def loss(self, model: "ModelWithHead", batch: "Batch") -> dict[str, tuple[float, "Tensor"]]:
        """Returns {term: (weight, loss summed over labels)}, as an objective does."""

    @abstractmethod
    def predict(self, model: "ModelWithHead", batch: "Batch", examples: list[Example]) -> list[Any]:
        """Returns a prediction for each example of the batch: the text that is written to a file,
        or a value from which ``combine`` makes this text."""

    def predict_scored(
        self, model: "ModelWithHead", batch: "Batch", examples: list[Example]
    ) -> list[Predicted]:
        """Returns the predictions with scores, if the task has any."""
        return [Predicted(prediction) for prediction in self.predict(model, batch, examples)]

    def combine(self, row: Row, predictions: list[Any]) -> str:
        """Returns the prediction of a row from the predictions of its examples, in order."""
        (prediction,) = predictions
        return prediction

    def margin(self, predictions: list[Any]) -> float | None:
        """Returns by how much the score of a row's prediction exceeds that of no answer, or None if
        a row must have an answer."""
        return None

    def collate(self, examples: list[Example], *, rngs: list[np.random.Generator]) -> "Batch":
        """Returns one padded row per example; nothing is random, so ``rngs`` are not used."""
        from stages.tasks._batches import batch_of

        return batch_of(
            examples,
            pad_id=self.tokenizer.pad_id,
            is_visible=self.has_prefix and not self.scores_text,
            targets=self.targets(examples),
        )

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> "Wrapped":
        """Returns a text, or a pair, with its special tokens, cut to ``max_tokens``. Of a pair, the
        longer text is cut first.

        Raises ValueError if there is no room for a token of each text.
        """
        try:
            return self.tokenizer.wrap_within(self.max_tokens, text, pair)
        except ValueError as error:
            raise ValueError(f"finetune.max_tokens: {self.max_tokens} {error}") from None

    def longest_as_text(self, longest_class: int) -> int:
        """Returns the most tokens that an answer written as text may have. ``longest_class`` is the
        number of tokens of the longest class, or 0 if answers are free text."""
        return longest_class or self.max_tokens

    @abstractmethod
    def targets(self, examples: list[Example]) -> Json:
        """Returns the fields of the batch that hold the targets. Labels of tokens must be padded by
        ``pad``, like the tokens, since on a GPU rows may be wider than their longest text."""


def example_of(id: str, wrapped: "Wrapped", labels: np.ndarray, *, window: int = 0) -> Example:
    """Returns the example of a text or a pair that is ``wrapped`` in its special tokens."""
    return Example(
        id,
        np.array(wrapped.ids),
        labels,
        pair_start=wrapped.pair_start,
        num_cut=wrapped.num_cut,
        window=window,
    )


def balanced(examples: Sequence[Example]) -> list[Example]:
    """Returns the examples with the weight n / (K m) for each label, where m of the n labels are of
    the label's class and K classes occur. So all classes that occur have the same total weight, and
    the mean weight is 1 (scikit-learn's ``class_weight="balanced"``)."""
    labels = np.concatenate([example.labels for example in examples])
    counted = labels[labels != IGNORE_INDEX]
    if not len(counted):  # all labelled words lie beyond max_tokens
        return list(examples)
    classes, counts = np.unique(counted, return_counts=True)
    weights = len(counted) / (len(classes) * counts)
    # An ignored label gets the weight of the first class, which has no effect: its loss is 0.
    places = (np.searchsorted(classes, example.labels) for example in examples)
    return [replace(e, weights=weights[at]) for e, at in zip(examples, places, strict=True)]


class Tasks(Components[Task]):
    """A mapping from the names of tasks to tasks for rows alone: ``TASKS["tagging"]``."""

    def __getitem__(self, name: str) -> Task:
        """Returns the task with default settings; raises ValueError for an unknown name."""
        return _for_rows(self.find(name, where="kind"))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def values(self) -> list[Task]:
        return [self[name] for name in self]

    def __contains__(self, name: object) -> bool:
        return name in self.names()


TASKS = Tasks("tasks")


@cache
def _for_rows(cls: type[Task]) -> Task:
    return cls.for_rows()
