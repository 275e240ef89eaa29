"""The split of a document is a function of its name alone."""

from collections import Counter

from stages.sources._source import split_of


def test_eight_one_one() -> None:
    counts = Counter(split_of(f"package/module_{i}.py") for i in range(10_000))
    assert abs(counts["train"] - 8000) < 150
    assert abs(counts["validation"] - 1000) < 120 and abs(counts["test"] - 1000) < 120


def test_the_split_never_changes() -> None:
    drawn = {key: split_of(key) for key in "abcdefghijklmnopqrst"}
    assert [key for key, split in drawn.items() if split == "test"] == ["e"]
    assert [key for key, split in drawn.items() if split == "validation"] == ["m", "n"]
