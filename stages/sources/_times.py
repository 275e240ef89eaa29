"""The times of rows, and splits by time: the earliest rows are train, the latest are test."""

import math
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from itertools import accumulate
from typing import Any, NamedTuple

from stages.kinds._cells import short, text_of
from stages.kinds._kind import Split

FIRST_HELD_OUT = {"validation": 0.8, "test": 0.9}  # share of the rows before this split
ISO = "none"  # the ``time_format`` of ISO dates and numbers
NUMBER, LOCAL, WITH_OFFSET = "a number", "a time without an offset", "a time with an offset"
_EXAMPLE = datetime(2003, 11, 25, 16, 47, 38, tzinfo=UTC)


class Time(NamedTuple):
    """The time of a row. Times of the same ``form`` can be compared by ``value``."""

    value: float  # seconds since 1970, or the number in the cell
    form: str
    shown: str  # as the data has it


class Cuts(NamedTuple):
    """The first time of validation and the first time of test."""

    validation: float
    test: float

    def split_of(self, value: float) -> Split:
        if value >= self.test:
            return "test"
        return "validation" if value >= self.validation else "train"


def time_of(value: Any, time_format: str, place: str) -> Time:
    """Returns the time in a cell: a date or a datetime in ISO 8601, a number (a year, seconds), or
    a text in ``time_format``, the format of ``datetime.strptime``.

    Raises EmptyCellError for an empty cell, and ValueError, which begins with ``place``, for a cell
    in any other form. Nothing is guessed: 03/04/2020 may be in March or in April.
    """
    if isinstance(value, datetime | date) and value == value:  # a column of times of a parquet file
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        return _of_datetime(moment, str(value))
    text = text_of(value, place).strip()
    try:
        if time_format != ISO:
            return _of_datetime(datetime.strptime(text, time_format), text)
        number = _number(text)
        if number is not None:
            return Time(number, NUMBER, text)
        return _of_datetime(datetime.fromisoformat(text), text)
    except (ValueError, OverflowError):
        needed = (
            f"not in the `time_format` {time_format!r}"
            if time_format != ISO
            else "neither an ISO date such as 2020-04-03 nor a number; `time_format` "
            "(--time-format of make new) gives another form, such as '%d/%m/%Y' for days before "
            "months"
        )
        raise ValueError(f"{place} is {short(text)}, {needed}") from None


def check_time_format(time_format: str) -> None:
    """Raises ValueError unless a time written in the format can be read back, with its year."""
    try:
        year = datetime.strptime(_EXAMPLE.strftime(time_format), time_format).year
    except ValueError as error:
        raise ValueError(f"time_format: {time_format!r} cannot be read: {error}") from None
    if year != _EXAMPLE.year:
        raise ValueError(f"time_format: {time_format!r} has no year, such as %Y in '%d/%m/%Y'")


def cuts_of(times: Iterable[tuple[Time, str]], column: str) -> Cuts:
    """Returns the cuts by which about 80 % of the rows are train, 10 % validation and 10 % test.
    Rows of equal time are in one split, so the shares are as near to these as the times allow.

    ``times`` are those of all rows, each with the row's place. Raises ValueError for times that
    cannot be compared and for fewer than three different ones.
    """
    counts: Counter[float] = Counter()
    first: tuple[Time, str] | None = None
    for moment, place in times:
        first = first or (moment, place)
        if moment.form != first[0].form:
            raise ValueError(
                f"{place}: {column} is {short(moment.shown)}, {moment.form}, but {first[1]} has "
                f"{short(first[0].shown)}, {first[0].form}; write all in one form, since `time` "
                "compares them"
            )
        counts[moment.value] += 1
    if len(counts) < 3:
        raise ValueError(
            f"time: {column} has {len(counts)} different times, too few to draw three splits; "
            "give the splits yourself, or leave `time` out"
        )
    ordered = sorted(counts)
    earlier = [0, *accumulate(counts[value] for value in ordered)]  # rows before each time
    total = earlier[-1]

    def nearest(split: str, candidates: range) -> int:
        return min(candidates, key=lambda i: abs(earlier[i] - FIRST_HELD_OUT[split] * total))

    validation = nearest("validation", range(1, len(ordered) - 1))
    test = nearest("test", range(validation + 1, len(ordered)))
    return Cuts(ordered[validation], ordered[test])


def _number(text: str) -> float | None:
    """Returns the number that a text spells, or None. ``float`` alone would read 1_000 and inf."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def _of_datetime(moment: datetime, shown: str) -> Time:
    if moment.tzinfo is None:
        return Time(moment.replace(tzinfo=UTC).timestamp(), LOCAL, shown)
    return Time(moment.timestamp(), WITH_OFFSET, shown)
