"""One spelling of each label; labels that can be read in two ways are named."""

import pytest

from stages.kinds._cells import EmptyCellError, structure_of
from stages.kinds._kind import KINDS
from stages.kinds._labels import alike, check_unclear, label_of, read_label, signs_of_none
from stages.kinds.classification import LabelledText
from stages.kinds.multi_label import TextWithLabels
from stages.kinds.regression import RatedText, decimal_of


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        *((1, "1"), (1.0, "1"), ("1.0", "1"), ("-1.0", "-1"), (0.5, "0.5"), (True, "True")),
        *((" a\u200b", "a"), ("a\xa0b", "a b"), ("cafe\u0301", "caf\u00e9"), ("\ufeffa", "a")),
    ],
)
def test_label_of_has_one_spelling(cell: object, label: str) -> None:
    assert label_of(cell, "line 1: label") == label


@pytest.mark.parametrize("cell", [None, "", "\u200b", float("nan")])
def test_label_of_refuses_empty_cells(cell: object) -> None:
    with pytest.raises(EmptyCellError, match="line 1: label is empty"):
        label_of(cell, "line 1: label")


@pytest.mark.parametrize(
    ("labels", "signs"),
    [
        (["-1", "0", "1", "2"], {"-1": True}),
        (["-100", "0", "1", "2"], {"-100": True}),
        (["-1", "0", "1"], {"-1": False}),
        (["-1", "yes", "no"], {"-1": False}),
        (["-1", "1"], {}),
        (["-2", "-1", "0", "1"], {}),
        (["nan", r"\N", "-", "NA", "none", "a"], {"nan": True, r"\N": True, "-": False}),
    ],
)
def test_signs_of_none_are_certain_or_asked(labels: list[str], signs: dict[str, bool]) -> None:
    assert signs_of_none(dict.fromkeys(labels, 1)) == signs


def test_alike_groups_labels_by_case_form_and_truth() -> None:
    assert alike(["a", "A", "b"]) == [["a", "A"]]
    assert alike(["ｇood", "good", "no", "ＮＯ"]) == [["ｇood", "good"], ["no", "ＮＯ"]]
    assert alike(["True", "1", "0"]) == [["True", "1"]]
    assert alike(["True", "False", "NA", "EU"]) == []


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


def test_check_unclear_is_content_with_a_setting() -> None:
    counts = {"a": 3, "A": 2, "-": 1}
    with pytest.raises(ValueError, match=r"no_label: is '-' \(1 rows\)"):
        check_unclear(counts, {})
    with pytest.raises(ValueError, match=r"label_case: .*'a' \(3 rows\) and 'A' \(2 rows\)"):
        check_unclear(counts, {"no_label": "none"})
    check_unclear(counts, {"no_label": "none", "label_case": "keep"})


def test_labelled_text_reads_lists_of_one_and_leaves_out_signs() -> None:
    kind = LabelledText(no_label=[-1, "-"], label_case="fold")
    for cell in (["A"], '["A"]', "['A']", " a "):
        assert kind.read("label", cell, {}, "") == "a"
    for sign in ("-", -1, "-1.0"):
        assert kind.checked({"label": kind.read("label", sign, {}, "")}, "") is None
    with pytest.raises(ValueError, match="line 2: label has 2 labels; multi_label"):
        kind.read("label", ["a", "b"], {}, "line 2: label")


@pytest.mark.parametrize(
    ("text", "structure"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a', \"it's\"]", ["a", "it's"]),
        ("('a', 'b')", ["a", "b"]),
        ("{'b', 'a'}", ["a", "b"]),
        ("['new york' 'a, b']", ["new york", "a, b"]),
        ("[0 1]", [0, 1]),
        ("[0. 1.]", [0.0, 1.0]),
        (
            "{'text': array(['a'], dtype=object), 'n': array([1, 2], dtype=int32)}",
            {"text": ["a"], "n": [1, 2]},
        ),
        ("['a', nan]", ["a", None]),
        ("[]", []),
        *((text, None) for text in ("[removed]", "(1)", "a", "", "[", "[1 - 2]", "{a}")),
    ],
)
def test_structure_of_reads_what_a_csv_file_makes_of_lists(text: str, structure: object) -> None:
    assert structure_of(text) == structure


def test_text_with_labels_reads_0_and_1_by_name_and_position() -> None:
    kind = KINDS["multi_label"]
    assert kind.read("labels", {"a": 1, "b": "0", "c": True, "d": "yes"}, {}, "") == ["a", "c", "d"]
    assert TextWithLabels(multi_hot=True).read("labels", "[0, 1, 1]", {}, "") == ["1", "2"]
    with pytest.raises(ValueError, match="labels is .*multi_hot"):
        kind.read("labels", [1, 0, 1], {}, "line 2: labels")
    with pytest.raises(EmptyCellError, match="line 2: a, b b is -1"):
        kind.read("labels", {"a": 1, "b": -1}, {}, "line 2: a, b")
    with pytest.raises(ValueError, match="must be 0 or 1, not 0.3"):
        kind.read("labels", {"a": 0.3}, {}, "line 2: a")


def test_rated_text_reads_decimal_commas_where_they_are_stated() -> None:
    comma = RatedText(decimal="comma")
    cells = {"1,5": 1.5, "1.234,5": 1234.5, "1.000": 1000.0, "-3": -3.0, "2.5": 2.5}
    assert {cell: comma.read("target", cell, {}, "") for cell in cells} == cells
    with pytest.raises(ValueError, match="line 2: y must be .*'1,5'.*decimal: comma"):
        KINDS["regression"].read("target", "1,5", {}, "line 2: y")
    for cell in ("nan", "-", "inf"):
        with pytest.raises(EmptyCellError, match="line 2: y must be a finite number"):
            KINDS["regression"].read("target", cell, {}, "line 2: y")


@pytest.mark.parametrize(
    ("texts", "decimal", "is_sure"),
    [
        (["1.5", "2"], "point", True),
        (["1.234", "5.678"], "point", False),
        (["1.234", "0.678"], "point", True),
        (["1,5", "2,5"], "comma", True),
        (["1,55", "2"], "comma", True),
        (["1,5", "2"], "comma", False),
        (["1,234", "2,567"], "comma", False),
    ],
)
def test_decimal_of_is_sure_of_one_reading(texts: list[str], decimal: str, is_sure: bool) -> None:
    assert decimal_of(texts) == (decimal, is_sure)
