"""Cells of labels and numbers: one spelling of each, and what is refused instead of misread."""

from typing import Any

import pytest

from stages.tasks._cells import EmptyCellError
from stages.tasks._labels import alike, check_unclear, label_of
from stages.tasks._task import TASKS, Task
from stages.tasks.classification import Classification
from stages.tasks.multi_label import MultiLabel
from stages.tasks.multiple_choice import MultipleChoice
from stages.tasks.regression import Regression

ONE, SEVERAL, NUMBER = (TASKS[n] for n in ("classification", "multi_label", "regression"))
FOLDED = Classification.for_rows(no_label=[-1, "-"], label_case="fold")
HOT, COMMA = MultiLabel.for_rows(multi_hot=True), Regression.for_rows(decimal="comma")
PIPES = MultiLabel.for_rows(label_separator="|")


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        *((1, "1"), (1.0, "1"), ("1.0", "1"), ("-1.0", "-1"), (0.5, "0.5"), (True, "True")),
        *((" a\u200b", "a"), ("a\xa0b", "a b"), ("cafe\u0301", "caf\u00e9"), ("\ufeffa", "a")),
    ],
)
def test_label_of_has_one_spelling(cell: object, label: str) -> None:
    assert label_of(cell, "line 1: label") == label


def test_check_unclear_names_labels_that_differ_in_spelling_alone() -> None:
    assert alike(["Good", "good.", "bad", "C", "C++", "C#"]) == [["Good", "good."]]
    with pytest.raises(ValueError, match=r"label_case: .*'a' \(9 rows\) and 'A' \(1 rows\)"):
        check_unclear({"a": 9, "A": 1}, {})
    with pytest.raises(ValueError, match=r"no_label: is '-1' \(3 rows\) a class"):
        check_unclear({"0": 9, "1": 4, "-1": 3}, {})
    check_unclear({"a": 9, "A": 1, "-1": 3}, {"label_case": "keep", "no_label": "none"})


@pytest.mark.parametrize(
    ("kind", "cells", "expected"),
    [
        (FOLDED, (["A"], '["A"]', "['A']", " a "), "a"),
        (FOLDED, ("-", -1, "-1.0"), None),
        (SEVERAL, (["b", " a "], "b,a", " b , a,a", "b,,a,", "['a', 'b']", "[a, b]"), ["a", "b"]),
        (SEVERAL, (None, "", " ", float("nan"), [], ",", "set()"), []),
        (SEVERAL, ({"a": 1, "b": "0", "c": True}, {"a": "yes", "c": "1"}), ["a", "c"]),
        (PIPES, ("b, c|a",), ["a", "b, c"]),
        (HOT, ("[0, 1, 1]", [0, 1, 1]), ["1", "2"]),
        (NUMBER, (3, "3", " 3.0 ", "+3e0"), 3.0),
        (COMMA, ("1234,5", "+1234,50"), 1234.5),
    ],
)
def test_read_gives_one_value_for_all_its_spellings(kind: Task, cells, expected) -> None:
    for cell in cells:
        assert kind.read(kind.target, cell, {}, "line 2") == expected


@pytest.mark.parametrize(
    ("kind", "cells", "error", "message"),
    [
        (ONE, (["a", "b"],), ValueError, "has 2 labels; multi_label"),
        (SEVERAL, ([1, 0, 1],), ValueError, "multi_hot"),
        (SEVERAL, ({"a": 1, "b": -1},), EmptyCellError, "b is -1"),
        (SEVERAL, ({"b": 0.3},), ValueError, "b must be 0 or 1, not 0.3"),
        (SEVERAL, (["a", None], 3.5), ValueError, ""),
        (NUMBER, ("1,5", "1 234", "1,234.5"), ValueError, "decimal: comma"),
        (COMMA, ("1.234,5", "1.234", "1.5"), ValueError, "thousands"),
        (NUMBER, ("nan", "-", "inf", "", None), EmptyCellError, ""),
        (NUMBER, ("three", [3.0]), ValueError, ""),
    ],
)
def test_read_refuses_what_would_be_misread(kind: Task, cells, error, message: str) -> None:
    for cell in cells:
        with pytest.raises(error, match=f"^line 2: y.*{message}"):
            kind.read(kind.target, cell, {}, "line 2: y")


@pytest.mark.parametrize("cell", ["['a' 'b']", "[0 1]", 'c("a", "b")', "{a,b}", "array(['a'])"])
@pytest.mark.parametrize("kind", [ONE, SEVERAL, TASKS["tagging"]])
def test_read_refuses_lists_in_other_forms_than_those_of_json_and_python(kind, cell: str) -> None:
    with pytest.raises(ValueError, match="no list in JSON"):
        kind.read(kind.target, cell, {}, "line 2: y")


@pytest.mark.parametrize(
    ("first", "labels", "wrong"),
    [(0, "01", ("2", "-1", "A")), (1, "12", ("0", "3")), ("A", "Ab", ("C", "1"))],
)
def test_checked_counts_the_right_choice_from_0(first: Any, labels, wrong) -> None:
    kind, row = MultipleChoice.for_rows(first_choice=first), {"text": "x", "choices": ["a", "b"]}
    numbers = [kind.checked(row | {"label": label}, "line 1")["label"] for label in labels]
    assert numbers == ["0", "1"]
    for label in wrong:
        with pytest.raises(ValueError, match=r"^line 1.*first_choice"):
            kind.checked(row | {"label": label}, "line 1")
