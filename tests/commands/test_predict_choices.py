"""New rows for multiple choice."""

import json
from pathlib import Path

import pytest

from stages.commands.predict import Columns, _read

COLUMNS = Columns("multiple_choice", ("text", "choices"), ("question",))


def test_read_takes_choices_from_lists_of_texts(tmp_path: Path) -> None:
    rows = [
        {"text": "It rained.", "choices": ["He got wet.", "He ate."]},
        {"text": "It rained.", "choices": ["One.", "Two.", "Three."], "question": "effect"},
    ]
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = [row.row for row in _read(tmp_path / "new.jsonl", None, COLUMNS, {})]
    assert read == [{"id": str(i), **row} for i, row in enumerate(rows)]


@pytest.mark.parametrize("choices", ["He ate.", [], ["He ate.", " "], 3])
def test_read_refuses_other_choices_with_their_place(choices: object, tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text(json.dumps({"text": "It rained.", "choices": choices}))
    with pytest.raises(ValueError, match=r"new\.jsonl line 1: choices"):
        list(_read(tmp_path / "new.jsonl", None, COLUMNS, {}))
