"""Times are read without a guess, and splits by time follow their order."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources._columns import cuts_of, time_of
from stages.tasks._cells import EmptyCellError
from stages.tasks._kind import SPLITS

ISO = "none"


def number(value: float) -> float:
    return time_of(value, ISO, "a.csv line 2: year").value


@given(st.lists(st.integers(0, 30), min_size=3).filter(lambda values: len(set(values)) > 2))
def test_cuts_of_have_no_split_empty_and_no_earlier_row_in_a_later_split(values: list[int]) -> None:
    cuts = cuts_of(((time_of(v, ISO, ""), "line") for v in values), "year")
    splits = [cuts.split_of(v) for v in sorted(values)]
    assert splits == sorted(splits, key=SPLITS.index)
    assert set(splits) == set(SPLITS)


@given(st.integers(10, 300))
def test_cuts_of_different_times_are_80_10_10_to_within_a_row(num: int) -> None:
    cuts = cuts_of(((time_of(v, ISO, ""), "line") for v in reversed(range(num))), "year")
    counts = Counter(cuts.split_of(v) for v in range(num))
    shares = zip(SPLITS, (0.8, 0.1, 0.1), strict=True)
    assert all(abs(counts[split] - share * num) <= 1 for split, share in shares)


def test_cuts_of_equal_times_are_as_near_as_they_can_be() -> None:
    values = [2019] * 50 + [2020] * 26 + [2021] * 12 + [2022] * 12
    cuts = cuts_of(((time_of(v, ISO, ""), "line") for v in values), "year")
    assert cuts == (2021, 2022)


@given(st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), min_size=2, max_size=2))
def test_time_of_keeps_the_order_of_every_form(moments: list[datetime]) -> None:
    for format in (ISO, "%d.%m.%Y %H:%M:%S.%f"):
        shown = [m.isoformat() if format == ISO else m.strftime(format) for m in moments]
        first, second = (time_of(text, format, "") for text in shown)
        assert (first.value < second.value) == (moments[0] < moments[1])
    first, second = (time_of(m.replace(tzinfo=UTC), ISO, "") for m in moments)
    assert (first.value < second.value) == (moments[0] < moments[1])


def test_time_of_reads_days_offsets_years_and_seconds() -> None:
    assert time_of("2020-04-03", ISO, "").value == time_of("2020-04-03 00:00", ISO, "").value
    assert (
        time_of("2020-04-03T02:00+02:00", ISO, "").value
        == time_of("2020-04-03T00:00Z", ISO, "").value
    )
    assert number(2020) == 2020 and time_of(" 1585872000.5 ", ISO, "").value == 1585872000.5
    assert (
        time_of("03/04/2020", "%d/%m/%Y", "").value == time_of("04/03/2020", "%m/%d/%Y", "").value
    )


@pytest.mark.parametrize("cell", ["03/04/2020", "3.4.2020", "2020-13-01", "1_000", "inf", "spring"])
def test_time_of_guesses_nothing(cell: str) -> None:
    with pytest.raises(ValueError, match=rf"^a.csv line 2: day is {cell!r}, neither .*time_format"):
        time_of(cell, ISO, "a.csv line 2: day")
    with pytest.raises(ValueError, match="^line 2: day is '2020-04-03', not in the `time_format`"):
        time_of("2020-04-03", "%d/%m/%Y", "line 2: day")
    with pytest.raises(EmptyCellError, match="^line 2: day is empty"):
        time_of(" ", ISO, "line 2: day")
