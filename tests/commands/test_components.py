"""The tables of components come from the components themselves."""

import re
from pathlib import Path

import pytest

from stages.commands import components
from tests.terminals import on_terminals

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tasks_and_methods.md"


def test_filled_pages_show_the_tables_as_they_are_generated() -> None:
    """`python -m stages.commands.components --write docs/tasks_and_methods.md` updates them."""
    text = PAGE.read_text(encoding="utf-8")
    assert components.filled(text) == text


def test_filled_pages_have_every_table() -> None:
    marks = re.findall(r"<!-- generated: (\w+) -->", PAGE.read_text(encoding="utf-8"))
    assert sorted(marks) == sorted(components.FOLDERS)


@pytest.mark.parametrize("folder", components.FOLDERS)
def test_table_has_a_row_for_each_component(folder: str) -> None:
    _, _, *rows = components.table(folder).splitlines()
    names = [re.findall(r"^\| `(\w+)` \|", row)[0] for row in rows]
    assert names == components.FOLDERS[folder].names()
    assert all(len(row.split(" | ")) == 3 for row in rows)


def test_table_has_the_types_and_defaults_of_settings() -> None:
    (row,) = [row for row in components.table("objectives").splitlines() if "| `mlm`" in row]
    assert "`mask_prob: float = 0.15`" in row and "`next_sentence: nsp/sop/none = none`" in row
    (row,) = [row for row in components.table("models").splitlines() if "| `modernbert`" in row]
    assert "`d_model: int`<br>" in row and "`num_layers: int = (left out)`" in row


def test_filled_refuses_a_mark_that_names_no_table() -> None:
    with pytest.raises(ValueError, match="objectivs"):
        components.filled("<!-- generated: objectivs -->\n<!-- end -->")


@pytest.mark.slow
def test_components_prints_the_same_to_every_terminal(tmp_path: Path) -> None:
    """The tables are Markdown, which the terminal wraps."""
    texts = on_terminals("components", "optimizers", folder=tmp_path)
    assert {*texts.values()} == {components.table("optimizers")}
