"""Probabilities of predictions: how close they are to the accuracy, how many rows can be answered
at a stated accuracy, and how well they find the rarer of two classes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from jaxtyping import Float, Int

from stages.core.keys import CellKey, TrialKey
from stages.evaluation.records import TrialRow, ValidationRecord

NUM_BINS = 15
LEAST_FITTED = 50  # fewest validation rows to fit a temperature
MOST_LOG_TEMPERATURE = 3.0  # temperatures from 1/20 to 20
AT_BOUND = 0.01
TINY = 1e-30  # stands in for a probability that was rounded to 0
STATED_PRECISION = 0.9  # at which the recall of the rarer class is measured
STATED_ACCURACIES = (0.8, 0.9, 0.95, 0.99)
LEAST_ANSWERED = 20  # fewest validation rows at or above a threshold on the probability


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How well the probabilities of predictions agree with the accuracy; all numbers are in
    0..1."""

    accuracy: float
    mean_probability: float  # above the accuracy if the model is overconfident
    calibration_error: float


@dataclass(frozen=True, kw_only=True)
class ReliabilityRecord:
    """One bin of a cell's reliability diagram: the predictions, from all of the cell's trials, with
    a probability in this bin."""

    model: str
    method: str
    label_budget: str
    number: int  # of predictions
    mean_probability: float
    accuracy: float


def calibration(
    gold: Sequence[str], predicted: Sequence[str], probabilities: Sequence[float | None]
) -> Calibration | None:
    """Returns the calibration, or None if a prediction has no probability.

    The error is the expected calibration error (Guo et al. 2017, eq. 3): the distance between
    accuracy and mean probability in each of 15 bins of equal width, averaged over bins with their
    numbers of rows as weights. In a bin of n rows with probability p, chance alone gives an error
    of about 0.8 sqrt(p (1 - p) / n).
    """
    if None in probabilities:
        return None
    p = np.array(probabilities, dtype=float)
    right = _right(gold, predicted)
    distances = np.bincount(_bins(p), right - p, NUM_BINS)  # of each bin, times its number of rows
    return Calibration(
        accuracy=float(right.mean()),
        mean_probability=float(p.mean()),
        calibration_error=float(np.abs(distances).sum() / len(p)),
    )


def reliability(
    trials: Iterable[tuple[CellKey, Sequence[str], Sequence[str], Sequence[float | None]]],
) -> Iterator[ReliabilityRecord]:
    """Yields the non-empty bins of each cell, in ascending order of probability. A trial is given
    as its cell, the right answers, the predictions and their probabilities. Trials in which a
    prediction has no probability are left out."""
    sums: dict[CellKey, np.ndarray] = defaultdict(lambda: np.zeros((3, NUM_BINS)))
    for cell, gold, predicted, probabilities in trials:
        if None not in probabilities:
            p = np.array(probabilities, dtype=float)
            for row, weights in enumerate((np.ones_like(p), p, _right(gold, predicted))):
                sums[cell][row] += np.bincount(_bins(p), weights, NUM_BINS)
    for (model, _, method, label_budget), bins in sums.items():
        for number, probability, right in bins.T[bins[0] > 0]:
            yield ReliabilityRecord(
                model=model,
                method=method,
                label_budget=label_budget,
                number=int(number),
                mean_probability=probability / number,
                accuracy=right / number,
            )


@dataclass(frozen=True, kw_only=True)
class CoverageRecord(TrialRow):
    """The number of test rows that a trial can answer at a stated accuracy, and the trial's
    calibration error before and after temperature scaling. A row is answered if its prediction has
    at least the probability ``min_confidence``, which is chosen so that answered validation rows
    reach the stated accuracy."""

    num_validation: int
    num_test: int
    temperature: float | None  # None if none was fitted
    calibration_error: float
    calibrated_error: float | None  # after scaling by the temperature
    stated_accuracy: float
    min_confidence: float | None  # None if validation rows do not reach the accuracy
    num_answered: int  # test rows with a probability of at least ``min_confidence``
    num_right: int  # answered rows with a right prediction


def fitted_temperature(scores: Sequence[Mapping[str, float]], gold: Sequence[str]) -> float | None:
    """Returns the temperature T at which softmax(log p / T) of the probabilities in ``scores`` has
    the lowest log loss (Guo et al. 2017, section 4.2).

    Returns None for fewer than ``LEAST_FITTED`` rows, if no wrong answer is likelier than the right
    one (the loss then has no minimum), or if the minimum is not between 1/20 and 20.
    """
    # Imported here, since evaluation without probabilities does not need SciPy's optimisers.
    from scipy.optimize import minimize_scalar

    if len(gold) < LEAST_FITTED:
        return None
    # In multiple choice, rows may differ in their number of choices: minus infinity fills gaps.
    columns = zip_longest(*(np.log(_floored(row)) for row in scores), fillvalue=-np.inf)
    logs = np.array([*columns]).T
    right = np.array([[*row].index(label) for row, label in zip(scores, gold, strict=True)])
    rows = np.arange(len(right))
    if (logs[rows, right] == logs.max(axis=1)).all():
        return None

    def loss(log_temperature: float) -> float:
        scaled = logs / np.exp(log_temperature)
        scaled -= scaled.max(axis=1, keepdims=True)
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[rows, right]).mean())

    bounds = (-MOST_LOG_TEMPERATURE, MOST_LOG_TEMPERATURE)
    minimum = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    if not minimum.success or abs(minimum.x) > MOST_LOG_TEMPERATURE - AT_BOUND:
        return None
    return float(np.exp(minimum.x))


