"""Measures of how well the rarer of two classes is found, over all thresholds on probability."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STATED_PRECISION = 0.9


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
