"""A kind of labelled rows: their columns, answers, metrics and form as text, without torch."""

import inspect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import Row, list_of, text_of
from stages.tasks._metric import Metric
from stages.tasks._plain_text import folded
from stages.tasks._text_form import TextForm

K = TypeVar("K", bound="Kind")
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SPLIT_NAMES: dict[Split, str] = {
    "train": r"(?<![a-z])train",
    "validation": r"(?<![a-z])(dev|valid|val(?![a-z])|trial|testa)",
    "test": r"(?<![a-z])(test|eval)",
}


def split_named(name: str) -> Split | None:
    """Returns the split that a file name or a cell indicates, such as validation for ``dev``."""
    matching = (split for split, pattern in SPLIT_NAMES.items() if re.search(pattern, name.lower()))
    return next(matching, None)


@dataclass(frozen=True, kw_only=True)
class CellSettings:
    """The settings of a source that say how the cells of rows are read; here none. Every source
    that reads tables has them."""


class Kind:
    """The columns, answers, metrics and text form of one kind of rows; tasks are its subclasses.

    A row is a JSON object with an ``id`` and the columns ``inputs``, ``optional`` (where the data
    has them) and ``target``. A test row has no target until it is scored, unless the target is one
    of the inputs (language modelling). By default the inputs and the answer of a row are texts.
    """

    name: ClassVar[str] = ""  # that of the task's file
    cells: Any = CellSettings()
    inputs: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()  # further inputs
    target: ClassVar[str]
    lists: ClassVar[tuple[str, ...]] = ()  # columns that hold a list of texts, not one text
    gathered: ClassVar[tuple[str, ...]] = ()  # columns that several columns of the data may fill

    # Names from evaluation/metrics.py, or metrics of this task alone. The first is the default; the
    # report shows the second, too.
    metrics: ClassVar[tuple[str | Metric, ...]]
    right_if: ClassVar[str | None] = None  # a metric that is 1 for right answers and for no others

    has_classes: ClassVar[bool] = False  # answers consist of labels of train, not free text
    stratified: ClassVar[bool] = False  # rows have one label; samples are stratified by it

    form: ClassVar[type[TextForm] | None] = None  # as text to text, if that is possible

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]

    @classmethod
    def for_rows(cls: type[K], **cells: Any) -> K:
        """Returns the kind for reading and scoring rows, without labels and a tokenizer; ``cells``
        are settings of a source."""
        kind = cls.__new__(cls)
        kind.cells = replace(cls.cells, **cells)
        return kind

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a row must have."""
        return (*self.inputs, *(() if self.is_own_answer else (self.target,)))

    @property
    def is_own_answer(self) -> bool:
        """Whether the target is an input (language modelling); a prediction is then a number."""
        return self.target in self.inputs

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(each if isinstance(each, str) else each.name for each in self.metrics)

    def compared_by(self, settings: Settings) -> tuple[str, str]:
        """Returns the metric by which a task with these ``settings`` is compared, and the metric
        that is shown next to it."""
        first, *others = self.metric_names
        second = others[0] if others else first
        chosen = settings.get("metric", first)
        return chosen, (first if chosen == second else second)

    # Called by sources --------------------------------------------------------------------------

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        """Returns the value of ``column`` from a cell; ``row`` has the columns read so far.

        Raises ValueError for an invalid cell; the message begins with ``place``.
        """
        if column in self.gathered and isinstance(value, Mapping):
            value = [*value.values()]  # the cells of several columns
        return list_of(value, place) if column in self.lists else text_of(value, place)

    def checked(self, row: Json, place: str) -> Json | None:
        """Returns the whole row as it is stored, or None to leave it out.

        Raises ValueError for columns that do not fit each other; the message begins with ``place``.
        """
        return row

    # Called by prepare_task ---------------------------------------------------------------------

    def check_rows(self, rows: Iterable[tuple[str, Row]], settings: Settings) -> None:
        """Raises ValueError for (id, row) pairs that do not fit the task's ``settings``; the
        message begins with the setting's name."""

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        """Raises ValueError, as ``check_rows`` does, for train labels that do not fit the
        ``settings``."""

    def prepared(self, row: Json) -> Json:
        """Returns the row in the form that ``prepare_task`` writes."""
        return row

    def facts(self, rows: Sequence[Row]) -> Json:
        """Returns the facts about the train ``rows`` that a task needs besides the labels.

        ``prepare_task`` writes the facts to ``task.json``, and ``Task.take_facts`` reads them.
        """
        return {}

    def labels_of(self, row: Row) -> list[str]:
        """Returns the classes of a row; none if its answer is free text."""
        return []

    def without_labels(self, row: Json, labels: Collection[str]) -> Json | None:
        """Returns the row without these ``labels``, or None to leave it out."""
        return row if set(labels).isdisjoint(self.labels_of(row)) else None

    def same_input(self, row: Row) -> str:
        """Returns a key that is equal for rows whose inputs differ at most in case and white space.
        Labels do not count."""
        values = self.inputs_of(row).values()
        parts = (part for v in values for part in ([v] if isinstance(v, str) else v))
        return "\0".join(map(folded, parts))

    def split_key(self, row: Row) -> str:
        """Returns a key; rows with the same key must not be in different splits."""
        return self.same_input(row)

    def group_key(self, row: Row) -> str:
        """Returns a key. Where splits are drawn, rows with the same key go to one split: they share
        a text, so the answer to one of them could give away another's."""
        return self.split_key(row)

    # Inputs and right answers -------------------------------------------------------------------

    def inputs_of(self, row: Row) -> Json:
        """Returns the columns that a prediction is made from."""
        return {column: row[column] for column in (*self.inputs, *self.optional) if column in row}

    def texts(self, row: Row) -> list[str]:
        """Returns the inputs as texts; the items of a list are joined by blanks."""
        return [v if isinstance(v, str) else " ".join(v) for v in self.inputs_of(row).values()]

    def answer(self, row: Row) -> str:
        """Returns the right answer in the form that metrics compare predictions with."""
        return row[self.target]

    def answer_parts(self, row: Row) -> list[str]:
        """Returns the smallest parts of the right answer, such as the tags of words."""
        return [self.answer(row)]

    def repeated(self, part: str, row: Row) -> str:
        """Returns the prediction for ``row`` in which every part is ``part``."""
        return part

    # For the report -----------------------------------------------------------------------------

    def right_answers(self, answer: str) -> list[str]:
        """Returns the predictions that are right for this ``answer``, the one to show first."""
        return [answer]

    def shown(self, row: Row, prediction: str) -> str:
        """Returns a prediction in readable form."""
        return prediction

    def predicted_columns(self, row: Row, prediction: str) -> Json:
        """Returns the columns to write for the prediction of a new row."""
        return {"prediction": prediction}

    # As text ------------------------------------------------------------------------------------

    def as_text(self, key: str, record: Settings) -> TextForm:
        """Returns the text form of the task ``key``; ``record`` is the task's ``task.json``."""
        assert self.form is not None, f"{self.name} has no text form"
        return self.form((*self.inputs, *self.optional), key, record)


def settings_of(kind: Kind) -> dict[str, inspect.Parameter]:
    """Returns the settings for reading the cells of rows of this kind."""
    return _parameters(type(kind.cells))


@cache
def _parameters(settings: type[CellSettings]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(settings, eval_str=True).parameters)
