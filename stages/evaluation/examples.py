"""Examples for the report: a few test rows with the prediction of each model."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from stages.core.artifacts import Json
from stages.evaluation.metrics import score
from stages.evaluation.records import TrialRecord, budget_order
from stages.tasks._cells import Row
from stages.tasks._task import Task as Kind

ANY = 3  # number of rows to show from the start of test, which is in random order
DISPUTED = 5  # number of further rows to show: those on which models agree least


def shown_trials(trials: Iterable[TrialRecord]) -> dict[str, TrialRecord]:
    """Returns one trial of each model and baseline: the first with its largest label budget."""
    trial_by_model: dict[str, TrialRecord] = {}
    for trial in trials:
        best = trial_by_model.get(trial.model)
        if best is None or budget_order(trial.label_budget) > budget_order(best.label_budget):
            trial_by_model[trial.model] = trial
    return trial_by_model


def examples(
    kind: Kind,
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


def is_right(kind: Kind, gold: str, prediction: str) -> bool:
    """Whether a prediction is the right answer, or one of several right answers."""
    if kind.right_if is not None:
        return score(kind.right_if, [gold], [prediction]) == 1
    return prediction == gold
