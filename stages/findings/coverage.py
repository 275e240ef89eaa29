"""The share of texts answered at a stated accuracy, and the effect of temperature scaling."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.evaluation.calibration import CoverageRecord
from stages.findings.cells import Cell

STATED_ACCURACY = 0.95  # of the stated accuracies, the one that the report mentions


@dataclass(frozen=True)
class Coverage:
    """The test rows that a cell's trials answer at ``STATED_ACCURACY``. A trial that does not reach
    this accuracy on validation rows answers nothing."""

    cell: Cell
    num_trials: int
    num_reached: int  # trials whose validation rows reach the accuracy
    num_fitted: int  # trials with a temperature
    num_validation: int  # validation rows of a trial
    num_test: int  # test rows of a trial
    share: float  # answered part of the test rows of all trials
    accuracy: float | None  # of the answered test rows of all trials; None if there are none
    calibration_error: float  # mean over trials
    calibrated_error: float | None  # at the temperatures; None unless all trials have one


def coverages_of(cell: Cell, records: Iterable[CoverageRecord]) -> list[CoverageRecord]:
    """Returns the records of the cell's trials."""
    return [record for record in records if record.key.cell == cell.key]


def coverage(cell: Cell, records: Sequence[CoverageRecord]) -> Coverage | None:
    """Returns the coverage at ``STATED_ACCURACY``, from the ``records`` of the cell's task; None if
    predictions have no probabilities."""
    of_cell = coverages_of(cell, records)
    trials = [each for each in of_cell if each.stated_accuracy == STATED_ACCURACY]
    if not trials:
        return None
    answered = sum(each.num_answered for each in trials)
    errors = [e for each in trials if (e := each.calibrated_error) is not None]
    return Coverage(
        cell=cell,
        num_trials=len(trials),
        num_reached=sum(each.min_confidence is not None for each in trials),
        num_fitted=len(errors),
        num_validation=trials[0].num_validation,
        num_test=trials[0].num_test,
        share=answered / sum(each.num_test for each in trials),
        accuracy=sum(each.num_right for each in trials) / answered if answered else None,
        calibration_error=fmean(each.calibration_error for each in trials),
        calibrated_error=fmean(errors) if len(errors) == len(trials) else None,
    )
