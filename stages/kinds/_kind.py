"""What a kind of labelled rows says about itself.

A kind is one public class in ``stages/kinds/NAME.py``. A task of that kind is one class in
``stages/tasks/`` with ``kind = ThatClass()``; several tasks may share a kind. Nothing here needs
torch: preparing, scoring and the classical baselines do without.
"""

import inspect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
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


class Kind:
    """Columns, answers, metrics and text form of rows of one kind.

    A row is a JSON object with an ``id`` and the columns ``inputs``, ``optional`` (where the data
    has them) and ``target``. A test row has no target until it is scored, unless the target is one
    of the inputs (language modelling).

    The defaults describe rows of texts whose answer is a text. The keyword-only parameters of the
    constructor, each with a default, say how cells are read; they are settings of every source
    that reads tables (``tag_scheme``).
    """

    inputs: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()  # further inputs
    target: ClassVar[str]
    lists: ClassVar[tuple[str, ...]] = ()  # columns that hold a list of texts, not one text
    gathered: ClassVar[tuple[str, ...]] = ()  # those of them that data may have as several columns

    # Names of evaluation/metrics.py, or metrics of this kind alone. The first is the default, the
    # next is shown beside it.
    metrics: ClassVar[tuple[str | Metric, ...]]
    right_if: ClassVar[str | None] = None  # the metric that is 1 where one answer is right, if any

    has_classes: ClassVar[bool] = False  # answers consist of labels that train has, not free text
    stratified: ClassVar[bool] = False  # a row has one label, and train is sampled by it

    form: ClassVar[type[TextForm] | None] = None  # as text to text, if the kind has such a form

    @property
    def name(self) -> str:
        """That of its file."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that a row must have."""
        return (*self.inputs, *(() if self.is_own_answer else (self.target,)))

    @property
    def is_own_answer(self) -> bool:
        """The text itself is predicted: a prediction is a number."""
        return self.target in self.inputs

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(each if isinstance(each, str) else each.name for each in self.metrics)

    def compared_by(self, settings: Settings) -> tuple[str, str]:
        """The metric of a task with these ``settings``, and the one that is shown beside it."""
        first, *others = self.metric_names
        second = others[0] if others else first
        chosen = settings.get("metric", first)
        return chosen, (first if chosen == second else second)

    # What sources read --------------------------------------------------------------------------

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        """A cell as ``column`` of the row; ``row`` holds the columns before it.

        Raises ValueError, which begins with ``place``, for what cannot be one.
        """
        return list_of(value, place) if column in self.lists else text_of(value, place)

    def checked(self, row: Json, place: str) -> Json | None:
        """The whole row as it is kept; None if it is left out.

        Raises ValueError, which begins with ``place``, for columns that do not fit each other.
        """
        return row

    # What prepare_task asks ---------------------------------------------------------------------

    def check_rows(self, rows: Iterable[tuple[str, Row]], settings: Settings) -> None:
        """Raises ValueError for (id, row) pairs that do not go with the task's ``settings``; it
        begins with the setting's name."""

    def check_labels(self, labels: list[str], settings: Settings) -> None:
        """The same for the labels that train has."""

    def prepared(self, row: Json) -> Json:
        """The row as it is written."""
        return row

    def facts(self, rows: Sequence[Row]) -> Json:
        """What a task needs to know of the train ``rows`` besides their labels; ``prepare_task``
        writes it to ``task.json``, ``Task.take_facts`` gets it."""
        return {}

    def labels_of(self, row: Row) -> list[str]:
        """The classes that a row is an example of; none if its answer is free text."""
        return []

    def same_input(self, row: Row) -> str:
        """Equal for rows with the same input up to case and white space; labels play no part."""
        values = self.inputs_of(row).values()
        parts = (part for v in values for part in ([v] if isinstance(v, str) else v))
        return "\0".join(map(folded, parts))

    def split_key(self, row: Row) -> str:
        """Equal for rows that must be in the same split."""
        return self.same_input(row)

    def group_key(self, row: Row) -> str:
        """Equal for rows that are drawn into the same split, where a source has no splits: they
        have a text in common, by which one tells the answer of the other."""
        return self.split_key(row)

    # What a prediction is made from and compared with -------------------------------------------

    def inputs_of(self, row: Row) -> Json:
        """The columns that a prediction is made from."""
        return {column: row[column] for column in (*self.inputs, *self.optional) if column in row}

    def texts(self, row: Row) -> list[str]:
        """The inputs as texts, lists joined by blanks."""
        return [v if isinstance(v, str) else " ".join(v) for v in self.inputs_of(row).values()]

    def answer(self, row: Row) -> str:
        """The right answer, written as a prediction is: what metrics compare."""
        return row[self.target]

    def answer_parts(self, row: Row) -> list[str]:
        """The smallest answers that the right one consists of (the tags of words)."""
        return [self.answer(row)]

    def repeated(self, part: str, row: Row) -> str:
        """The prediction for ``row`` that consists of nothing but ``part``."""
        return part

    # What the report shows ----------------------------------------------------------------------

    def right_answers(self, answer: str) -> list[str]:
        """The predictions that are right; the first is shown."""
        return [answer]

    def shown(self, row: Row, prediction: str) -> str:
        """A prediction as people read it."""
        return prediction

    # As text ------------------------------------------------------------------------------------

    def as_text(self, key: str, record: Settings) -> TextForm:
        """The text form of the task ``key``, from what ``prepare_task`` wrote (``task.json``)."""
        assert self.form is not None, f"{self.name} has no text form"
        return self.form((*self.inputs, *self.optional), key, record)


