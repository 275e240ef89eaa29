"""Labelled rows of train whose label is doubtful (confident learning; Northcutt et al. 2021)."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from stages.tasks._cells import Row
from stages.tasks._task import Task

FOLDS = 5
MAX_DOUBTFUL = 100  # rows of a task
MAX_CHARACTERS = 300  # of a text


@dataclass(frozen=True, kw_only=True)
class DoubtfulLabel:
    """A row of train, and the out-of-fold probability of its label."""

    id: str
    label: str
    likelier_label: str
    probability: float
    text: str


def doubtful_labels(kind: Task, rows: Sequence[Row], classifier: Any) -> list[DoubtfulLabel]:
    """Returns the rows off the diagonal of the confident joint (equation 1), the most doubtful
    first, at most ``MAX_DOUBTFUL``; none unless rows have one label each.

    A class's threshold is the mean probability of the class over its own rows. A row counts towards
    the likeliest class whose threshold it reaches; its doubt is the threshold of its label less the
    probability of its label. Probabilities are out of fold: a clone of ``classifier`` (of
    scikit-learn, for texts) is fitted to the other folds. Rows of a class with fewer than ``FOLDS``
    rows are left out.
    """
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    if kind.name != "classification":
        return []
    counts = Counter(row[kind.target] for row in rows)
    rows = [row for row in rows if counts[row[kind.target]] >= FOLDS]
    classes, given = np.unique([row[kind.target] for row in rows], return_inverse=True)
    if len(classes) < 2:
        return []
    texts = [" ".join(kind.texts(row)) for row in rows]
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    with threadpool_limits(1):  # the last digits would depend on the number of threads
        probabilities = cross_val_predict(
            classifier, texts, given, cv=folds, method="predict_proba"
        )  # [N, classes]
    own = probabilities[np.arange(len(rows)), given]
    thresholds = np.bincount(given, own) / np.bincount(given)
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    likelier = confident.argmax(axis=1)
    doubtful = (confident.max(axis=1) >= 0) & (likelier != given)
    order = np.argsort(own - thresholds[given], kind="stable")
    return [
        DoubtfulLabel(
            id=rows[i]["id"],
            label=str(classes[given[i]]),
            likelier_label=str(classes[likelier[i]]),
            probability=round(float(own[i]), 6),
            text=textwrap.shorten(texts[i], MAX_CHARACTERS, placeholder=" ..."),
        )
        for i in order[doubtful[order]][:MAX_DOUBTFUL]
    ]
