"""The contract of tasks. A task is a kind of labelled rows and how a model learns it: one public
class in ``stages/tasks/NAME.py``.

Sources, ``prepare_task``, ``evaluate`` and the classical baselines read and score rows without
torch, so a task imports torch, and what needs it, inside the methods that use it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from stages.core.artifacts import Json
from stages.core.components import Components, Settings
from stages.tasks._cells import Row, folded, is_empty, list_of, text_of
from stages.tasks._metric import Metric
from stages.text.ignored import IGNORE_INDEX

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.models._backbone import Backbone
    from stages.models._heads import ModelWithHead
    from stages.tasks._text_form import TextForm
    from stages.text.batch import Batch
    from stages.text.tokenizer import Tokenizer, Wrapped
else:  # types that tasks import from here, since these modules need torch
    Tensor = Backbone = ModelWithHead = TextForm = Batch = Tokenizer = Wrapped = Any
    nn = SimpleNamespace(Module=Any)
Losses = dict[str, tuple[float, Tensor]]

T = TypeVar("T", bound="Task")
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SPLIT_NAMES: dict[Split, str] = {
    "train": r"(?<![a-z])train",
    "validation": r"(?<![a-z])(dev|valid|val(?![a-z])|trial|testa)",
    "test": r"(?<![a-z])(test|eval)",
}


def split_named(name: str) -> Split | None:
    """Returns the split that a file name or a cell indicates, such as validation for ``dev``."""
    return next((s for s, pattern in SPLIT_NAMES.items() if re.search(pattern, name.lower())), None)


def split_in(column: str, cell: object) -> Split | None:
    """Returns the split that a cell indicates by itself, or as a truth value in a column with the
    name of a split: test for ``True`` in ``is_test``, whose other rows are of train."""
    value, named = str(cell), split_named(column)
    if named and value.lower() in ("false", "0"):
        return "test" if named == "train" else "train"
    return named if named and value.lower() in ("true", "1") else split_named(value)


@dataclass(frozen=True)
class Example:
    """An encoded example; labels are IGNORE_INDEX where they are unknown or do not count."""

    id: str  # id of the example's row
    tokens: np.ndarray  # int64 [T]
    labels: np.ndarray  # of the text, of its tokens, or tokens to write; float32 if numbers
    pair_start: int | None = None  # start of the second text of a pair
    word_positions: np.ndarray | None = None  # int64: where each uncut word is predicted
    num_words: int = 0
    offsets: np.ndarray | None = None  # int64 [T, 2]: the (begin, end) of each token's characters
    window: int = 0  # index of the example among the examples of its row
    num_cut: int = 0  # number of the row's tokens that are in no example
    weights: np.ndarray | None = None  # float64: of the labels in the loss; None: all 1
    most_written: int = 0  # tokens of the longest answer to the row, if answers are written
    choices: tuple["Example", ...] = ()  # one example each; ``tokens`` joins theirs

    @property
    def key(self) -> str:
        """A key that no other example has."""
        return f"{self.id} {self.window}"


class Predicted(NamedTuple):
    """A prediction."""

    prediction: Any
    scores: dict[str, float] | None = None  # the probability of each label, if there are labels
    margin: float | None = None  # if a threshold decides between the prediction and ``otherwise``
    otherwise: Any = ""  # the prediction below the threshold; "": no answer

    @property
    def probability(self) -> float | None:
        """The probability of the prediction, if labels have probabilities."""
        return None if self.scores is None else self.scores.get(self.prediction)

    def at(self, threshold: float) -> Any:
        """Returns the prediction, or ``otherwise`` if the margin is below the threshold."""
        is_below = self.margin is not None and self.margin < threshold
        return self.otherwise if is_below else self.prediction


class CellSetting(NamedTuple):
    """A setting of sources of records that says how the cells of a kind's rows are read."""

    annotation: Any  # the type of its values
    default: Any


