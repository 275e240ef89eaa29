"""Probabilities of predictions, confusions and examples, compared with scikit-learn, with planted
probabilities and with counts by hand."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, confusion_matrix, precision_recall_curve

from stages.core.keys import CellKey, TrialKey
from stages.core.seeding import stream
from stages.evaluation import confusion
from stages.evaluation.calibration import (
    at_temperature,
    calibration,
    coverage,
    fitted_temperature,
    lowest_confidence,
    rare_class,
    reliability,
)
from stages.evaluation.confusion import ANY, DISPUTED, classes, examples, pairs, shown_trials
from stages.evaluation.records import TrialRecord, ValidationRecord
from stages.tasks._task import TASKS

CLASSIFICATION, TAGGING = TASKS["classification"], TASKS["tagging"]


def error(right: list[bool], probabilities: list[float]) -> float:
    calibrated = calibration(["a"] * len(right), ["a" if r else "b" for r in right], probabilities)
    assert calibrated is not None
    return calibrated.calibration_error


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), min_size=1))
def test_calibration_error_is_that_of_bins_counted_one_by_one(rows: list[tuple[bool, int]]) -> None:
    """Probabilities are multiples of 1/300: each bin has twenty, and all counts are exact. Rounding
    may put a value at an edge into either bin, so edges count for the inner bin's neighbor."""
    rows = [(r, p - (p % 20 == 0 < p)) for r, p in rows]
    expected = 0
    for m in range(15):
        inside = [(r, p) for r, p in rows if 20 * m < p <= 20 * (m + 1) or (m == 0 and p == 0)]
        expected += abs(sum(300 * r - p for r, p in inside))
    value = error([r for r, _ in rows], [p / 300 for _, p in rows])
    assert value == pytest.approx(expected / 300 / len(rows), abs=1e-12)
    assert calibration(["a", "b"], ["a", "b"], [0.5, None]) is None


@pytest.mark.parametrize("planted", [0.5, 2.0])
def test_fitted_temperature_is_the_planted_one(planted: float) -> None:
    """Answers are drawn from probabilities that are then made too sure or too unsure. Rows whose
    two classes are equally likely change nothing, since no temperature changes them."""
    rng = stream(1, "temperature", str(planted))
    true = rng.dirichlet(np.full(4, 0.7), size=4000)
    gold = ["abcd"[rng.choice(4, p=row)] for row in true]
    scores = [at_temperature(dict(zip("abcd", row, strict=True)), 1 / planted) for row in true]
    temperature = fitted_temperature(scores, gold)
    assert temperature == pytest.approx(planted, rel=0.1)
    assert temperature is not None
    even = {"a": 0.5, "b": 0.5}
    assert at_temperature(even, temperature) == even
    with_ties = fitted_temperature([*scores, *[even] * 500], [*gold, *"ab" * 250])
    assert with_ties == pytest.approx(temperature, rel=1e-4)
    predicted = [max(row, key=lambda label: row[label]) for row in scores]
    before, after = (
        calibration(gold, predicted, [max(row.values()) for row in rows])
        for rows in (scores, [at_temperature(row, temperature) for row in scores])
    )
    assert before is not None and after is not None
    assert after.calibration_error < 0.03 < 0.1 < before.calibration_error
    assert before.accuracy == after.accuracy, "a temperature changes no prediction"


def test_fitted_temperature_is_none_where_it_is_not_determined() -> None:
    unsure, mixed = {"a": 0.6, "b": 0.4}, ["a", "a", "a", "a", "b"]
    assert fitted_temperature([unsure] * 45, mixed * 9) is None, "too few rows"
    assert fitted_temperature([unsure] * 50, mixed * 10) is not None
    for likely in (0.5, 0.6, 0.99, 0.9999):  # all are right, so lower is always better
        assert fitted_temperature([{"a": likely, "b": 1 - likely}] * 100, ["a"] * 100) is None
    for gold in (["a", "b"] * 50, ["b"] * 100):  # every temperature is as good
        assert fitted_temperature([{"a": 0.5, "b": 0.5}] * 100, gold) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10)), min_size=1, max_size=80))
def test_lowest_confidence_answers_the_most_rows_at_the_accuracy(rows) -> None:
    """Compared with every threshold one by one; many probabilities are equal."""
    p, right = np.array([q / 10 for _, q in rows]), np.array([float(r) for r, _ in rows])
    good = [
        threshold
        for threshold in {*p.tolist()}
        if (p >= threshold).sum() >= 20 and right[p >= threshold].mean() >= 0.75
    ]
    assert lowest_confidence(p, right, 0.75) == (min(good) if good else None)


def test_coverage_and_reliability_by_hand() -> None:
    """All of 20 sure validation rows are right, and 14 of 20 others."""
    key = TrialKey("bert", 1, "type", "full", "200", 1)
    validation = [
        ValidationRecord(**key._asdict(), probability=p, right=int(i < 34))
        for i, p in enumerate([0.9] * 20 + [0.6] * 20)
    ]
    gold, predicted, p = [*"aabb"], [*"abba"], [0.9, 0.95, 0.6, 0.55]
    records = [*coverage(key, 2.0, validation, gold, predicted, p, [None] * 4)]
    assert [
        (r.stated_accuracy, r.min_confidence, r.num_answered, r.num_right) for r in records
    ] == [
        (0.8, 0.6, 3, 2),
        *((stated, 0.9, 2, 1) for stated in (0.9, 0.95, 0.99)),
    ]
    assert records[0].calibration_error == error([True, False, True, False], p)
    assert [*coverage(key, None, [], gold, predicted, p, p)] == []
    trials = [(key.cell, gold, predicted, p)] * 2 + [(key.cell, gold, predicted, [None, *p[1:]])]
    bins = [(r.number, r.mean_probability, r.accuracy) for r in reliability(trials)]
    expected = [(4, 0.575, 0.5), (2, 0.9, 1), (2, 0.95, 0)]
    assert [number for of_bin in bins for number in of_bin] == pytest.approx(sum(expected, ()))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=2, max_size=60))
