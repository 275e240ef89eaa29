"""The study of the last report, which params.yaml may have left behind."""

import csv

from stages.core import paths


def reported_study() -> str:
    """Raises FileNotFoundError without a report."""
    with (paths.REPORTS / "trials.csv").open(encoding="utf-8", newline="") as file:
        return next(csv.DictReader(file))["study"]
