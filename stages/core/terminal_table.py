"""Prints tables in a terminal without cutting numbers or names."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

ANY_WIDTH = 10_000  # columns of a terminal on which every table fits


class TableRow(NamedTuple):
    """The cells of a row: its texts, then its numbers."""

    texts: Sequence[str]
    numbers: Sequence[str | Text]
    style: str = ""


def print_table(
    console: Console,
    title: str,
    texts: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[TableRow],
) -> None:
    """Prints a table whose columns of texts are named ``texts``, and of numbers ``numbers``. On a
    narrow console it becomes several tables, one below the other, each with all columns of texts
    and as many columns of numbers as fit."""
    if title:
        console.print(Text(title, "bold"))
    rows, waiting = [*rows], [*range(len(numbers))]
    while waiting:
        for count in range(len(waiting), 0, -1):
            table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
            for name in texts:
                table.add_column(name, overflow="fold")
            for i in waiting[:count]:
                table.add_column(numbers[i], justify="right", no_wrap=True)
            for row in rows:
                cells = (row.numbers[i] for i in waiting[:count])
                table.add_row(*row.texts, *cells, style=row.style)
            unlimited = console.options.update_width(ANY_WIDTH)
            if Measurement.get(console, unlimited, table).maximum <= console.width:
                break
        console.print(table)
        waiting = waiting[count:]
