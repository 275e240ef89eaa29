"""Doubtful labels, on rows of which some labels were changed."""

from collections.abc import Mapping

import pytest

from stages.baselines._linear import classifier
from stages.core.seeding import stream
from stages.evaluation.doubtful_labels import FOLDS, MAX_DOUBTFUL, doubtful_labels
from stages.tasks._cells import Row
from stages.tasks._task import TASKS

KIND = TASKS["classification"]


def separable(numbers: Mapping[str, int], *, share: float) -> tuple[list[Row], dict[str, str]]:
    """Returns rows of each class, half of whose words are its own, and the right labels of the
    ``share`` of them whose label was changed, by id."""
    rng, rows, right, labels = stream(1, "doubtful"), list[Row](), dict[str, str](), [*numbers]
    for i, label in enumerate(label for label, number in numbers.items() for _ in range(number)):
        words = [f"{label if rng.random() < 0.5 else ''}{rng.integers(20)}" for _ in range(12)]
        row = {"id": f"row {i}", "text": " ".join(words), "label": label}
        if rng.random() < share:
            right[row["id"]] = label
            row["label"] = str(rng.choice([other for other in labels if other != label]))
        rows.append(row)
    return rows, right


@pytest.mark.parametrize("numbers", [{"a": 200, "b": 200}, {"a": 300, "b": 100, "c": 60}])
def test_doubtful_labels_are_most_of_those_that_were_changed(numbers: Mapping[str, int]) -> None:
    rows, right = separable(numbers, share=0.05)
    doubtful = doubtful_labels(KIND, rows, classifier())
    hits = [each for each in doubtful if each.likelier_label == right.get(each.id)]
    assert len(hits) >= 0.65 * len(right) and len(hits) >= 0.9 * len(doubtful)
    assert {each.id for each in doubtful[: len(right) // 2]} <= right.keys()  # sorted by doubt
    assert doubtful_labels(KIND, rows, classifier()) == doubtful


@pytest.mark.parametrize(
    ("kind", "rows", "number"),
    [
        ("classification", separable({"a": 200, "b": 200}, share=0.45)[0], MAX_DOUBTFUL),
        ("classification", separable({"a": 40, "b": FOLDS - 1}, share=0)[0], 0),
        ("tagging", [{"id": "1", "words": ["a"], "tags": ["O"]}], 0),
    ],
)
def test_doubtful_labels_are_at_most_as_many_as_a_reader_reads(kind, rows, number) -> None:
    assert len(doubtful_labels(TASKS[kind], rows, classifier())) == number
