"""The last report, whose study may differ from the study in params.yaml."""

from stages.core import paths
from stages.evaluation.records import read_texts


def reported_study() -> str | None:
    """Returns the study of the last report, or None if there is no report."""
    return next((trial["study"] for trial in read_texts(paths.REPORTS / "trials.csv")), None)
