"""What more of would narrow the intervals of the last report, and what that took there."""

import csv
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import Json
from stages.evaluation.precision import doublings, sentence
from stages.planning.last_report import reported_study
from stages.planning.tables import duration


def lines(study: str) -> list[str]:
    """None without a report of this study, and where every contrast with a verdict is
    significant."""
    tables = [paths.REPORTS / name for name in ("contrasts.csv", "costs.csv")]
    if not all(table.exists() for table in (*tables, paths.REPORTS / "trials.csv")):
        return []
    if reported_study() != study:
        return []
    contrasts, costs = map(_rows, tables)
    columns = {"narrower_rows", "p_holm"}
    if not contrasts or not columns <= contrasts[0].keys():  # an older report
        return []
    found = doublings(
        contrasts, costs, pretraining="pretrain_wall_time_s", finetuning="wall_time_s"
    )
    said = sentence(found, duration, per="per hour", unit=3600)
    return [f"The last report: {text[0].lower()}{text[1:]}" for text in said]


def _rows(path: Path) -> list[Json]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