class Task(ABC):
    """A kind of labelled rows, and how a model learns it: rows become examples, examples a batch
    and a batch a loss.

    A row is a JSON object with an ``id`` and the columns ``inputs``, ``optional`` (where the data
    has them) and ``target``. A test row has no target until it is scored, unless ``is_own_answer``.
    By default the inputs and the answer of a row are texts.

    The constructor's keyword-only parameters are settings of params.yaml. ``for_rows`` makes a task
    without them, which reads and scores rows. ``read_by`` is called before ``encode``.
    """

    name: ClassVar[str] = ""  # that of the task's file
    cell_settings: ClassVar[dict[str, CellSetting]] = {}  # by their names
    cells: SimpleNamespace  # the values of these settings
    inputs: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()  # further inputs
    target: ClassVar[str]
    lists: ClassVar[tuple[str, ...]] = ()  # columns that hold a list of texts, not one text
    gathered: ClassVar[tuple[str, ...]] = ()  # columns that several columns of the data may fill
    shared: ClassVar[str] = ""  # an input; rows that share it must not be in different splits

    # Names from evaluation/metrics.py, or metrics of this task alone; the first is the default.
    metrics: ClassVar[tuple[str | Metric, ...]]
    right_if: ClassVar[str | None] = None  # a metric that is 1 for right answers and for no others

    has_classes: ClassVar[bool] = False  # answers consist of labels of train, not free text
    labels_tokens: ClassVar[bool] = False  # labels are of tokens, and are padded like these
    term: ClassVar[str] = ""  # of the loss; by default the task's name
    stratified: ClassVar[bool] = False  # rows have one label; samples are stratified by it
    has_text_form: ClassVar[bool] = False  # ``as_text`` is possible

    architectures: ClassVar[tuple[str, ...]] = ()  # architectures that the task fits; empty for all
    is_own_answer: ClassVar[bool] = False  # the target is an input, a prediction is a number
    scores_text: ClassVar[bool] = False  # uses the model's own likelihood and adds no head
    generates: ClassVar[bool] = False  # writes text, for which a model needs its decoder
    max_target_tokens: int  # set if the task generates

    record: Settings = {}  # the ``task.json``
    class_weights: str = "none"
    reads_ends: bool = False  # of a text that is too long, instead of its beginning
    has_prefix: bool = False
    is_causal: bool = False  # a state has read its own and earlier tokens only
    read_at: str = "one state of the text"  # what labels are predicted from, for the report

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]
        cls.cells = SimpleNamespace(**{k: each.default for k, each in cls.cell_settings.items()})

    def __init__(self, labels: list[str], tokenizer: Any, max_tokens: int) -> None:
        """``labels`` are the classes of the train rows as texts, sorted as texts."""
        self.kind: Task = self  # reads and scores the rows; another task if this writes its answers
        self.labels = labels
        self.index = {label: i for i, label in enumerate(labels)}
        self.tokenizer: Tokenizer = tokenizer
        self.max_tokens = max_tokens

    @classmethod
    def for_rows(cls: type[T], **cells: Any) -> T:
        """Returns the task without labels and a tokenizer; ``cells`` are settings of a source."""
        kind = cls.__new__(cls)
        kind.cells = SimpleNamespace(**vars(cls.cells) | cells)
        return kind

    @classmethod  # noqa: B027 (most settings go together)
    def check(cls, max_tokens: int, **settings: Any) -> None:
        """Raises ValueError for settings that do not fit each other or texts of ``max_tokens``."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a row must have."""
        return tuple(dict.fromkeys((*self.inputs, self.target)))

    @property
    def several(self) -> set[str]:
        """The columns that several columns of the data may fill; those of texts are joined."""
        return {*self.inputs, *self.optional} - {*self.lists} | {*self.gathered}

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(each if isinstance(each, str) else each.name for each in self.metrics)

    def compared_by(self, settings: Settings) -> tuple[str, str]:
        """Returns the metric by which a task with these ``settings`` is compared, and another that
        is shown next to it."""
        first, *others = self.metric_names
        second = others[0] if others else first
        chosen = settings.get("metric", first)
        return chosen, (first if chosen == second else second)

    # Rows from a source to the files of prepare_task ----------------------------------------------

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        """Returns the value of ``column`` from a cell; ``row`` has the columns read so far. Raises
        ValueError for an invalid cell; the message begins with ``place``."""
        if column in self.gathered and isinstance(value, Mapping):
            value = [*value.values()]  # the cells of several columns
        elif isinstance(value, Mapping) and column in self.several:
            filled = (each for each in value.values() if not is_empty(each))
            value = "\n".join(text_of(each, place).strip() for each in filled)
        return list_of(value, place) if column in self.lists else text_of(value, place)

    def checked(self, row: Json, place: str) -> Json | None:
        """Returns the whole row as it is stored, or None to leave it out. Raises ValueError, as
        ``read`` does, for columns that do not fit each other."""
        return row

    def check_rows(self, rows: Iterable[tuple[str, Row]], settings: Settings) -> None:  # noqa: B027
        """Raises ValueError, with the setting, for (id, row) pairs that do not fit ``settings``."""

    def check_labels(self, labels: list[str], settings: Settings) -> None:  # noqa: B027
        """Raises ValueError, with the setting, for train labels that do not fit ``settings``."""

    def prepared(self, row: Json) -> Json:
        """Returns the row in the form that ``prepare_task`` writes."""
        return row

    def facts(self, rows: Sequence[Row]) -> Json:
        """Returns what a task needs to know of the train ``rows`` besides their labels. Later it
        finds them in ``record``."""
        return {}

    # Keys of rows ---------------------------------------------------------------------------------

    def same_input(self, row: Row) -> str:
        """Returns a key that is equal for inputs that differ at most in case and white space."""
        values = self.inputs_of(row).values()
        parts = (part for v in values for part in ([v] if isinstance(v, str) else v))
        return "\0".join(map(folded, parts))

    def split_key(self, row: Row) -> str:
        """Returns a key; rows with the same key must not be in different splits."""
        return folded(row[self.shared]) if self.shared else self.same_input(row)

    def group_key(self, row: Row) -> str:
        """Returns a key; rows with the same key are drawn into one split, since the answer to one
        of them could give away another's."""
        return self.split_key(row)

    # Inputs, answers and predictions of rows ------------------------------------------------------

    def inputs_of(self, row: Row) -> Json:
        """Returns the columns that a prediction is made from."""
        return {column: row[column] for column in (*self.inputs, *self.optional) if column in row}

    def texts(self, row: Row) -> list[str]:
        """Returns the inputs as texts; the items of a list are joined by blanks."""
        return [v if isinstance(v, str) else " ".join(v) for v in self.inputs_of(row).values()]

    def labels_of(self, row: Row) -> list[str]:
        """Returns the classes of a row; none if its answer is free text."""
        value = row[self.target] if self.has_classes else []
        return [value] if isinstance(value, str) else value

    def without_labels(self, row: Json, labels: Collection[str]) -> Json | None:
        """Returns the row without these ``labels``, or None to leave it out."""
        return row if set(labels).isdisjoint(self.labels_of(row)) else None

    def answer(self, row: Row) -> str:
        """Returns the right answer in the form that metrics compare predictions with."""
        return row[self.target]

    def answer_parts(self, row: Row) -> list[str]:
        """Returns the smallest parts of the right answer, such as the tags of words."""
        return self.labels_of(row) if self.has_classes else [self.answer(row)]

    def repeated(self, part: str, row: Row) -> str:
        """Returns the prediction for ``row`` in which every part is ``part``."""
        return part

    def right_answers(self, answer: str) -> list[str]:
        """Returns the predictions that are right for this ``answer``, the one to show first."""
        return [answer]

    def shown(self, row: Row, prediction: str) -> str:
        """Returns a prediction in readable form."""
        return prediction

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        """Returns the columns to write for the prediction of a new row."""
        return {self.target if self.has_classes else "prediction": prediction}

    def as_text(self, key: str, record: Settings) -> TextForm:
        """Returns the text form of the task ``key``; ``record`` is the task's ``task.json``."""
        from stages.tasks._text_form import TextForm

        assert self.has_text_form, f"{self.name} has no text form"
        return TextForm(self, key, record)

    def words_of(self, labels: Sequence[str], settings: Settings) -> dict[str, str]:
        """Returns the text of each class in a written answer (``label_words``)."""
        from stages.tasks._text_form import label_words

        return label_words(labels, settings.get("verbalisers", ()))

    def named_texts(self, row: Row) -> dict[str, str]:
        """Returns the texts of the inputs by their names in the text form."""
        return dict(zip(self.inputs_of(row), self.texts(row), strict=True))

    def written(self, row: Row, form: TextForm) -> str:
        """Returns the right answer as text."""
        return self.answer(row)

    def meaning(self, row: Row, text: str, form: TextForm) -> str:
        """Returns the prediction that a written text means, in the form that metrics compare."""
        return text

    def longest_as_text(self, longest_class: int, row: Row | None = None) -> int:
        """Returns the most tokens of a written answer, to any row or to this one; the longest class
        has ``longest_class``."""
        return longest_class or self.max_tokens

    # Learning and predicting ----------------------------------------------------------------------

    @classmethod  # noqa: B027 (most states have read what is labelled)
    def check_read(cls, *, is_causal: bool, **settings: Any) -> None:
        """Raises ValueError for settings that predict from a state that has not read the text."""

    def read_by(self, backbone: Backbone, *, has_prefix: bool) -> None:
        """Sets the attributes that depend on what a state has read. For a model that was pretrained
        with a prefix the whole input is the prefix, unless the input itself is predicted."""
        self.has_prefix = has_prefix
        self.is_causal = backbone.is_causal and not (has_prefix and not self.scores_text)

    def head(self, backbone: Backbone) -> nn.Module:
        """Returns an uninitialised head for the states of ``backbone``; by default none, since a
        backbone itself has the logits of the vocabulary. Raises the errors of ``check_read``."""
        from torch import nn

        return nn.Identity()

    @abstractmethod
    def encode(self, rows: Sequence[Row]) -> list[Example]:
        """Returns the examples of rows in order; a row of more than ``max_tokens`` is cut, or makes
        several (windows). Raises ValueError if ``max_tokens`` leaves no room for a text."""

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> Wrapped:
        """Returns ``wrap_within`` ``max_tokens``, and raises its errors."""
        return self.tokenizer.wrap_within(self.max_tokens, text, pair, ends=self.reads_ends)

    def weighted(self, examples: list[Example]) -> list[Example]:
        """Returns the training examples of a trial with the weights of their labels in the loss.

        With ``class_weights: balanced`` the weight is n / (K m), if m of the n labels are of the
        label's class and K classes occur (scikit-learn's ``class_weight="balanced"``). Validation
        examples get no weights, so that validation losses are comparable.
        """
        if self.class_weights != "balanced":
            return examples
        labels = np.concatenate([example.labels for example in examples])
        counted = labels[labels != IGNORE_INDEX]
        if not len(counted):  # all labelled words lie beyond max_tokens
            return examples
        classes, counts = np.unique(counted, return_counts=True)
        weights = len(counted) / (len(classes) * counts)
        # An ignored label gets the weight of the first class, which has no effect: its loss is 0.
        places = (np.searchsorted(classes, example.labels) for example in examples)
        return [replace(e, weights=weights[at]) for e, at in zip(examples, places, strict=True)]

    def collate(self, examples: list[Example], *, rngs: list[np.random.Generator]) -> Batch:
        """Returns one padded row per example; nothing is random, so ``rngs`` are not used."""
        import torch

        from stages.text.batch import PADDING, Batch, pad

        input_ids = pad([example.tokens for example in examples], self.tokenizer.pad_id)
        lengths = [len(example.tokens) for example in examples]
        segments = None
        if any(example.pair_start is not None for example in examples):
            pairs = [(n, e.pair_start) for n, e in zip(lengths, examples, strict=True)]
            segments = pad([np.arange(n) >= (n if at is None else at) for n, at in pairs], 0)
        is_visible = self.has_prefix and not self.scores_text
        return Batch(
            input_ids=input_ids,
            document_ids=pad([np.ones(length) for length in lengths], PADDING),
            segment_ids=segments,
            visible=torch.ones_like(input_ids, dtype=torch.bool) if is_visible else None,
            **self.targets(examples),
        )

    def targets(self, examples: list[Example]) -> Json:
        """Returns the fields of the batch that hold the targets: the labels, their weights in the
        loss (padded with 0) and the number of those that count for the loss's ``term``."""
        import torch
        import torch.nn.functional as F

        from stages.text.batch import pad

        own = [example.labels for example in examples]
        is_padded = self.labels_tokens
        labels = pad(own, IGNORE_INDEX) if is_padded else torch.from_numpy(np.concatenate(own))
        known = [torch.from_numpy(e.weights).float() for e in examples if e.weights is not None]
        weights = [F.pad(some, (0, labels[0].numel() - len(some))) for some in known]
        return {
            "labels": labels,
            "label_weights": torch.stack(weights) if weights else None,
            "num_targets": {self.term or self.name: int((labels != IGNORE_INDEX).sum())},
        }

    def outputs(self, model: ModelWithHead, batch: Batch) -> Float[Tensor, "*N C"]:
        """Returns the logits of the classes for each label."""
        return model.head(model.backbone(batch))

    def loss(self, model: ModelWithHead, batch: Batch) -> Losses:
        """Returns {term: (weight, loss summed over labels)}, as an objective does; by default the
        cross-entropy of ``outputs``."""
        logits = self.outputs(model, batch)
        return {self.name: (1.0, cross_entropy(logits, batch.labels, batch.label_weights))}

    @abstractmethod
    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[Any]:
        """Returns for each example of the batch a ``Predicted``, or only its prediction: a text, or
        a value from which ``combine`` makes it."""

    def combine(self, row: Row, predictions: list[Any]) -> str | Predicted:
        """Returns the prediction of a row from the predictions of its examples, in order."""
        (prediction,) = predictions
        return prediction


