"""Tasks as text: the text to read, the text to write, and the prediction that a text means."""

from typing import Any

from stages.tasks._task import TASKS
from stages.tasks._text_form import NO_LABEL, TextForm


def form(name: str, labels: list[str] = [], **settings: Any) -> TextForm:  # noqa: B006
    return TASKS[name].as_text("films", {"task": {"name": name, **settings}, "labels": labels})


def test_input_begins_with_the_task_and_each_part_with_its_column() -> None:
    one, two = {"text": "a fine film"}, {"text": "a film", "text_pair": "no film"}
    classes = form("classification", ["bad", "good"])
    assert classes.input(one | {"label": "good"}) == "films text: a fine film"
    assert classes.input(two) == "films text: a film text_pair: no film"
    tags = form("tagging", ["B-X", "O"])
    assert tags.input({"words": ["Ada", "met", "Bob"]}) == "films words: Ada met Bob"
    question = {"question": "Who?", "context": "Ada did.", "answers": []}
    assert form("span_qa").input(question) == "films question: Who? context: Ada did."


def test_answer_and_prediction_are_inverse() -> None:
    classes = form("classification", ["0", "very_good"], verbalisers=["0=bad"])
    assert classes.answer({"text": "x", "label": "0"}) == "bad"
    assert classes.answer({"text": "x", "label": "very_good"}) == "very good"
    assert classes.answer({"text": "x"}) is None
    assert classes.prediction({}, " very  good ") == "very_good"
    for other in ("0", "very", "Very good", "very good film", ""):
        assert classes.prediction({}, other) == NO_LABEL

    tags = form("tagging", ["B-X", "O"])
    row = {"words": ["Ada", "met", "Bob"]}
    assert tags.answer(row | {"tags": ["B-X", "O", "B-X"]}) == "B-X O B-X"
    assert tags.prediction(row, "B-X O B-X") == "B-X O B-X"
    assert tags.prediction(row, "B-Y B-X") == "O B-X O"  # no such tag, and too few
    assert tags.prediction(row, "O O B-X B-X B-X") == "O O B-X"

    facts = form("span_qa")
    answers = [{"text": "Ada", "answer_start": 0}, {"text": "Ada B.", "answer_start": 0}]
    assert facts.answer({"question": "", "context": "", "answers": answers}) == "Ada"
    assert facts.answer({"question": "", "context": "", "answers": []}) == ""
    assert facts.prediction({}, "Ada") == "Ada"
