"""Confusion matrices: how often rows of one class are predicted as another, summed by cell."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stages.core.keys import CellKey
from stages.tasks._task import Task as Kind

Pairs = Counter[tuple[str, str]]  # (right class, predicted class) -> how often


@dataclass(frozen=True, kw_only=True)
class ConfusionRecord:
    """An entry of a confusion matrix: how often ``prediction`` was given where ``answer`` is right,
    summed over ``num_trials`` trials. ``number`` counts rows or, for tagging, words."""

    model: str
    method: str
    label_budget: str
    num_trials: int
    answer: str
    prediction: str
    number: int


def has_confusion(kind: Kind) -> bool:
    """Whether each row, or each word of a row, has exactly one class."""
    return kind.has_classes and (kind.stratified or kind.target in kind.lists)


def classes(kind: Kind, answer: str) -> list[str]:
    """Returns the classes in an answer or prediction: a single class or, for tagging, each word's
    type of span (its tag without B- or I-)."""
    if kind.target not in kind.lists:
        return [answer]
    return [tag[2:] if tag[:2] in ("B-", "I-") and tag[2:] else tag for tag in answer.split(" ")]


def pairs(kind: Kind, gold: Mapping[str, str], predicted: Mapping[str, str]) -> Pairs:
    """Counts the pairs of classes in one trial. ``gold`` and ``predicted`` are by row id."""
    counts: Pairs = Counter()
    for row, answer in gold.items():
        counts.update(zip(classes(kind, answer), classes(kind, predicted[row]), strict=True))
    return counts


def records(pairs_by_trial: Iterable[tuple[CellKey, Pairs]]) -> Iterator[ConfusionRecord]:
    """Yields, cell by cell, the counts summed over the cell's trials, sorted by class."""
    trials: dict[CellKey, list[Pairs]] = {}
    for cell, counts in pairs_by_trial:
        trials.setdefault(cell, []).append(counts)
    for cell, of_cell in trials.items():
        total = sum(of_cell, Pairs())
        for (answer, prediction), number in sorted(total.items()):
            yield ConfusionRecord(
                model=cell.model,
                method=cell.method,
                label_budget=cell.label_budget,
                num_trials=len(of_cell),
                answer=answer,
                prediction=prediction,
                number=number,
            )
