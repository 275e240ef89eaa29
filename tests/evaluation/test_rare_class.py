"""The measures of the rarer of two classes are those of scikit-learn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_curve

from stages.evaluation.rare_class import RareClass, rare_class

LABELS = ["ham", "spam"]


def of_scores(gold: list[str], scores: list[float]) -> RareClass | None:
    """The measures of predictions whose probability of spam is in ``scores``."""
    predicted = ["spam" if score > 0.5 else "ham" for score in scores]
    return rare_class(gold, predicted, [max(score, 1 - score) for score in scores], LABELS)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=2, max_size=60))
def test_rare_class_is_measured_as_by_scikit_learn(rows: list[tuple[bool, int]]) -> None:
    """Many scores are equal. Where spam is the more frequent label, ham is measured."""
    gold = ["spam" if is_spam else "ham" for is_spam, _ in rows]
    scores = [number / 20 for _, number in rows]
    measured = of_scores(gold, scores)
    if len({*gold}) < 2:
        assert measured is None
        return
    assert measured is not None
    rare = "spam" if gold.count("spam") < gold.count("ham") else "ham"
    of_rare = [score if rare == "spam" else round(1 - score, 6) for score in scores]
    is_rare = [label == rare for label in gold]
    precision, recall, _ = precision_recall_curve(is_rare, of_rare)
    assert measured.rare_class == rare
    assert measured.average_precision == pytest.approx(average_precision_score(is_rare, of_rare))
    assert measured.recall_at_precision == pytest.approx(recall[precision >= 0.9].max())
