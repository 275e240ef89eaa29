"""How calibrated the probabilities of the predictions are: a table."""

from collections import defaultdict

from stages.evaluation.calibration import NUM_BINS
from stages.evaluation.records import ScoredTrial
from stages.reporting.comparison.appendix import Appendix
from stages.reporting.comparison.results import Results

CAPTION = "Accuracy, mean probability and expected calibration error"
EXPLAINED = (
    "Means over trials, in percent. The probability is the one that a model gives its own "
    "prediction: where it is above the accuracy, the model is overconfident. The expected "
    "calibration error is the mean distance between the two over "
    f"{NUM_BINS} bins of equal width (Guo et al. 2017); with few rows it is above 0 by chance, "
    "also of a calibrated model."
)


def appendix(results: Results) -> Appendix | None:
    """None if no prediction has a probability."""
    name_of = {run: group.name for group in results.groups for run in group.runs}
    found: dict[tuple[str, str, str, str], list[ScoredTrial]] = defaultdict(list)
    for trial in results.trials:
        if trial.calibration_error is not None:
            name = name_of.get(trial.run, trial.run)
            found[trial.task, name, trial.method, trial.label_budget].append(trial)
    rows = [
        {
            "task": task,
            "run": name,
            "method": method,
            "labels": budget,
            "accuracy": _mean([trial.accuracy for trial in trials]),
            "probability": _mean([trial.mean_probability for trial in trials]),
            "calibration error": _mean([trial.calibration_error for trial in trials]),
        }
        for (task, name, method, budget), trials in found.items()
    ]
    return Appendix("Calibration", {CAPTION: rows}, [EXPLAINED]) if rows else None


def _mean(shares: list[float | None]) -> str:
    known = [share for share in shares if share is not None]
    return f"{100 * sum(known) / len(known):.1f}"
