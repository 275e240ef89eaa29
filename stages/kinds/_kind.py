"""The interface of a kind of labelled rows.

A kind is one public class in ``stages/kinds/NAME.py``. A task of that kind is one class in
``stages/tasks/`` with ``kind = ThatClass()``; several tasks may share a kind. Nothing here imports
torch, because preparing, scoring and the classical baselines run without it.
"""

import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Components, Settings
from stages.core.seeding import stream
from stages.kinds._cells import Row, list_of, text_of
from stages.kinds._metric import Metric
from stages.kinds._plain_text import folded
from stages.kinds._text_form import TextForm

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


class Kind:
    """The columns, answers, metrics and text form of one kind of rows.

    A row is a JSON object with an ``id`` and the columns ``inputs``, ``optional`` (where the data
    has them) and ``target``. A test row has no target until it is scored, unless the target is one
    of the inputs (language modelling).

    By default the inputs and the answer of a row are texts. The constructor's keyword-only
    parameters, each with a default, determine how cells are read (``tag_scheme``); every source
    that reads tables has them as settings.
    """

    inputs: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()  # further inputs
    target: ClassVar[str]
    lists: ClassVar[tuple[str, ...]] = ()  # columns that hold a list of texts, not one text
    gathered: ClassVar[tuple[str, ...]] = ()  # columns that several columns of the data may fill

    # Names from evaluation/metrics.py, or metrics of this kind alone. The first is the default; the
    # report shows the second, too.
    metrics: ClassVar[tuple[str | Metric, ...]]
    right_if: ClassVar[str | None] = None  # a metric that is 1 for right answers and for no others

    has_classes: ClassVar[bool] = False  # answers consist of labels of train, not free text
    stratified: ClassVar[bool] = False  # rows have one label; samples are stratified by it

    form: ClassVar[type[TextForm] | None] = None  # the kind as text to text, if that is possible

    @property
    def name(self) -> str:
        """The kind's name, which is that of its file."""
        return type(self).__module__.rpartition(".")[2]

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
        """Returns the predictions that are right for this ``Kind.answer``; the report shows the
        first."""
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


class Kinds(Components[Kind]):
    """A mapping from the names of kinds to kinds: ``KINDS["tagging"]``."""

    def __getitem__(self, name: str) -> Kind:
        """Returns the kind with its default settings; raises ValueError for an unknown name."""
        return _built(self.find(name, where="kind"))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def values(self) -> list[Kind]:
        return [self[name] for name in self]

    def __contains__(self, name: object) -> bool:
        return name in self.names()


KINDS = Kinds("kinds")


@cache
def _built(cls: type[Kind]) -> Kind:
    return cls()


@cache
def settings_of(cls: type[Kind]) -> dict[str, inspect.Parameter]:
    """Returns the settings for reading cells: the keyword-only parameters of a kind's
    constructor."""
    parameters = inspect.signature(cls, eval_str=True).parameters
    return {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


# Label budgets -----------------------------------------------------------------------------------


def rows_in_budget(budget: int | str, rows: int, *, task: str) -> int:
    """Returns the number of rows in a label budget; raises ValueError if it is above ``rows``, the
    size of train."""
    number = rows if budget == "all" else int(budget)
    if number > rows:
        raise ValueError(f"finetune.label_budgets: {number} labels, but tasks.{task} has {rows}")
    return number


def most_rows(budgets: Iterable[int | str], rows: int, *, task: str) -> int:
    """Returns the number of rows in the largest label budget; raises ValueError if it is above
    ``rows``, the size of train."""
    return max(rows_in_budget(budget, rows, task=task) for budget in budgets)


def of_draw(rows: Iterable[Row], finetune_seed: int) -> list[Row]:
    """Returns the rows of a split for trials with this seed. If each fine-tuning seed draws its own
    splits, these are the rows with the seed in their ``draws``; otherwise they are all rows."""
    return [row for row in rows if finetune_seed in row.get("draws", (finetune_seed,))]


def labelled_rows(
    rows: Sequence[Row],
    budget: int | str,
    kind: Kind,
    *,
    pretrain_seed: int,
    finetune_seed: int,
    task: str,
) -> list[Row]:
    """Returns the ``rows`` of train that a trial learns from, in the order of ``rows``.

    Each pair of seeds has its own random sample (Bouthillier et al. 2021: sampling the data varies
    results as much as initial weights do), stratified if the kind is. For one pair of seeds, all
    runs and baselines have the same rows, and a smaller budget's rows are a subset of a larger
    budget's. The budget ``all`` is every row, for every pair. If each fine-tuning seed draws its
    own splits, only the rows in this seed's train split count.

    Raises ValueError if there are fewer rows than the budget.
    """
    rows = of_draw(rows, finetune_seed)
    number = rows_in_budget(budget, len(rows), task=task)
    rng = stream(pretrain_seed, "labelled rows", finetune_seed)
    if kind.stratified:
        order = stratified_order([kind.labels_of(row)[0] for row in rows], rng)
    else:
        order = rng.permutation(len(rows)).tolist()
    return [rows[i] for i in sorted(order[:number])]


def stratified_order(labels: list[str], rng: np.random.Generator) -> list[int]:
    """Returns a random order of rows with these ``labels``. Every prefix has the class shares of
    all rows, to within one row, and the order begins with one row of each class.

    Row i = 0, 1, ... of the n rows of a class has the position i / n; ties are broken at random.
    """
    seen: dict[str, int] = defaultdict(int)
    totals = Counter(labels)
    places = []
    for tie, index in enumerate(rng.permutation(len(labels)).tolist()):
        label = labels[index]
        places.append((seen[label] / totals[label], tie, index))
        seen[label] += 1
    return [index for _, _, index in sorted(places)]


def distinct_draws(
    budget: int | str,
    *,
    pretrain_seeds: Sequence[int],
    finetune_seeds: Sequence[int],
    about: Json,
    task: str,
    trains: bool = True,
) -> list[tuple[int, int]]:
    """Returns the pairs (pretraining seed, fine-tuning seed) whose ``labelled_rows`` differ.

    These are all pairs, ordered by pretraining seed. If the budget is every row of train, or if
    nothing is trained on the rows (not ``trains``), only the splits can differ: the result is then
    one pair for each seed that draws splits, or a single pair if no seed does. ``about`` is the
    task's task.json.

    Raises the errors of ``labelled_rows``.
    """
    pairs, rows = list(product(pretrain_seeds, finetune_seeds)), about["num_examples"]["train"]
    has_choice = rows_in_budget(budget, rows, task=task) < rows
    return pairs if trains and has_choice else pairs[: len(about["split_seeds"]) or 1]
