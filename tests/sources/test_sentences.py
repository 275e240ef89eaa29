"""Splitting loses no character, and no sentence ends at an abbreviation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources._sentences import sentences

WORDS = st.sampled_from(["The", "cat", "e.g.", "J.", "sat.", "Why?", "3", "'No!'", "(see", "Fig."])


@given(st.lists(WORDS, min_size=1, max_size=30).map(" ".join))
def test_sentences_joined_by_blanks_are_the_text(text: str) -> None:
    assert " ".join(sentences(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It works. So we stop.", ["It works.", "So we stop."]),
        ("Use a tree, e.g. Prim's, or cf. Sec. 3 of it.", None),
        ("As J. Smith and Dr. Jones show in Fig. 2, it holds.", None),
        ("Apples, pears, etc. Those are fruit.", ["Apples, pears, etc.", "Those are fruit."]),
        ('He said "Stop!" Then he left.', ['He said "Stop!"', "Then he left."]),
        ("“Stop!” “Why?” he asked.", ["“Stop!”", "“Why?” he asked."]),
        ("it was dull . the end was not .", ["it was dull .", "the end was not ."]),
        ("Version 1.2 is out. 3 people use it.", ["Version 1.2 is out.", "3 people use it."]),
        ("", []),
    ],
)
def test_sentences_end_at_no_abbreviation(text: str, expected: list[str] | None) -> None:
    assert list(sentences(text)) == ([text] if expected is None else expected)
