"""The split of a document depends on its key alone; sentences lose no character of a text."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources._sentences import sentences
from stages.sources._source import sentences_of, split_of

WORDS = st.sampled_from(["The", "cat", "e.g.", "J.", "sat.", "Why?", "3", "'No!'", "(see", "Fig."])


def test_split_of_draws_eight_one_one_and_never_changes() -> None:
    counts = Counter(split_of(f"package/module_{i}.py") for i in range(10_000))
    assert abs(counts["train"] - 8000) < 150
    assert abs(counts["validation"] - 1000) < 120 and abs(counts["test"] - 1000) < 120
    drawn = {key: split_of(key) for key in "abcdefghijklmnopqrst" if split_of(key) != "train"}
    assert drawn == {"e": "test", "m": "validation", "n": "validation"}


def test_sentences_of_a_text_end_at_blank_lines_and_have_single_blanks() -> None:
    assert sentences_of("One.  Two\n goes on\n \nAnd three") == ["One.", "Two goes on", "And three"]


@given(st.lists(WORDS, min_size=1, max_size=30).map(" ".join))
def test_sentences_joined_by_blanks_are_the_text(text: str) -> None:
    assert " ".join(sentences(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "It works.|So we stop.",
        "Use a tree, e.g. Prim's, or cf. Sec. 3 of it.",
        "As J. Smith and Dr. Jones show in Fig. 2, it holds.",
        "Apples, pears, etc.|Those are fruit.",
        'He said "Stop!"|Then he left.',
        "“Stop!”|“Why?” he asked.",
        "it was dull .|the end was not .",
        "Version 1.2 is out.|3 people use it.",
    ],
)
def test_sentences_end_at_no_abbreviation(text: str) -> None:
    assert [*sentences(text.replace("|", " "))] == text.split("|")