def at_temperature(scores: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Returns the probabilities in ``scores`` after temperature scaling: softmax(log p / T)."""
    logs = np.log(_floored(scores)) / temperature
    shares = np.exp(logs - logs.max())
    return dict(zip(scores, (shares / shares.sum()).tolist(), strict=True))


def coverage(
    key: TrialKey,
    temperature: float | None,
    validation: Sequence[ValidationRecord],
    gold: Sequence[str],
    predicted: Sequence[str],
    probabilities: Sequence[float | None],
    calibrated: Sequence[float | None],
) -> Iterator[CoverageRecord]:
    """Yields a record for each of ``STATED_ACCURACIES``, or nothing for a trial without
    probabilities. ``calibrated`` are the test rows' probabilities after temperature scaling."""
    before = calibration(gold, predicted, probabilities)
    if before is None or not validation:
        return
    after = calibration(gold, predicted, calibrated)
    validation_p = np.array([row.probability for row in validation])
    validation_right = np.array([row.right for row in validation], dtype=float)
    p, right = np.array(probabilities, dtype=float), _right(gold, predicted)
    for stated in STATED_ACCURACIES:
        least = lowest_confidence(validation_p, validation_right, stated)
        answered = np.zeros(len(p), dtype=bool) if least is None else p >= least
        yield CoverageRecord(
            **key._asdict(),
            num_validation=len(validation),
            num_test=len(gold),
            temperature=temperature,
            calibration_error=before.calibration_error,
            calibrated_error=None if after is None else after.calibration_error,
            stated_accuracy=stated,
            min_confidence=least,
            num_answered=int(answered.sum()),
            num_right=int(right[answered].sum()),
        )


def lowest_confidence(
    p: Float[np.ndarray, " n"], right: Float[np.ndarray, " n"], stated: float
) -> float | None:
    """Returns the lowest probability p for which at least ``LEAST_ANSWERED`` predictions have p or
    more and are at least as accurate as ``stated``; None if there is no such p."""
    order = np.argsort(-p, kind="stable")
    ordered, number = p[order], np.arange(1, len(p) + 1)
    is_last = np.append(ordered[1:] < ordered[:-1], True)  # among equal probabilities
    accuracy = np.cumsum(right[order]) / number
    reached = np.flatnonzero(is_last & (accuracy >= stated) & (number >= LEAST_ANSWERED))
    return float(ordered[reached[-1]]) if len(reached) else None


@dataclass(frozen=True, kw_only=True)
class RareClass:
    """Measures of how well probabilities rank the rarer class first; both are in 0..1."""

    rare_class: str
    average_precision: float
    recall_at_precision: float  # the highest recall at a precision of STATED_PRECISION or more


def rare_class(
    gold: Sequence[str],
    predicted: Sequence[str],
    probabilities: Sequence[float | None],
    labels: Sequence[str],
) -> RareClass | None:
    """Returns the measures for the label that is rarer in ``gold``, or for the first label if both
    are equally frequent. The other label has 1 minus the probability of the predicted one.

    Returns None unless the task has two labels, rows of both, and a probability for each
    prediction. Both measures are scikit-learn's. Probabilities are rounded to six decimals, so
    the surest rows may tie.
    """
    # Imported here, because it takes a second and most tasks do not need it.
    from sklearn.metrics import average_precision_score, precision_recall_curve

    counts = Counter(gold)
    if len(labels) != 2 or not all(counts[label] for label in labels) or None in probabilities:
        return None
    rare = min(labels, key=lambda label: counts[label])
    p = np.array(probabilities, dtype=float)
    scores = np.where([label == rare for label in predicted], p, 1 - p).round(6)
    is_rare = [label == rare for label in gold]
    precision, recall, _ = precision_recall_curve(is_rare, scores)
    return RareClass(
        rare_class=rare,
        average_precision=float(average_precision_score(is_rare, scores)),
        recall_at_precision=float(recall[precision >= STATED_PRECISION].max()),
    )


def _floored(scores: Mapping[str, float]) -> Float[np.ndarray, " K"]:
    return np.maximum(np.array([*scores.values()]), TINY)


def _right(gold: Sequence[str], predicted: Sequence[str]) -> Float[np.ndarray, " n"]:
    return np.array([g == f for g, f in zip(gold, predicted, strict=True)], dtype=float)


def _bins(p: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Returns the index of each probability's bin. Of M bins, bin i (from 0) contains the
    probabilities above i / M, up to (i + 1) / M; bin 0 also contains 0."""
    return np.clip(np.ceil(p * NUM_BINS) - 1, 0, NUM_BINS - 1).astype(int)
