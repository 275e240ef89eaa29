"""Tables beside the scores of a group of trials: what one of them predicted for the test rows, and
which class all of them took for which. They are made when MLflow lacks them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.evaluation.examples import is_right
from stages.evaluation.records import (
    CLASSICAL,
    BaselinePredictionRecord,
    PredictionRecord,
    read,
)
from stages.kinds._kind import KINDS, Kind
from stages.tracking.records import Row

MAX_ROWS = 1_000  # of the predictions
MAX_LETTERS = 500  # of an input
MAX_CLASSES = 50  # of a matrix; of more classes the pairs are listed
CORNER = "true / predicted"
Table = list[Json]  # rows with equal columns


def tables(trial: Row, confused: Sequence[Row]) -> dict[str, Callable[[], Table]]:
    """Of a group of trials, the first of which is ``trial``, the tables that the files allow;
    ``confused`` are the rows of confusion.csv on the group."""
    task = trial["task"]
    found: dict[str, Callable[[], Table]] = {}
    inputs = paths.examples(task) / "test.jsonl"
    if all(path.exists() for path in (_file(trial), inputs, paths.test_labels(task))):
        kind = KINDS[read_json(inputs.with_name("task.json"))["kind"]]
        if not kind.is_own_answer:
            found["predictions"] = partial(predictions, trial, kind)
    if confused:
        found["confusion"] = partial(confusion, confused)
    return found


def predictions(trial: Row, kind: Kind) -> Table:
    """A row for each test row, as the report shows it. Of answers that are right or wrong the wrong
    ones come first, those with the highest probability before."""
    gold = {row["id"]: kind.answer(row) for row in read_jsonl(paths.test_labels(trial["task"]))}
    given = _predicted(trial)
    judged = kind.has_classes or kind.right_if is not None
    found: Table = []
    for row in read_jsonl(paths.examples(trial["task"]) / "test.jsonl"):
        if row["id"] not in given:  # these files are those of another state of the study
            return []
        own, answer = given[row["id"]], gold[row["id"]]
        texts = dict(zip(kind.inputs_of(row), kind.texts(row), strict=True))
        shown: Json = {key: text[:MAX_LETTERS] for key, text in texts.items()}
        # First what MLflow compares of several runs, unless it is told otherwise.
        shown["prediction"] = kind.shown(row, own.prediction)
        shown["answer"] = kind.shown(row, kind.right_answers(answer)[0])
        shown["probability"] = own.probability
        if judged:
            shown["right"] = is_right(kind, answer, own.prediction)
        found.append(shown)
    if judged:
        found.sort(key=lambda row: (row["right"], -(row["probability"] or 0)))
    if all(row["probability"] is None for row in found):
        for row in found:
            del row["probability"]
    return found[:MAX_ROWS]


def _file(trial: Row) -> Path:
    task, run = trial["task"], trial["run"]
    is_baseline = trial["method"] == CLASSICAL
    folder = paths.BASELINES / task if is_baseline else paths.FINETUNED / task / run
    return folder / "predictions.csv.gz"


def _predicted(trial: Row) -> dict[str, PredictionRecord]:
    """By the id of the row."""
    is_baseline = trial["method"] == CLASSICAL
    keys = ("method", "label_budget", "finetune_seed")
    keys += ("run", "pretrain_seed") if is_baseline else ()
    record = BaselinePredictionRecord if is_baseline else PredictionRecord
    return {
        own.id: own
        for own in read(_file(trial), record)
        if all(str(getattr(own, key)) == trial[key] for key in keys)
    }


def confusion(confused: Iterable[Row]) -> Table:
    """Over all trials: a row for each right class, a column for each predicted one; of many classes
    the pairs, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in confused:
        counts[row["answer"], row["prediction"]] += int(row["number"])
    classes = sorted({each for pair in counts for each in pair})
    if len(classes) > MAX_CLASSES:
        pairs = counts.most_common(MAX_ROWS)
        return [{"answer": a, "prediction": p, "number": n} for (a, p), n in pairs]
    return [
        {CORNER: answer} | {each: counts[answer, each] for each in classes}
        for answer in sorted({answer for answer, _ in counts})
    ]
