"""Confusion counts, compared with scikit-learn, and the rows to show: random ones, and
those on which models agree least."""

import json
from collections import Counter
from typing import Any

from sklearn.metrics import confusion_matrix

from stages.core.keys import CellKey, TrialKey
from stages.core.seeding import stream
from stages.evaluation.confusion import (
    ANY,
    DISPUTED,
    classes,
    examples,
    pairs,
    records,
    shown_trials,
)
from stages.evaluation.records import TrialRecord
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


def test_shown_trials_are_the_first_with_the_most_labels() -> None:
    keys = [
        *(("a", "full", "200", 1), ("a", "full", "1000", 1), ("a", "full", "1000", 2)),
        *(("a", "lora", "1000", 1), ("b", "lora", "all", 1), ("b", "full", "200", 1)),
    ]
    trials = [
        TrialRecord(
            **TrialKey(name, 1, "type", method, budget, seed)._asdict(),
            architecture="bert",
            used_architecture="bert",
        )
        for name, method, budget, seed in keys
    ]
    shown = shown_trials(trials)
    first = {run: (t.method, t.label_budget, t.finetune_seed) for run, t in shown.items()}
    assert first == {"a": ("full", "1000", 1), "b": ("lora", "all", 1)}


def test_examples_are_first_rows_and_those_with_the_most_even_votes() -> None:
    rows: list[dict[str, Any]] = [{"id": str(i), "text": f"text {i}"} for i in range(20)]
    gold = {row["id"]: "x" for row in rows}
    agreed = dict.fromkeys(gold, "x")
    runs = {name: dict(agreed) for name in "abcd"}
    runs["a"]["15"] = "y"  # one of four runs
    runs["a"]["9"] = runs["b"]["9"] = "y"  # two of four runs
    runs["a"]["12"], runs["b"]["12"] = "y", "z"  # three different predictions
    shown = examples(TASKS["classification"], rows, gold, runs)
    assert [row["id"] for row in shown] == ["0", "1", "2", "12", "9", "15"]
    assert [row["chosen"] for row in shown] == ["any"] * ANY + ["disputed"] * 3
    assert shown[0]["predictions"] == [{"prediction": "x", "right": True, "models": [*"abcd"]}]
    votes = {one["prediction"]: (one["right"], one["models"]) for one in shown[3]["predictions"]}
    assert votes == {"x": (True, ["c", "d"]), "y": (False, ["a"]), "z": (False, ["b"])}
    assert shown[0]["input"] == {"text": "text 0"} and shown[0]["answer"] == "x"
    other = {"a": dict(agreed), "b": dict.fromkeys(gold, "y")}
    assert len(examples(TASKS["classification"], rows, gold, other)) == ANY + DISPUTED


def test_examples_show_tags_after_their_words_and_accept_any_right_answer() -> None:
    tagged = [{"id": "1", "words": ["call", "int", "now"]}]
    runs = {"a": {"1": "O B-CODE O"}, "b": {"1": "O O O"}}
    (shown,) = examples(TASKS["tagging"], tagged, {"1": "O B-CODE O"}, runs)
    assert shown["answer"] == "int/B-CODE" and shown["input"] == {"words": "call int now"}
    assert [(one["prediction"], one["right"]) for one in shown["predictions"]] == [
        ("int/B-CODE", True),
        ("", False),
    ]
    question = [{"id": "1", "question": "Who?", "context": "Ada Lovelace did."}]
    gold = {"1": json.dumps(["Ada", "Ada Lovelace"])}
    runs = {"a": {"1": "Ada Lovelace"}, "b": {"1": "did"}}
    (shown,) = examples(TASKS["span_qa"], question, gold, runs)
    assert shown["answer"] == "Ada"
    assert [one["right"] for one in shown["predictions"]] == [True, False]
