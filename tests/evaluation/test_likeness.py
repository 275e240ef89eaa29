from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from stages.evaluation.likeness import measured, similarity

WORDS = st.lists(st.sampled_from("abcdef"), min_size=1)


@given(WORDS, WORDS)
def test_similarity_is_one_minus_the_divergence_of_scipy(one: list[str], other: list[str]) -> None:
    counts = Counter(one), Counter(other)
    shares = [[of[word] / of.total() for word in "abcdef"] for of in counts]
    expected = 1 - float(jensenshannon(*shares, base=2)) ** 2
    assert similarity(*counts) == pytest.approx(expected)
    assert similarity(*counts) == pytest.approx(similarity(*reversed(counts)))


def test_similarity_of_equal_and_of_other_words() -> None:
    words: Counter[str] = Counter([*"aab"])
    assert similarity(words, Counter([*"aabaab"])) == pytest.approx(1)
    assert similarity(words, Counter([*"cd"])) == pytest.approx(0)
    assert similarity(words, Counter()) is None


def test_measured_counts_a_corpus() -> None:
    documents = [["The cat sat.", "It ran!"], ["A dog, the cat."]]
    whole = measured(documents, {"task": ["the cat", "sat"]})
    assert (whole.documents, whole.words, whole.types, whole.bytes) == (2, 9, 7, 34)
    assert whole.tasks["task"].words == 3 and 0 < (whole.tasks["task"].similarity or 0) < 1
