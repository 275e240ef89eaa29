import io

import pytest
from rich.console import Console

from stages.core.terminal_table import TableRow, print_table
from tests.terminals import WIDTHS

NUMBERS = [f"number {i}" for i in range(12)]
ROWS = [
    TableRow(
        (f"encoder_with_a_name_{i}", "span_corruption"),
        [f"{i}.{j} (0.1 to 0.9)" for j in range(12)],
    )
    for i in range(3)
]


def shown(width: int) -> str:
    screen = io.StringIO()
    print_table(Console(file=screen, width=width), "A title", ("run", "objective"), NUMBERS, ROWS)
    return screen.getvalue()


@pytest.mark.parametrize("width", [*WIDTHS, 1000])
def test_print_table_cuts_nothing(width: int) -> None:
    text = shown(width)
    assert all(len(line) <= width for line in text.splitlines()) and text.count("A title") == 1
    for row in ROWS:
        assert all(str(cell) in text for cell in (*row.texts, *row.numbers))
    assert all(text.count(f"{name} ") + text.count(f"{name}\n") >= 1 for name in NUMBERS)


def test_print_table_makes_no_more_tables_than_needed() -> None:
    assert [shown(width).count("objective") for width in (60, 80, 1000)] == [12, 6, 1]
