"""The columns of new rows, and rows for multiple choice."""

import json
from pathlib import Path

import pytest

from stages.commands.predict import Columns, new_rows

COLUMNS = Columns("multiple_choice", ("text", "choices"), ("question",))


def test_read_takes_choices_from_lists_of_texts(tmp_path: Path) -> None:
    rows = [
        {"text": "It rained.", "choices": ["He got wet.", "He ate."]},
        {"text": "It rained.", "choices": ["One.", "Two.", "Three."], "question": "effect"},
    ]
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = [row.row for row in new_rows(tmp_path / "new.jsonl", None, COLUMNS, {}, {})]
    assert read == [{"id": str(i), **row} for i, row in enumerate(rows)]


def test_read_takes_the_names_of_the_study_where_its_own_are_missing(tmp_path: Path) -> None:
    """A column that the user names goes first, then the input's own name, then the study's."""
    file = tmp_path / "new.csv"
    in_study, single = {"text": "a", "text_pair": "b"}, Columns("classification", ("text",), ())
    pair = Columns("classification", ("text", "text_pair"), ())
    file.write_text("a,b\none,two\n")
    (row,) = new_rows(file, None, pair, {}, in_study)
    assert row.row == {"id": "0", "text": "one", "text_pair": "two"}
    (row,) = new_rows(file, None, single, {"text": "b"}, in_study)
    assert row.row == {"id": "0", "text": "two"}
    file.write_text("a,text\none,three\n")
    (row,) = new_rows(file, None, single, {}, in_study)
    assert row.row == {"id": "0", "text": "three"}
    with pytest.raises(ValueError, match="no column 'text_pair'; .* --column text_pair=COLUMN$"):
        list(new_rows(file, None, pair, {}, in_study))
