"""What is printed of flags is said in the form of make where make runs the command."""

from pathlib import Path

import pytest

from tests.labelled_files import classified, proposed

MAKE = 'With make: FLAGS="--label NAME"'


def test_propose_says_below_make_how_make_takes_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a note and in an error, but not in the file."""
    Path("a.csv").write_text(classified())
    Path("a.odd").write_text("some words")
    for level in (None, "1"):
        if level:
            monkeypatch.setenv("MAKELEVEL", level)
        proposal = proposed("a.csv")
        assert any(note.startswith(MAKE) for note in proposal.notes) == bool(level)
        assert MAKE not in proposal.text
        with pytest.raises(ValueError, match="--format NAME") as error:
            proposed("a.odd")
        assert (MAKE in str(error.value)) == bool(level)
