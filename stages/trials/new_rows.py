"""Predictions of a kept trial of a run or of a baseline for new rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch

from stages.baselines._baseline import Baseline
from stages.core.artifacts import Json
from stages.core.params import Compute
from stages.models._heads import ModelWithHead
from stages.tasks._task import Task as Kind
from stages.training.device import Device, resolve
from stages.trials.kept import KeptTrial, predictor
from stages.trials.prediction import predict
from stages.trials.runner import DECIMALS
from stages.trials.setup import TrialSetup
from stages.trials.validation import decided

ROWS_AT_ONCE = 512  # rows in memory


class NewRow(NamedTuple):
    """The columns that identify a row in the output, and the row as the task reads it."""

    shown: Json
    row: Json


def device_for(kept: KeptTrial, name: str) -> Device:
    """Returns the device ``name`` with the trial's precision and the default number of threads.

    Raises ValueError if the machine has no such device.
    """
    threads = torch.get_num_threads()
    settings = {"device": name, "precision": kept.precision, "compile": False}
    compute = Compute(**settings, threads=threads, trial_threads=threads)  # type: ignore[arg-type]
    return resolve(compute, threads=threads)


@dataclass
class Abstention:
    """Withholds predictions whose probability is below ``min_confidence``, and counts all rows and
    those without a prediction."""

    min_confidence: float = 0.0  # 0: every row has a prediction
    num_rows: int = 0
    num_unanswered: int = 0

    def columns(self, predicted: Json, probability: float | None) -> Json:
        """Returns the columns of a prediction, emptied if the prediction is withheld.

        Raises ValueError for a prediction without probability, unless ``min_confidence`` is 0.
        """
        self.num_rows += 1
        if not self.min_confidence:
            return predicted
        if probability is None:
            raise ValueError("--min-confidence: the predictions of this trial have no probability")
        if round(probability, DECIMALS) >= self.min_confidence:  # as in coverage.csv
            return predicted
        self.num_unanswered += 1
        return dict.fromkeys(predicted, "")


def predictions(
    kept: KeptTrial,
    setup: TrialSetup,
    model: ModelWithHead,
    rows: Iterable[NewRow],
    device: Device,
    abstention: Abstention,
) -> Iterator[Json]:
    """Yields each row's ``shown`` columns with its prediction and the probability of each label, if
    the task has probabilities. No two rows may have the same ``id``."""
    by, waiting = predictor(kept, setup), iter(rows)
    while some := [*islice(waiting, ROWS_AT_ONCE)]:
        given = [row.row for row in some]
        answers = decided(predict(by, model, given, by.encode(given), device), kept.threshold)
        for (shown, row), answer in zip(some, answers, strict=True):
            predicted = setup.task.kind.predicted_columns(row, answer.prediction)
            columns = shown | abstention.columns(predicted, answer.probability)
            if answer.scores is not None:
                scores = answer.scores.items()
                columns["scores"] = {label: round(score, DECIMALS) for label, score in scores}
            yield columns


def baseline_predictions(
    baseline: Baseline, kind: Kind, rows: Iterable[NewRow], abstention: Abstention
) -> Iterator[Json]:
    """Yields each row's ``shown`` columns with its prediction, and the probability of the
    prediction if the baseline gives one."""
    waiting = iter(rows)
    while some := [*islice(waiting, ROWS_AT_ONCE)]:
        given = [row.row for row in some]
        answers = zip(baseline.predict(given), baseline.probabilities(given), strict=True)
        for (shown, row), (answer, probability) in zip(some, answers, strict=True):
            columns = shown | abstention.columns(kind.predicted_columns(row, answer), probability)
            if probability is not None:
                columns["probability"] = round(probability, DECIMALS)
            yield columns
