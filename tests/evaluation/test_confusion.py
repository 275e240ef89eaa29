"""Confusion counts, compared with scikit-learn."""

from collections import Counter

from sklearn.metrics import confusion_matrix

from stages.core.seeding import stream
from stages.evaluation.confusion import classes, has_confusion, pairs, records
from stages.kinds._kind import KINDS


def test_rows_are_counted_as_scikit_learn_does() -> None:
    rng, labels = stream(1, "confusion"), ["a", "b c", "d"]
    gold, predicted = (
        {str(i): labels[k] for i, k in enumerate(rng.integers(3, size=200))} for _ in range(2)
    )
    counts = pairs(KINDS["classification"], gold, predicted)
    expected = confusion_matrix([*gold.values()], [*predicted.values()], labels=labels)
    assert [[counts[one, other] for other in labels] for one in labels] == expected.tolist()


def test_words_are_counted_by_the_type_of_their_span() -> None:
    tagging = KINDS["tagging"]
    assert classes(tagging, "B-X I-X O B-Y-Z NOUN") == ["X", "X", "O", "Y-Z", "NOUN"]
    counts = pairs(tagging, {"1": "B-X I-X O", "2": "O B-Y"}, {"1": "B-X O O", "2": "B-Y B-Y"})
    assert counts == Counter(
        {("X", "X"): 1, ("X", "O"): 1, ("O", "O"): 1, ("O", "Y"): 1, ("Y", "Y"): 1}
    )


def test_only_answers_of_one_class_can_be_confused() -> None:
    assert {name for name in KINDS if has_confusion(KINDS[name])} == {"classification", "tagging"}


def test_trials_of_one_place_are_added_up() -> None:
    one, other = ("run", "full", "200"), ("run", "lora", "200")
    counts = Counter({("a", "a"): 2, ("a", "b"): 1})
    rows = list(records([(one, counts), (other, counts), (one, counts)]))
    assert [(r.method, r.num_trials, r.answer, r.prediction, r.number) for r in rows] == [
        ("full", 2, "a", "a", 4),
        ("full", 2, "a", "b", 2),
        ("lora", 1, "a", "a", 2),
        ("lora", 1, "a", "b", 1),
    ]