def test_rare_class_is_measured_as_by_scikit_learn(rows: list[tuple[bool, int]]) -> None:
    """Many scores are equal, some with both classes equally likely. Where spam is the more frequent
    label, ham is measured."""
    gold = ["spam" if is_spam else "ham" for is_spam, _ in rows]
    scores = [number / 20 for _, number in rows]
    predicted = ["spam" if score > 0.5 else "ham" for score in scores]
    sure = [max(score, 1 - score) for score in scores]
    measured = rare_class(gold, predicted, sure, ["ham", "spam"])
    assert rare_class(gold, predicted, [None, *sure[1:]], ["ham", "spam"]) is None
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


# Confusions ----------------------------------------------------------------------------------


def test_confusion_counts_rows_as_scikit_learn_does_and_words_by_the_type_of_their_span() -> None:
    rng, labels = stream(1, "confusion"), ["a", "b c", "d"]
    gold, predicted = (
        {str(i): labels[k] for i, k in enumerate(rng.integers(3, size=200))} for _ in range(2)
    )
    counts = pairs(CLASSIFICATION, gold, predicted)
    expected = confusion_matrix([*gold.values()], [*predicted.values()], labels=labels)
    assert [[counts[one, other] for other in labels] for one in labels] == expected.tolist()
    assert classes(TAGGING, "B-X I-X O B-Y-Z NOUN") == ["X", "X", "O", "Y-Z", "NOUN"]
    counts = pairs(TAGGING, {"1": "B-X I-X O", "2": "O B-Y"}, {"1": "B-X O O", "2": "B-Y B-Y"})
    words = (("X", "X"), ("X", "O"), ("O", "O"), ("O", "Y"), ("Y", "Y"))
    assert counts == Counter(words)
    # The trials of a cell are added up.
    one, other = (CellKey("run", "task", method, "200") for method in ("full", "lora"))
    counts = Counter({("a", "a"): 2, ("a", "b"): 1})
    rows = confusion.records([(one, counts), (other, counts), (one, counts)])
    assert [(r.method, r.num_trials, r.answer, r.prediction, r.number) for r in rows] == [
        ("full", 2, "a", "a", 4),
        ("full", 2, "a", "b", 2),
        ("lora", 1, "a", "a", 2),
        ("lora", 1, "a", "b", 1),
    ]


def test_shown_trials_are_the_first_with_the_most_labels() -> None:
    names = {"architecture": "bert", "used_architecture": "bert"}
    trials = [
        TrialRecord(**TrialKey(name, 1, "type", "full", budget, seed)._asdict(), **names)
        for name, budget, seed in (
            ("a", "200", 1),
            ("a", "1000", 2),
            ("a", "1000", 3),
            ("b", "all", 4),
        )
    ]
    shown = shown_trials(trials)
    assert {name: trial.finetune_seed for name, trial in shown.items()} == {"a": 2, "b": 4}


def test_examples_are_first_rows_and_those_with_the_most_even_votes() -> None:
    rows: list[dict[str, Any]] = [{"id": str(i), "text": f"text {i}"} for i in range(20)]
    gold = {row["id"]: "x" for row in rows}
    votes = {name: dict.fromkeys(gold, "x") for name in "abcd"}
    votes["a"]["15"] = "y"  # one of four models
    votes["a"]["9"] = votes["b"]["9"] = "y"  # two of four
    votes["a"]["12"], votes["b"]["12"] = "y", "z"  # three different predictions
    shown = examples(CLASSIFICATION, rows, gold, votes)
    assert [row["id"] for row in shown] == ["0", "1", "2", "12", "9", "15"]
    assert [row["chosen"] for row in shown] == ["any"] * ANY + ["disputed"] * 3
    assert shown[0]["predictions"] == [{"prediction": "x", "right": True, "models": [*"abcd"]}]
    of_row = {one["prediction"]: (one["right"], one["models"]) for one in shown[3]["predictions"]}
    assert of_row == {"x": (True, ["c", "d"]), "y": (False, ["a"]), "z": (False, ["b"])}
    assert shown[0]["input"] == {"text": "text 0"} and shown[0]["answer"] == "x"
    opposed = {"a": gold, "b": dict.fromkeys(gold, "y")}
    assert len(examples(CLASSIFICATION, rows, gold, opposed)) == ANY + DISPUTED


def test_examples_show_tags_after_their_words_and_accept_any_right_answer() -> None:
    def shown(task: str, row: dict[str, Any], gold: str, *predictions: str) -> list[object]:
        votes = {str(number): {"1": one} for number, one in enumerate(predictions)}
        (example,) = examples(TASKS[task], [row | {"id": "1"}], {"1": gold}, votes)
        said = [(one["prediction"], one["right"]) for one in example["predictions"]]
        return [example["answer"], *said]

    words, question = ["call", "int", "now"], {"question": "Who?", "context": "Ada Lovelace did."}
    tagged = shown("tagging", {"words": words}, "O B-CODE O", "O B-CODE O", "O O O")
    assert tagged == ["int/B-CODE", ("int/B-CODE", True), ("", False)]
    answered = shown("span_qa", question, json.dumps(["Ada", "Ada L."]), "Ada L.", "did")
    assert answered == ["Ada", ("Ada L.", True), ("did", False)]
