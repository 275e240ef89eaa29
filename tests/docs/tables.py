"""Committed tables: CSV files, and the tables in Markdown files; and what is computed from them."""

import csv
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from tests.docs.pages import ROOT

Row = dict[str, str]

NUMBER = re.compile(r"(?<![\w.,])(?<!\w-)[+-]?\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w]|\.\d)")
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "mean": statistics.fmean,
    "median": statistics.median,
    "standard error": lambda values: statistics.stdev(values) / len(values) ** 0.5,
}
COUNTS: dict[str, Callable[[Sequence[str]], int]] = {
    "count": len,
    "distinct": lambda cells: len(set(cells)),
}
UNITS = {"points": 100, "percent": 100, "minutes": 1 / 60, "thousands": 1e-3, "millions": 1e-6}


@cache
def rows(file: str) -> list[Row]:
    """The rows of a table, each a cell by the name of its column.

    Of a Markdown file: those of all its tables, with the heading above them as ``heading``.
    """
    path = ROOT / file
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as table:
            return list(csv.DictReader(table))
    found: list[Row] = []
    names: list[str] = []
    heading = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [_plain(cell) for cell in line.strip()[1:-1].split("|")]
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            names = []
        elif not names:
            names = cells
        elif set(line) - set("|:- "):
            found.append({"heading": heading, **dict(zip(names, cells, strict=True))})
    return found


def _plain(cell: str) -> str:
    """Without Markdown, and with the signs of a CSV file."""
    text = re.sub(r"[\\*`]", "", cell.strip()).replace("\N{MINUS SIGN}", "-")
    return re.sub(r"^_(.*)_$", r"\1", text)


def numbers(text: str) -> list[str]:
    """As they are written, without plus signs and separators; none of code, names or versions."""
    bare = re.sub(r"`[^`]*`", "", text).replace("\N{MINUS SIGN}", "-")
    return [number.lstrip("+").replace(",", "") for number in NUMBER.findall(bare)]


@dataclass(frozen=True)
class Value:
    """``FILE; COLUMN + ...; NAME=CELL; ...; AGGREGATE; ...; UNIT``: the cells of columns in rows
    that have these other cells, and what is computed from them.

    Without an aggregate, the numbers of one row.
    """

    found: list[str]
    computed: list[str]

    @classmethod
    def read(cls, about: str) -> "Value":
        """Raises AssertionError where no row or column is meant, or more than one number."""
        file, columns, *rest = about.split("; ")
        wanted = dict(part.split("=", 1) for part in rest if "=" in part)
        computed = [part for part in rest if "=" not in part]
        unknown = set(computed) - UNITS.keys() - AGGREGATES.keys() - COUNTS.keys()
        assert not unknown, f"{unknown}: {about}"
        names = columns.split(" + ")
        table = [row for row in rows(file) if row.keys() >= {*wanted, *names}]
        assert table, f"no such columns: {about}"
        chosen = [row for row in table if wanted.items() <= row.items()]
        one = len({tuple(row[name] for name in names) for row in chosen}) == 1
        assert one or set(computed) - UNITS.keys(), f"{len(chosen)} rows: {about}"
        return cls([row[name] for row in chosen for name in names if row[name]], computed)

    @property
    def aggregated(self) -> list[float]:
        """Empty without an aggregate."""
        counts = [float(COUNTS[name](self.found)) for name in self.computed if name in COUNTS]
        made = [AGGREGATES[name] for name in self.computed if name in AGGREGATES]
        values = [self._unit * each([float(x) for x in self.found]) for each in made]
        return counts + values

    @property
    def numbers(self) -> list[float]:
        """Those that a sentence may have."""
        written = [self._unit * float(x) for cell in self.found for x in numbers(cell)]
        return self.aggregated or written

    @property
    def _unit(self) -> float:
        (unit,) = [UNITS[name] for name in self.computed if name in UNITS] or [1]
        return unit


def is_written(number: str, value: float) -> bool:
    """Whether a number is this value, rounded to its own decimals, with or without its sign."""
    decimals = len(number.partition(".")[2])
    return number in (f"{value:.{decimals}f}", f"{abs(value):.{decimals}f}")
