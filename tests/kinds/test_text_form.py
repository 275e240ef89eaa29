"""Tasks as text: the text to read, the text to write, and the prediction that a text means."""

from typing import Any

import pytest

from stages.kinds._kind import KINDS
from stages.kinds._text_form import NO_LABEL, TextForm, label_words


def form(name: str, labels: list[str] = [], **settings: Any) -> TextForm:  # noqa: B006
    return KINDS[name].as_text("films", {"task": {"name": name, **settings}, "labels": labels})


def test_input_begins_with_the_task_and_each_part_with_its_column() -> None:
    one, two = {"text": "a fine film"}, {"text": "a film", "text_pair": "no film"}
    classes = form("classification", ["bad", "good"])
    assert classes.input(one | {"label": "good"}) == "films text: a fine film"
    assert classes.input(two) == "films text: a film text_pair: no film"
    tags = form("tagging", ["B-X", "O"])
    assert tags.input({"words": ["Ada", "met", "Bob"]}) == "films words: Ada met Bob"
    question = {"question": "Who?", "context": "Ada did.", "answers": []}
    assert form("span_qa").input(question) == "films question: Who? context: Ada did."


def test_input_of_seq2seq_begins_with_its_own_prefix() -> None:
    row = {"text": "a film", "target": "ein Film"}
    assert form("seq2seq").input(row) == "a film"
    translation = form("seq2seq", prefix="to German: ")
    assert translation.input(row) == "to German: a film"
    assert translation.answer(row) == translation.prediction(row, "ein Film") == "ein Film"


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


@pytest.mark.parametrize(
    ("labels", "verbalisers", "message"),
    [
        (["a", "b"], ["a"], "verbalisers: 'a' is not of the form label=words"),
        (["a", "b"], ["a="], "verbalisers: 'a=' is not of the form label=words"),
        (["a", "b"], ["a=x", "a=y"], "verbalisers: the label 'a' has two"),
        (["a", "b"], ["c=x"], "verbalisers: 'c' is not a label"),
        (["a", "b"], ["a=b"], "verbalisers: labels a and b share"),
        (["a_b", "a b"], [], "verbalisers: labels a_b and a b share"),
        (["a", NO_LABEL], [], "the label '<no label>' is reserved"),
    ],
)
def test_label_words_refuse_labels_that_words_do_not_tell_apart(
    labels, verbalisers, message
) -> None:
    with pytest.raises(ValueError) as error:
        label_words(labels, verbalisers)
    assert message in str(error.value)
