"""One spelling of each label; labels that can be read in two ways are named."""

import pytest

from stages.tasks._cells import EmptyCellError
from stages.tasks._labels import alike, check_unclear, label_of, read_label
from stages.tasks._task import TASKS
from stages.tasks.classification import Classification
from stages.tasks.multi_label import MultiLabel
from stages.tasks.regression import Regression


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        *((1, "1"), (1.0, "1"), ("1.0", "1"), ("-1.0", "-1"), (0.5, "0.5"), (True, "True")),
        *((" a\u200b", "a"), ("a\xa0b", "a b"), ("cafe\u0301", "caf\u00e9"), ("\ufeffa", "a")),
    ],
)
def test_label_of_has_one_spelling(cell: object, label: str) -> None:
    assert label_of(cell, "line 1: label") == label


def test_alike_groups_labels_by_letters_that_look_alike() -> None:
    """A Cyrillic `а` in a Latin word, a Latin `c` in a Russian one, a Greek `Α`."""
    latin, russian = ["spam", "sp\u0430m"], ["спам", "cпам"]
    assert alike([*latin, *russian, "ΑI", "AI"]) == [latin, russian, ["ΑI", "AI"]]
    assert alike(["mm", "μm", "IT-отдел", "отдел", "Δt", "оса", "oca"]) == []
    with pytest.raises(
        ValueError, match=r"'spam' \(9 rows\) and 'sp\u0430m' \(1 rows with CYRILLIC SM"
    ):
        check_unclear({"spam": 9, "sp\u0430m": 1}, {})
    assert read_label("sp\u0430m", "line 1: label", "ask", "fold") == "spam"


def test_labelled_text_reads_lists_of_one_and_leaves_out_signs() -> None:
    kind = Classification.for_rows(no_label=[-1, "-"], label_case="fold")
    for cell in (["A"], '["A"]', "['A']", " a "):
        assert kind.read("label", cell, {}, "") == "a"
    for sign in ("-", -1, "-1.0"):
        assert kind.checked({"label": kind.read("label", sign, {}, "")}, "") is None
    with pytest.raises(ValueError, match="line 2: label has 2 labels; multi_label"):
        kind.read("label", ["a", "b"], {}, "line 2: label")


def test_text_with_labels_reads_0_and_1_by_name_and_position() -> None:
    kind = TASKS["multi_label"]
    assert kind.read("labels", {"a": 1, "b": "0", "c": True, "d": "yes"}, {}, "") == ["a", "c", "d"]
    assert MultiLabel.for_rows(multi_hot=True).read("labels", "[0, 1, 1]", {}, "") == ["1", "2"]
    with pytest.raises(ValueError, match="labels is .*multi_hot"):
        kind.read("labels", [1, 0, 1], {}, "line 2: labels")
    with pytest.raises(EmptyCellError, match="line 2: a, b b is -1"):
        kind.read("labels", {"a": 1, "b": -1}, {}, "line 2: a, b")
    with pytest.raises(ValueError, match="must be 0 or 1, not 0.3"):
        kind.read("labels", {"a": 0.3}, {}, "line 2: a")


def test_rated_text_reads_decimal_commas_where_they_are_stated() -> None:
    comma = Regression.for_rows(decimal="comma")
    cells = {"1,5": 1.5, "1.234,5": 1234.5, "1.000": 1000.0, "-3": -3.0, "2.5": 2.5}
    assert {cell: comma.read("target", cell, {}, "") for cell in cells} == cells
    with pytest.raises(ValueError, match="line 2: y must be .*'1,5'.*decimal: comma"):
        TASKS["regression"].read("target", "1,5", {}, "line 2: y")
    for cell in ("nan", "-", "inf"):
        with pytest.raises(EmptyCellError, match="line 2: y must be a finite number"):
            TASKS["regression"].read("target", cell, {}, "line 2: y")
