"""Kinds of labelled rows: which inputs count as equal, and the defaults of a kind."""

import subprocess
import sys

import pytest

from stages.evaluation.metrics import METRICS, metric_of, scale_of
from stages.kinds._kind import KINDS, Kind
from stages.kinds._metric import Metric, Scale
from stages.prepare_task import kind_of
from stages.tasks._task import TASKS


def test_same_input_ignores_case_white_space_and_labels() -> None:
    texts, words = KINDS["classification"].same_input, KINDS["tagging"].same_input
    first = {"text": "A  cat\nsat", "label": "x"}
    assert texts(first) == texts({"text": "a cat sat", "label": "y"})
    assert texts(first) != texts({"text": "a cat", "text_pair": "sat", "label": "x"})
    assert words({"words": ["a", "b"], "tags": []}) != words({"words": ["a b"], "tags": []})


def test_split_key_of_a_question_is_its_context() -> None:
    kind = KINDS["span_qa"]
    first = {"question": "Who?", "context": "Ada wrote.", "answers": []}
    second = {"question": "What?", "context": "ada  wrote.", "answers": []}
    assert kind.split_key(first) == kind.split_key(second)
    assert kind.split_key(first) != kind.split_key(first | {"context": "Bob sang."})
    assert kind.same_input(first) != kind.same_input(second)


@pytest.mark.parametrize("task", TASKS.names())
def test_kind_of_a_task_named_after_it_is_that_kind(task: str) -> None:
    """The kind is found by the task's name, so that its rows are prepared without torch."""
    assert kind_of(task, where="task").name == TASKS.find(task, where="task").kind.name


def test_metric_of_finds_every_metric_of_every_kind() -> None:
    own = [
        each.name for kind in KINDS.values() for each in kind.metrics if isinstance(each, Metric)
    ]
    assert len({*own}) == len(own) and not {*own} & METRICS.keys()
    for kind in KINDS.values():
        assert kind.metric_names and kind.right_if in (None, *kind.metric_names)
        for name in kind.metric_names:
            assert metric_of(name).name == name and scale_of(name).shown(0.5)


class Rated(Kind):
    inputs = ("text",)
    target = "rating"
    metrics = (
        Metric("distance", lambda gold, predicted: 0.0, Scale("", 1, 2, lower_is_better=True)),
        "accuracy",
    )


def test_compared_by_is_the_metric_asked_for_or_the_first() -> None:
    assert KINDS["seq2seq"].compared_by({})[0] == "bleu"
    assert Rated().compared_by({}) == ("distance", "accuracy")
    assert Rated().compared_by({"metric": "accuracy"}) == ("accuracy", "distance")


def test_kind_defaults_are_those_of_texts_with_a_text_as_answer() -> None:
    kind, row = Rated(), {"id": "1", "text": "A film.", "rating": "3"}
    assert kind.columns == ("text", "rating") and not kind.is_own_answer
    assert kind.inputs_of(row) == {"text": "A film."} and kind.texts(row) == ["A film."]
    (part,) = kind.answer_parts(row)
    assert kind.answer(row) == "3" == kind.repeated(part, row)
    assert kind.read("rating", 3, {}, "a.csv line 2: rating") == "3"
    with pytest.raises(ValueError, match="a.csv line 2: rating is empty"):
        kind.read("rating", " ", {}, "a.csv line 2: rating")


@pytest.mark.slow
def test_kinds_import_no_torch() -> None:
    code = (
        "import sys, stages.prepare_task, stages.evaluate, stages.fit_baseline\n"
        "from stages.kinds._kind import KINDS\n"
        "print([kind.name for kind in KINDS.values()], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{KINDS.names()} False\n"
