"""The tables of components come from the components themselves."""

import re
from pathlib import Path

from stages.commands import components

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tasks_and_methods.md"


def test_filled_pages_show_the_tables_as_they_are_generated() -> None:
    """`python -m stages.commands.components --write docs/tasks_and_methods.md` updates them."""
    text = PAGE.read_text(encoding="utf-8")
    assert components.filled(text) == text


def test_filled_pages_have_every_table() -> None:
    marks = re.findall(r"<!-- generated: (\w+) -->", PAGE.read_text(encoding="utf-8"))
    assert sorted(marks) == sorted(components.FOLDERS)
