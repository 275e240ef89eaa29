"""Predictions of a kept trial of a run or of a baseline for new rows."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import torch

from stages.baselines._baseline import Baseline
from stages.core.artifacts import Json
from stages.core.params import Compute
from stages.kinds._kind import Kind
from stages.models._heads import ModelWithHead
from stages.training.device import Device, resolve
from stages.trials.kept import KeptTrial, predictor
from stages.trials.prediction import predict
from stages.trials.setup import TrialSetup

ROWS_AT_ONCE = 512  # in memory


class NewRow(NamedTuple):
    """The columns that identify a row in the output, and the row as the task reads it."""

    shown: Json
    row: Json


def device_for(kept: KeptTrial, name: str) -> Device:
    """Returns the device, with the precision of the trial and the default number of threads.

    Raises ValueError if the machine does not have it.
    """
    threads = torch.get_num_threads()
    settings = {"device": name, "precision": kept.precision, "compile": False}
    compute = Compute(**settings, threads=threads, trial_threads=threads)  # type: ignore[arg-type]
    return resolve(compute, threads=threads)


def predictions(
    kept: KeptTrial, setup: TrialSetup, model: ModelWithHead, rows: Iterable[NewRow], device: Device
) -> Iterator[Json]:
    """Yields each row's ``shown`` columns with its prediction. No two rows may have the same
    ``id``."""
    by, waiting = predictor(kept, setup), iter(rows)
    while some := list(islice(waiting, ROWS_AT_ONCE)):
        given = [row.row for row in some]
        answers = predict(by, model, given, by.encode(given), device)
        for (shown, row), answer in zip(some, answers, strict=True):
            columns = shown | setup.task.kind.predicted_columns(row, answer.at(kept.threshold))
            if answer.scores is not None:
                columns["scores"] = {
                    label: round(score, 6) for label, score in answer.scores.items()
                }
            yield columns


def baseline_predictions(baseline: Baseline, kind: Kind, rows: Iterable[NewRow]) -> Iterator[Json]:
    """Yields each row's ``shown`` columns with its prediction, and the probability of the
    prediction if the baseline gives one."""
    waiting = iter(rows)
    while some := list(islice(waiting, ROWS_AT_ONCE)):
        given = [row.row for row in some]
        answers = zip(baseline.predict(given), baseline.probabilities(given), strict=True)
        for (shown, row), (answer, probability) in zip(some, answers, strict=True):
            columns = shown | kind.predicted_columns(row, answer)
            if probability is not None:
                columns["probability"] = round(probability, 6)
            yield columns
