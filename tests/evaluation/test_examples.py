"""The rows to show: random rows, and rows on which models agree least."""

import json
from typing import Any

from stages.core.keys import TrialKey
from stages.evaluation.examples import ANY, DISPUTED, examples, shown_trials
from stages.evaluation.records import TrialRecord
from stages.tasks._task import TASKS
from tests.test_evaluate import TRIAL

TEXTS = TASKS["classification"]


def trial(run: str, method: str, budget: str, seed: int) -> TrialRecord:
    key = TrialKey(run, 1, "type", method, budget, seed)
    return TrialRecord(**key._asdict(), **TRIAL)


def test_shown_trials_are_the_first_with_the_most_labels() -> None:
    trials = [
        trial("a", "full", "200", 1),
        trial("a", "full", "1000", 1),
        trial("a", "full", "1000", 2),
        trial("a", "lora", "1000", 1),
        trial("b", "lora", "all", 1),
        trial("b", "full", "200", 1),
    ]
    shown = shown_trials(trials)
    keys = {run: (t.method, t.label_budget, t.finetune_seed) for run, t in shown.items()}
    assert keys == {"a": ("full", "1000", 1), "b": ("lora", "all", 1)}


def rows_of(number: int) -> list[dict[str, Any]]:
    return [{"id": str(i), "text": f"text {i}"} for i in range(number)]


def test_examples_are_first_rows_and_those_with_the_most_even_votes() -> None:
    rows = rows_of(20)
    gold = {row["id"]: "x" for row in rows}
    agreed = dict.fromkeys(gold, "x")
    runs = {name: dict(agreed) for name in "abcd"}
    runs["a"]["15"] = "y"  # one of four runs
    runs["a"]["9"] = runs["b"]["9"] = "y"  # two of four runs
    runs["a"]["12"], runs["b"]["12"] = "y", "z"  # three different predictions
    shown = examples(TEXTS, rows, gold, runs)
    assert [row["id"] for row in shown] == ["0", "1", "2", "12", "9", "15"]
    assert [row["chosen"] for row in shown] == ["any"] * ANY + ["disputed"] * 3
    assert shown[0]["predictions"] == [{"prediction": "x", "right": True, "models": [*"abcd"]}]
    votes = {one["prediction"]: (one["right"], one["models"]) for one in shown[3]["predictions"]}
    assert votes == {"x": (True, ["c", "d"]), "y": (False, ["a"]), "z": (False, ["b"])}
    assert shown[0]["input"] == {"text": "text 0"} and shown[0]["answer"] == "x"
    other = {"a": dict(agreed), "b": dict.fromkeys(gold, "y")}
    assert len(examples(TEXTS, rows, gold, other)) == ANY + DISPUTED


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
