"""What a kept trial says of new rows."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import torch

from stages.core.artifacts import Json
from stages.core.params import Compute
from stages.models._heads import ModelWithHead
from stages.training.device import Device, resolve
from stages.trials.kept import KeptTrial, predictor
from stages.trials.prediction import predict
from stages.trials.setup import TrialSetup

ROWS_AT_ONCE = 512  # in memory


class NewRow(NamedTuple):
    """What identifies a row in the output, and the row as the task takes it."""

    shown: Json
    row: Json


def device_for(kept: KeptTrial, name: str) -> Device:
    """The device, with the precision of the trial and the default number of threads.

    Raises ValueError for one that is not there.
    """
    threads = torch.get_num_threads()
    settings = {"device": name, "precision": kept.precision, "compile": False}
    compute = Compute(**settings, threads=threads, trial_threads=threads)  # type: ignore[arg-type]
    return resolve(compute, threads=threads)


def predictions(
    kept: KeptTrial, setup: TrialSetup, model: ModelWithHead, rows: Iterable[NewRow], device: Device
) -> Iterator[Json]:
    """For each row what is shown of it, and the prediction. The ``id`` of each row differs."""
    by, waiting = predictor(kept, setup), iter(rows)
    while some := list(islice(waiting, ROWS_AT_ONCE)):
        given = [row.row for row in some]
        predicted = predict(by, model, given, by.encode(given), device)
        for (shown, row), each in zip(some, predicted, strict=True):
            found = shown | setup.task.columns(row, each.at(kept.threshold))
            if each.scores is not None:
                found["scores"] = {label: round(score, 6) for label, score in each.scores.items()}
            yield found