class Kinds(Components[Kind]):
    """The kinds by name, as a mapping is: ``KINDS["tagging"]``."""

    def __getitem__(self, name: str) -> Kind:
        """The kind with its default settings; raises ValueError for an unknown name."""
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
    """How cells are read: the keyword-only parameters of a kind's constructor."""
    parameters = inspect.signature(cls, eval_str=True).parameters
    return {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


# Label budgets -----------------------------------------------------------------------------------


def rows_in_budget(budget: int | str, rows: int, *, task: str) -> int:
    """How many of train's ``rows`` a label budget is; raises ValueError if there are fewer."""
    number = rows if budget == "all" else int(budget)
    if number > rows:
        raise ValueError(f"finetune.label_budgets: {number} labels, but tasks.{task} has {rows}")
    return number


def most_rows(budgets: Iterable[int | str], rows: int, *, task: str) -> int:
    """How many of train's ``rows`` the largest of some label budgets is; raises ValueError if one
    has more."""
    return max(rows_in_budget(budget, rows, task=task) for budget in budgets)


def labelled_rows(
    rows: Sequence[Row],
    budget: int | str,
    kind: Kind,
    *,
    pretrain_seed: int,
    finetune_seed: int,
    task: str,
) -> list[Row]:
    """The ``rows`` of train that a trial learns from, in the order of ``rows``.

    A fresh sample for each pair of seeds (Bouthillier et al. 2021: the draw of the data varies
    results as much as initial weights do), stratified where the kind is. The pair decides alone:
    all runs of one seed and all baselines have the same rows, and those of a smaller budget are
    among those of a larger one. ``all`` is every row, for every pair.

    Raises ValueError if the budget is more than the rows.
    """
    number = rows_in_budget(budget, len(rows), task=task)
    rng = stream(pretrain_seed, "labelled rows", finetune_seed)
    if kind.stratified:
        order = stratified_order([kind.labels_of(row)[0] for row in rows], rng)
    else:
        order = rng.permutation(len(rows)).tolist()
    return [rows[i] for i in sorted(order[:number])]


def stratified_order(labels: list[str], rng: np.random.Generator) -> list[int]:
    """A random order in which each class's share of every prefix is its share of the whole, to
    within one example, and the first rows are one of each class.

    The i-th of the n examples of a class stands at the position i / n; ties are broken at random.
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
    rows: int,
    *,
    pretrain_seeds: Sequence[int],
    finetune_seeds: Sequence[int],
    task: str,
) -> list[tuple[int, int]]:
    """The pairs (pretraining seed, fine-tuning seed) whose ``labelled_rows`` differ: all pairs, or
    the first where the budget is every row of train.

    Raises ValueError as ``labelled_rows`` does.
    """
    pairs = list(product(pretrain_seeds, finetune_seeds))
    return pairs if rows_in_budget(budget, rows, task=task) < rows else pairs[:1]
