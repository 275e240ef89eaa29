"""How well the rarer of two classes is found, at every threshold on its probability."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

STATED_PRECISION = 0.9


@dataclass(frozen=True, kw_only=True)
class RareClass:
    """How well probabilities rank the rows of the rarer class first; both numbers are in 0..1."""

    rare_class: str
    average_precision: float
    recall_at_precision: float  # the highest recall at a precision of STATED_PRECISION or more


def rare_class(
    gold: Sequence[str],
    predicted: Sequence[str],
    probabilities: Sequence[float | None],
    labels: Sequence[str],
) -> RareClass | None:
    """Returns the measures of the label that fewer of the rows in ``gold`` have, of equal ones the
    first. The probability of the other label is 1 minus that of the prediction.

    Returns None unless the task has two labels, rows of both, and a probability for each
    prediction. Average precision is scikit-learn's ``average_precision_score``. Probabilities are
    rounded to six decimals, so that a few sure rows may count as equal.
    """
    counts = Counter(gold)
    given = [each for each in probabilities if each is not None]
    if len(labels) != 2 or not all(counts[label] for label in labels) or len(given) < len(gold):
        return None
    rare = min(labels, key=lambda label: counts[label])
    p = np.array(given)
    scores = np.where([label == rare for label in predicted], p, 1 - p).round(6)
    precision, recall = _curve(np.array([label == rare for label in gold]), scores)
    reached = recall[precision >= STATED_PRECISION]
    return RareClass(
        rare_class=rare,
        average_precision=float((np.diff(recall, prepend=0.0) * precision).sum()),
        recall_at_precision=float(reached.max(initial=0.0)),
    )


def _curve(
    is_rare: Bool[np.ndarray, " n"], scores: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Returns precision and recall at each threshold, from the highest to the lowest score."""
    order = np.argsort(-scores, kind="stable")
    is_last = np.append(np.diff(scores[order]) < 0, True)  # of equal scores
    num_right = np.cumsum(is_rare[order])[is_last]
    return num_right / (np.flatnonzero(is_last) + 1), num_right / is_rare.sum()
