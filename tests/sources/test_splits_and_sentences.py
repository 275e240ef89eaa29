"""The split of a document depends on its key alone, or on its time, which is read without a guess;
sentences lose no character of a text."""

from collections import Counter
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources._columns import Cuts, cuts_of, time_of
from stages.sources._source import sentences, sentences_of, split_of
from stages.tasks._cells import EmptyCellError
from stages.tasks._task import SPLITS

WORDS = st.sampled_from(["The", "cat", "e.g.", "J.", "sat.", "Why?", "3", "'No!'", "(see", "Fig."])


def test_split_of_draws_eight_one_one_and_never_changes() -> None:
    counts = Counter(split_of(f"package/module_{i}.py") for i in range(10_000))
    assert abs(counts["train"] - 8000) < 150
    assert abs(counts["validation"] - 1000) < 120 and abs(counts["test"] - 1000) < 120
    drawn = {key: split_of(key) for key in "abcdefghijklmnopqrst" if split_of(key) != "train"}
    assert drawn == {"e": "test", "m": "validation", "n": "validation"}


def test_sentences_of_a_text_end_at_blank_lines_and_have_single_blanks() -> None:
    assert sentences_of("One.  Two\n goes on\n \nAnd three") == ["One.", "Two goes on", "And three"]


@given(st.lists(WORDS, min_size=1, max_size=30).map(" ".join))
def test_sentences_joined_by_blanks_are_the_text(text: str) -> None:
    assert " ".join(sentences(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "It works.|So we stop.",
        "Use a tree, e.g. Prim's, or cf. Sec. 3 of it.",
        "As J. Smith and Dr. Jones show in Fig. 2, it holds.",
        "Apples, pears, etc.|Those are fruit.",
        'He said "Stop!"|Then he left.',
        "“Stop!”|“Why?” he asked.",
        "it was dull .|the end was not .",
        "Version 1.2 is out.|3 people use it.",
    ],
)
def test_sentences_end_at_no_abbreviation(text: str) -> None:
    assert [*sentences(text.replace("|", " "))] == text.split("|")


# Times

ISO = "none"


def cuts(values: list[int]) -> Cuts:
    return cuts_of(((time_of(value, ISO, ""), "line") for value in values), "year")


@given(st.lists(st.integers(0, 30), min_size=3).filter(lambda values: len(set(values)) > 2))
def test_cuts_of_have_no_split_empty_and_no_earlier_row_in_a_later_split(values: list[int]) -> None:
    splits = [cuts(values).split_of(v) for v in sorted(values)]
    assert splits == sorted(splits, key=SPLITS.index)
    assert set(splits) == set(SPLITS)


@given(st.integers(10, 300))
def test_cuts_of_different_times_are_80_10_10_to_within_a_row(num: int) -> None:
    counts = Counter(map(cuts([*reversed(range(num))]).split_of, range(num)))
    shares = zip(SPLITS, (0.8, 0.1, 0.1), strict=True)
    assert all(abs(counts[split] - share * num) <= 1 for split, share in shares)


def test_cuts_of_equal_times_are_as_near_as_they_can_be() -> None:
    assert cuts([2019] * 50 + [2020] * 26 + [2021] * 12 + [2022] * 12) == (2021, 2022)


@given(st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), min_size=2, max_size=2))
def test_time_of_keeps_the_order_of_every_form(moments: list[datetime]) -> None:
    form = "%d.%m.%Y %H:%M:%S.%f"
    for cells, time_format in (
        (moments, ISO),
        ([m.replace(tzinfo=UTC) for m in moments], ISO),
        ([m.isoformat() for m in moments], ISO),
        ([m.strftime(form) for m in moments], form),
    ):
        first, second = (time_of(cell, time_format, "") for cell in cells)
        assert (first.value < second.value) == (moments[0] < moments[1])


@pytest.mark.parametrize(
    ("cell", "same", "form"),
    [
        ("2020-04-03", "2020-04-03 00:00", ISO),
        (date(2020, 4, 3), "2020-04-03", ISO),
        ("2020-04-03T02:00+02:00", "2020-04-03T00:00Z", ISO),
        (" 1585872000.5 ", 1585872000.5, ISO),
        ("03/04/2020", datetime(2020, 4, 3), "%d/%m/%Y"),
    ],
)
def test_time_of_reads_days_offsets_and_seconds(cell, same, form) -> None:
    assert time_of(cell, form, "").value == time_of(same, form, "").value


@pytest.mark.parametrize("cell", ["03/04/2020", "3.4.2020", "2020-13-01", "1_000", "inf", "spring"])
def test_time_of_guesses_nothing(cell: str) -> None:
    with pytest.raises(ValueError, match=rf"^a.csv line 2: day is {cell!r}, neither .*time_format"):
        time_of(cell, ISO, "a.csv line 2: day")
    with pytest.raises(ValueError, match="^line 2: day is '2020-04-03', not in the `time_format`"):
        time_of("2020-04-03", "%d/%m/%Y", "line 2: day")
    with pytest.raises(EmptyCellError, match="^line 2: day is empty"):
        time_of(" ", ISO, "line 2: day")
