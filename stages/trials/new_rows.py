"""Predictions of a kept trial of a model or of a baseline for new rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch

from stages.baselines._baseline import Baseline
from stages.core.artifacts import Json
from stages.core.params import Compute
from stages.methods._method import PromptMethod
from stages.models._heads import ModelWithHead
from stages.tasks._task import Task
from stages.training.device import Device, resolve
from stages.trials.kept import KeptTrial
from stages.trials.new_files import NewRow
from stages.trials.prediction import predict
from stages.trials.runner import DECIMALS
from stages.trials.setup import TrialSetup
from stages.trials.validation import decided

ROWS_AT_ONCE = 512  # rows in memory


# Predicts rows: a prediction of each, its probability and that of each label, if there are any.
Predict = Callable[[list[Json]], Iterable[tuple[str, float | None, Mapping[str, float] | None]]]


class NewPrediction(NamedTuple):
    """The prediction for a row of a file: as text and as ``columns`` of a row. Both are empty if it
    is withheld, and the columns are missing if the row lacks an input."""

    row: NewRow
    text: str
    columns: Json
    probability: float | None = None
    scores: Json | None = None  # the probability of each label


def device_for(kept: KeptTrial, name: str) -> Device:
    """Returns the device ``name`` with the trial's precision and the default number of threads.

    Raises ValueError if the machine has no such device.
    """
    settings = {"device": name, "precision": kept.precision, "compile": False}
    return resolve(Compute.model_validate(settings), threads=torch.get_num_threads())


@dataclass
class Abstention:
    """Withholds predictions whose probability is below ``min_confidence``, and counts the rows that
    are predicted, those whose prediction is withheld, and those that lack an input."""

    min_confidence: float = 0.0  # 0: every row has a prediction
    num_rows: int = 0
    num_unanswered: int = 0
    num_empty: int = 0

    def withholds(self, probability: float | None) -> bool:
        """Whether a prediction of this probability is withheld.

        Raises ValueError for a prediction without probability, unless ``min_confidence`` is 0.
        """
        self.num_rows += 1
        if not self.min_confidence:
            return False
        if probability is None:
            raise ValueError("--min-confidence: the predictions of this trial have no probability")
        withheld = round(probability, DECIMALS) < self.min_confidence  # as in coverage.csv
        self.num_unanswered += withheld
        return withheld


def by_trial(kept: KeptTrial, setup: TrialSetup, model: ModelWithHead, device: Device) -> Predict:
    predictor, method = setup.task, kept.method_component
    if isinstance(method, PromptMethod):  # with the shots of the trial
        train = setup.rows("train", seed=kept.finetune_seed)
        predictor = setup.prompts(method, kept.key, train)

    def predicted(rows: list[Json]) -> Iterator[tuple[str, float | None, Json | None]]:
        answers = predict(predictor, model, rows, predictor.encode(rows), device)
        for answer in decided(answers, kept.threshold):
            yield answer.prediction, answer.probability, answer.scores

    return predicted


def by_baseline(baseline: Baseline) -> Predict:
    return lambda rows: zip(
        baseline.predict(rows), baseline.probabilities(rows), [None] * len(rows), strict=True
    )


def predictions(
    predicted: Predict, kind: Task, rows: Iterable[NewRow], abstention: Abstention
) -> Iterator[NewPrediction]:
    """Yields the prediction of each row. No two rows may have the same ``id``."""
    waiting = iter(rows)
    while some := [*islice(waiting, ROWS_AT_ONCE)]:
        whole = [row.row for row in some if row.row is not None]
        answers = iter(predicted(whole) if whole else ())
        for new in some:
            if new.row is None:
                abstention.num_empty += 1
                yield NewPrediction(new, "", {})
                continue
            text, probability, scores = next(answers)
            columns = kind.predicted_columns(new.row, text)
            if abstention.withholds(probability):
                text, columns = "", dict.fromkeys(columns, "")
            if probability is not None:
                probability = round(probability, DECIMALS)
            rounded = scores and {label: round(score, DECIMALS) for label, score in scores.items()}
            yield NewPrediction(new, text, columns, probability, rounded)