def example_of(row: Row, wrapped: Wrapped, labels: np.ndarray, **others: Any) -> Example:
    """Returns the example of a text or a pair that is ``wrapped`` in its special tokens."""
    tokens, pair_start, num_cut = np.array(wrapped.ids), wrapped.pair_start, wrapped.num_cut
    return Example(row["id"], tokens, labels, pair_start=pair_start, num_cut=num_cut, **others)


def cross_entropy(
    logits: Float[Tensor, "*N C"],
    labels: Int[Tensor, "*N"] | None,
    weights: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, ""]:
    """Returns the sum of the labels' losses, each times its weight if ``weights`` are given."""
    import torch.nn.functional as F

    from stages.models._heads import at_least_float32

    assert labels is not None
    pairs = at_least_float32(logits).flatten(0, -2), labels.flatten()
    if weights is None:
        return F.cross_entropy(*pairs, reduction="sum", ignore_index=IGNORE_INDEX)
    losses = F.cross_entropy(*pairs, reduction="none", ignore_index=IGNORE_INDEX)
    return (losses * weights.flatten()).sum()


class Tasks(Components[Task]):
    """The tasks by their names; ``TASKS["tagging"]`` reads and scores rows, and learns nothing."""

    def __getitem__(self, name: str) -> Task:
        """Returns the task with default settings; raises ValueError for an unknown name."""
        return self.find(name, where="kind").for_rows()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def values(self) -> list[Task]:
        return [self[name] for name in self]


TASKS = Tasks("tasks")
