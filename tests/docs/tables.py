"""Committed tables, in CSV and Markdown files, and numbers that are computed from them."""

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
    """Returns the rows of a file, cells by the name of their column. The rows of a Markdown file
    are those of all its tables; each has the heading above it as ``heading``.
    """
    path = ROOT / file
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as table:
            return list(csv.DictReader(table))
    in_tables: list[Row] = []
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
            in_tables.append({"heading": heading, **dict(zip(names, cells, strict=True))})
    return in_tables


def _plain(cell: str) -> str:
    """Returns a cell without Markdown and with ASCII minus signs."""
    text = re.sub(r"[\\*`]", "", cell.strip()).replace("\N{MINUS SIGN}", "-")
    return re.sub(r"^_(.*)_$", r"\1", text)


def numbers(text: str) -> list[str]:
    """Returns the numbers of a text, without plus signs and separators. Numbers in code, names and
    versions do not count."""
    bare = re.sub(r"`[^`]*`", "", text).replace("\N{MINUS SIGN}", "-")
    return [number.lstrip("+").replace(",", "") for number in NUMBER.findall(bare)]


@dataclass(frozen=True)
class Value:
    """The numbers of ``FILE; COLUMN + ...; NAME=CELL; ...; AGGREGATE; ...; UNIT``: the columns, in
    the rows that have these cells, aggregated. Without an aggregate there must be one such row.
    """

    cells: list[str]
    computed: list[str]  # aggregates and a unit

    @classmethod
    def read(cls, about: str) -> "Value":
        """Raises AssertionError for an unknown column or aggregate, and for several rows without
        an aggregate."""
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
        """The aggregates; empty without any."""
        counts = [float(COUNTS[name](self.cells)) for name in self.computed if name in COUNTS]
        functions = [AGGREGATES[name] for name in self.computed if name in AGGREGATES]
        return counts + [self._unit * f([float(x) for x in self.cells]) for f in functions]

    @property
    def numbers(self) -> list[float]:
        """The numbers that a sentence may have."""
        return self.aggregated or [
            self._unit * float(x) for cell in self.cells for x in numbers(cell)
        ]

    @property
    def _unit(self) -> float:
        (unit,) = [UNITS[name] for name in self.computed if name in UNITS] or [1]
        return unit


def is_written(number: str, value: float) -> bool:
    """Returns whether a number is this value, rounded to the number's decimals, with or without its
    sign."""
    decimals = len(number.partition(".")[2])
    return number in (f"{value:.{decimals}f}", f"{abs(value):.{decimals}f}")
