"""Confusion counts, compared with scikit-learn."""

from collections import Counter

from sklearn.metrics import confusion_matrix

from stages.core.keys import CellKey
from stages.core.seeding import stream
from stages.evaluation.confusion import classes, pairs, records
from stages.tasks._task import TASKS


def test_pairs_counts_rows_as_scikit_learn_does() -> None:
    rng, labels = stream(1, "confusion"), ["a", "b c", "d"]
    gold, predicted = (
        {str(i): labels[k] for i, k in enumerate(rng.integers(3, size=200))} for _ in range(2)
    )
    counts = pairs(TASKS["classification"], gold, predicted)
    expected = confusion_matrix([*gold.values()], [*predicted.values()], labels=labels)
    assert [[counts[one, other] for other in labels] for one in labels] == expected.tolist()


def test_pairs_counts_words_by_the_type_of_their_span() -> None:
    tagging = TASKS["tagging"]
    assert classes(tagging, "B-X I-X O B-Y-Z NOUN") == ["X", "X", "O", "Y-Z", "NOUN"]
    counts = pairs(tagging, {"1": "B-X I-X O", "2": "O B-Y"}, {"1": "B-X O O", "2": "B-Y B-Y"})
    assert counts == Counter(
        {("X", "X"): 1, ("X", "O"): 1, ("O", "O"): 1, ("O", "Y"): 1, ("Y", "Y"): 1}
    )


def test_records_adds_up_the_trials_of_a_cell() -> None:
    one, other = (CellKey("run", "task", method, "200") for method in ("full", "lora"))
    counts = Counter({("a", "a"): 2, ("a", "b"): 1})
    rows = list(records([(one, counts), (other, counts), (one, counts)]))
    assert [(r.method, r.num_trials, r.answer, r.prediction, r.number) for r in rows] == [
        ("full", 2, "a", "a", 4),
        ("full", 2, "a", "b", 2),
        ("lora", 1, "a", "a", 2),
        ("lora", 1, "a", "b", 1),
    ]
