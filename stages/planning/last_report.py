"""The last report, whose study may differ from the study in params.yaml."""

from stages.core import paths
from stages.evaluation.precision import narrowing
from stages.evaluation.records import read_texts
from stages.planning.tables import duration


def reported_study() -> str | None:
    """Returns the study of the last report, or None if there is no report."""
    return next((trial["study"] for trial in read_texts(paths.REPORTS / "trials.csv")), None)


def narrower_intervals(study: str) -> list[str]:
    """Returns sentences on how to narrow the intervals of the last report, and at what cost. There
    are none if the last report is not about ``study`` or if every contrast with a verdict is
    significant."""
    contrasts, costs = (read_texts(paths.REPORTS / f"{n}.csv") for n in ("contrasts", "costs"))
    columns = {"narrower_rows", "p_holm", "resolved"}
    is_older = not contrasts or not columns <= contrasts[0].keys()
    if reported_study() != study or is_older or not costs:
        return []
    undecided = [row for row in contrasts if row["p_holm"] and row["resolved"] == "no"]
    texts = narrowing(
        undecided,
        costs,
        duration,
        pretraining="pretrain_wall_time_s",
        finetuning="wall_time_s",
        per="per hour",
    )
    return [f"The last report: {text[0].lower()}{text[1:]}" for text in texts]
