"""What models get wrong: confusion matrices, summed by cell, and examples of test rows with the
prediction of each model."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stages.core.artifacts import Json
from stages.core.keys import CellKey
from stages.evaluation.metrics import score
from stages.evaluation.records import TrialRecord, budget_order
from stages.tasks._cells import Row
from stages.tasks._task import Task

ANY = 3  # number of rows to show from the start of test, which is in random order
DISPUTED = 5  # number of further rows to show: those on which models agree least

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


def has_confusion(kind: Task) -> bool:
    """Whether each row, or each word of a row, has exactly one class."""
    return kind.has_classes and (kind.stratified or kind.target in kind.lists)


def classes(kind: Task, answer: str) -> list[str]:
    """Returns the classes in an answer or prediction: a single class or, for tagging, each word's
    type of span (its tag without B- or I-)."""
    if kind.target not in kind.lists:
        return [answer]
    return [tag[2:] if tag[:2] in ("B-", "I-") and tag[2:] else tag for tag in answer.split(" ")]


def pairs(kind: Task, gold: Mapping[str, str], predicted: Mapping[str, str]) -> Pairs:
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


# Examples ------------------------------------------------------------------------------------


def shown_trials(trials: Iterable[TrialRecord]) -> dict[str, TrialRecord]:
    """Returns one trial of each model and baseline: the first with its largest label budget."""
    trial_by_model: dict[str, TrialRecord] = {}
    for trial in trials:
        best = trial_by_model.get(trial.model)
        if best is None or budget_order(trial.label_budget) > budget_order(best.label_budget):
            trial_by_model[trial.model] = trial
    return trial_by_model


def examples(
    kind: Task,
    rows: Sequence[Row],
    gold: Mapping[str, str],
    predictions: Mapping[str, Mapping[str, str]],
) -> list[Json]:
    """Returns the rows to show; ``predictions`` are by model and then by the row's id.

    The first ``ANY`` are a random sample. The others are the rows on which predictions are most
    evenly divided; ties go to the earlier row.
    """
    votes = {row["id"]: Counter(one[row["id"]] for one in predictions.values()) for row in rows}
    disputed = sorted(rows[ANY:], key=lambda row: sum(n * n for n in votes[row["id"]].values()))
    disputed = [row for row in disputed[:DISPUTED] if len(votes[row["id"]]) > 1]
    return [
        {
            "id": row["id"],
            "chosen": chosen,
            "input": dict(zip(kind.inputs_of(row), kind.texts(row), strict=True)),
            "answer": kind.shown(row, kind.right_answers(gold[row["id"]])[0]),
            "predictions": [
                {
                    "prediction": kind.shown(row, prediction),
                    "right": is_right(kind, gold[row["id"]], prediction),
                    "models": [
                        model for model, one in predictions.items() if one[row["id"]] == prediction
                    ],
                }
                for prediction, _ in votes[row["id"]].most_common()
            ],
        }
        for chosen, some in (("any", rows[:ANY]), ("disputed", disputed))
        for row in some
    ]


def is_right(kind: Task, gold: str, prediction: str) -> bool:
    """Whether a prediction is the right answer, or one of several right answers."""
    if kind.right_if is not None:
        return score(kind.right_if, [gold], [prediction]) == 1
    return prediction == gold
