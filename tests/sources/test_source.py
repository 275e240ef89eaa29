"""The split of a document depends on its key alone."""

from collections import Counter

from stages.sources._source import sentences_of, split_of


def test_split_of_draws_eight_one_one() -> None:
    counts = Counter(split_of(f"package/module_{i}.py") for i in range(10_000))
    assert abs(counts["train"] - 8000) < 150
    assert abs(counts["validation"] - 1000) < 120 and abs(counts["test"] - 1000) < 120


def test_split_of_never_changes() -> None:
    drawn = {key: split_of(key) for key in "abcdefghijklmnopqrst"}
    assert [key for key, split in drawn.items() if split == "test"] == ["e"]
    assert [key for key, split in drawn.items() if split == "validation"] == ["m", "n"]


def test_sentences_of_a_text_end_at_blank_lines_and_have_single_blanks() -> None:
    assert sentences_of("One.  Two\n goes on\n \nAnd three") == ["One.", "Two goes on", "And three"]
