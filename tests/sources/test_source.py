"""The split of a document is a function of its name alone."""

from collections import Counter

from stages.sources._source import same_input, split_key, split_of


def test_eight_one_one() -> None:
    counts = Counter(split_of(f"package/module_{i}.py") for i in range(10_000))
    assert abs(counts["train"] - 8000) < 150
    assert abs(counts["validation"] - 1000) < 120 and abs(counts["test"] - 1000) < 120


def test_the_split_never_changes() -> None:
    drawn = {key: split_of(key) for key in "abcdefghijklmnopqrst"}
    assert [key for key, split in drawn.items() if split == "test"] == ["e"]
    assert [key for key, split in drawn.items() if split == "validation"] == ["m", "n"]


def test_case_blanks_and_labels_make_no_other_input() -> None:
    first = {"text": "A  cat\nsat", "label": "x"}
    assert same_input(first) == same_input({"text": "a cat sat", "label": "y"})
    assert same_input(first) != same_input({"text": "a cat", "text_pair": "sat", "label": "x"})
    assert same_input({"words": ["a", "b"], "tags": []}) != same_input(
        {"words": ["a b"], "tags": []}
    )


def test_questions_about_one_context_belong_together() -> None:
    first = {"question": "Who?", "context": "Ada wrote.", "answers": []}
    second = {"question": "What?", "context": "ada  wrote.", "answers": []}
    assert split_key(first) == split_key(second) != split_key(first | {"context": "Bob sang."})
    assert same_input(first) != same_input(second)
