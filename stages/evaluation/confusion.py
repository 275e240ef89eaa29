"""Which class is taken for which: of every run and method, over all of its trials."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stages.kinds._kind import Kind
from stages.kinds._tags import OUTSIDE

Pairs = Counter[tuple[str, str]]  # (right class, predicted class) -> how often


@dataclass(frozen=True, kw_only=True)
class ConfusionRecord:
    """How often ``prediction`` was given where ``answer`` is right, in so many trials. What is
    counted are rows or, of tagging, words."""

    run: str
    method: str
    label_budget: str
    num_trials: int
    answer: str
    prediction: str
    number: int


def has_confusion(kind: Kind) -> bool:
    """Whether a row, or each of its words, has one class: not any number of labels."""
    return kind.has_classes and (kind.stratified or kind.target in kind.lists)


def classes(kind: Kind, answer: str) -> list[str]:
    """What is counted of an answer or prediction: its class or, of each word, the type of span (a
    tag without B- and I-)."""
    if kind.target not in kind.lists:
        return [answer]
    return [tag if tag == OUTSIDE else _type(tag) for tag in answer.split(" ")]


def _type(tag: str) -> str:
    return tag[2:] if tag[:2] in ("B-", "I-") and tag[2:] else tag


def pairs(kind: Kind, gold: Mapping[str, str], predicted: Mapping[str, str]) -> Pairs:
    """Of one trial; the keys of both are the ids of rows."""
    found: Pairs = Counter()
    for row, answer in gold.items():
        found.update(zip(classes(kind, answer), classes(kind, predicted[row]), strict=True))
    return found


Place = tuple[str, str, str]  # run, method, label budget


def records(found: Iterable[tuple[Place, Pairs]]) -> Iterator[ConfusionRecord]:
    """The sums over trials, in the order of the places, then of the classes."""
    sums: dict[Place, Pairs] = {}
    trials: Counter[Place] = Counter()
    for place, counts in found:
        sums.setdefault(place, Counter()).update(counts)
        trials[place] += 1
    for place, counts in sums.items():
        run, method, label_budget = place
        for (answer, prediction), number in sorted(counts.items()):
            yield ConfusionRecord(
                run=run,
                method=method,
                label_budget=label_budget,
                num_trials=trials[place],
                answer=answer,
                prediction=prediction,
                number=number,
            )
