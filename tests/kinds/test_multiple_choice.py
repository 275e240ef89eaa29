"""Choices: reading them and the right one, and their form as text."""

import pytest

from stages.kinds._kind import KINDS
from stages.kinds._text_form import NO_LABEL
from stages.kinds.multiple_choice import TextWithChoices

ROW = {"text": "It rained.", "choices": ["He got wet.", "He ate."], "question": "effect"}


@pytest.mark.parametrize(
    ("first", "label", "expected"),
    [(0, "0", "0"), (0, "1", "1"), (1, "1", "0"), (1, "2", "1"), ("A", "A", "0"), ("A", "b", "1")],
)
def test_checked_counts_the_right_choice_from_0(first, label: str, expected: str) -> None:
    kind = TextWithChoices(first_choice=first)
    row = kind.checked(ROW | {"label": label}, "line 1")
    assert row["label"] == kind.answer(row) == expected


@pytest.mark.parametrize(
    ("first", "label"), [(0, "2"), (0, "-1"), (0, "A"), (1, "0"), (1, "3"), ("A", "C"), ("A", "1")]
)
def test_checked_refuses_a_label_that_is_none_of_the_choices(first, label: str) -> None:
    with pytest.raises(ValueError, match=r"^line 1.*first_choice"):
        TextWithChoices(first_choice=first).checked(ROW | {"label": label}, "line 1")


def test_checked_refuses_one_choice() -> None:
    with pytest.raises(ValueError, match="^line 1.*2 choices"):
        TextWithChoices().checked(ROW | {"choices": ["one"], "label": "0"}, "line 1")


def test_shown_is_the_text_of_a_choice() -> None:
    kind = KINDS["multiple_choice"]
    assert kind.shown(ROW, "1") == "He ate."
    assert kind.shown(ROW, NO_LABEL) == NO_LABEL and kind.shown(ROW, "7") == "7"


def test_as_text_writes_the_right_choice() -> None:
    form = KINDS["multiple_choice"].as_text("copa", {"task": {}, "labels": []})
    assert form.input(ROW) == (
        "copa text: It rained. question: effect choice1: He got wet. choice2: He ate."
    )
    assert form.answer(ROW | {"label": "1"}) == "He ate." and form.answer(ROW) is None
    assert form.prediction(ROW, "he  ate.") == "1"
    assert form.prediction(ROW, "He") == form.prediction(ROW, "") == NO_LABEL
    twice = ROW | {"choices": ["No.", "Yes.", "no."]}
    assert form.prediction(twice, "No.") == "0"
