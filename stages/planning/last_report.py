"""The last report, which may be of another study than that of params.yaml."""

import csv

from stages.core import paths
from stages.core.artifacts import Json
from stages.evaluation.precision import doublings, sentence
from stages.planning.tables import duration


def reported_study() -> str:
    """Returns the study of the last report; raises FileNotFoundError without one."""
    with (paths.REPORTS / "trials.csv").open(encoding="utf-8", newline="") as file:
        return next(csv.DictReader(file))["study"]


def narrower_intervals(study: str) -> list[str]:
    """Returns what would narrow the intervals of the last report and what it cost there. Empty
    without a report of this study, and if every contrast with a verdict is significant."""
    try:
        if reported_study() != study:
            return []
        contrasts, costs = _rows("contrasts.csv"), _rows("costs.csv")
    except FileNotFoundError:
        return []
    columns = {"narrower_rows", "p_holm", "resolved"}
    if not contrasts or not columns <= contrasts[0].keys():  # an older report
        return []
    undecided = [row for row in contrasts if row["p_holm"] and row["resolved"] == "no"]
    options = doublings(
        undecided, costs, pretraining="pretrain_wall_time_s", finetuning="wall_time_s"
    )
    texts = sentence(options, duration, per="per hour")
    return [f"The last report: {text[0].lower()}{text[1:]}" for text in texts]


def _rows(name: str) -> list[Json]:
    with (paths.REPORTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
