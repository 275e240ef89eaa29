"""Likeness of planted texts in two languages, each with its own words and grammar."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.core.seeding import stream
from stages.evaluation import word_counts
from stages.evaluation.likeness import Comparison, Measured, jensen_shannon

NUM_WORDS = 300
Document = list[str]


class Language:
    """A language of words of random letters, each followed by one of a few others. Both languages
    share some words."""

    def __init__(self, name: str) -> None:
        shared = stream(0, "shared")
        rng = stream(0, "language", name)

        def word(rng: np.random.Generator) -> str:
            return "".join(rng.choice([*"abcdefghijklmnop"], rng.integers(3, 9)))

        self.words = [word(shared) for _ in range(NUM_WORDS // 10)]
        self.words += [word(rng) for _ in range(NUM_WORDS - len(self.words))]
        self.followers = rng.integers(0, NUM_WORDS, (NUM_WORDS, 4)).tolist()

    def documents(self, number: int, *key: str) -> list[Document]:
        rng = stream(1, "documents", *key)
        starts = rng.integers(0, NUM_WORDS, (number, 10)).tolist()
        turns = rng.integers(0, 4, (number, 10, 12)).tolist()
        return [
            [self._sentence(*drawn) for drawn in zip(*document, strict=True)]
            for document in zip(starts, turns, strict=True)
        ]

    def _sentence(self, start: int, turns: list[int]) -> str:
        numbers = [start]
        for turn in turns:
            numbers.append(self.followers[numbers[-1]][turn])
        return " ".join(self.words[number] for number in numbers)


ONE, OTHER = Language("one"), Language("other")
TASK = [sentence for document in ONE.documents(30, "task") for sentence in document]
OTHER_TASK = [sentence for document in OTHER.documents(30, "task") for sentence in document]


def measure(documents: Sequence[Document], tasks: Mapping[str, Sequence[str]]) -> Measured:
    comparison = Comparison(tasks)
    return comparison.measured([comparison.read(documents)], Path("none"))


def likeness(documents: list[Document], texts: list[str] = TASK) -> Any:
    """Returns the likeness as Any, because texts without words have None for some numbers."""
    return measure(documents, {"task": texts}).tasks["task"]


def mixed(share: float, number: int = 200) -> list[Document]:
    """Returns documents in both languages."""
    of_one = round(share * number)
    return ONE.documents(of_one, "corpus") + OTHER.documents(number - of_one, "corpus")


def test_likeness_orders_corpora_by_their_share_of_the_language() -> None:
    likenesses = [likeness(mixed(share)) for share in (1, 0.5, 0.1, 0)]
    for measured in ("divergence", "uncorrected_divergence", "bits_per_byte"):
        values = [getattr(each, measured) for each in likenesses]
        assert values == sorted(values) and len(set(values)) == 4, measured
    # A few documents already have all words of their language.
    for measured in ("unseen_words", "unseen_types"):
        values = [getattr(each, measured) for each in likenesses]
        assert values[:2] == [0, 0] and 0.5 < values[3] < 1, measured
        assert values == sorted(values), measured


def test_likeness_is_symmetric_in_two_languages() -> None:
    """Both languages are equally similar to their own corpus, and equally different from the
    other."""
    own = likeness(ONE.documents(200, "corpus")), likeness(OTHER.documents(200, "c"), OTHER_TASK)
    cross = likeness(OTHER.documents(200, "c")), likeness(ONE.documents(200, "corpus"), OTHER_TASK)
    for a, b in (own, cross):
        assert a.divergence == pytest.approx(b.divergence, abs=0.02)
        assert a.bits_per_byte == pytest.approx(b.bits_per_byte, rel=0.03)
    assert own[0].divergence == pytest.approx(0, abs=0.01)
    for measured in ("divergence", "bits_per_byte", "unseen_words"):
        apart = min(getattr(each, measured) for each in cross)
        assert apart > max(getattr(each, measured) for each in own) + 0.3


def test_likeness_with_shuffled_words_differs_in_bits_alone() -> None:
    corpus = ONE.documents(200, "corpus")
    rng = stream(0, "shuffled")
    every = [word for document in corpus for sentence in document for word in sentence.split()]
    every = [str(word) for word in rng.permutation(every)]
    shuffled = [[" ".join(every[at : at + 12])] for at in range(0, len(every), 12)]
    a, b = likeness(corpus), likeness(shuffled)
    assert a.divergence == b.divergence and a.unseen_words == b.unseen_words
    assert b.bits_per_byte > 1.2 * a.bits_per_byte
    assert likeness(corpus[::-1]) == a


def texts(rng: np.random.Generator, weights: np.ndarray, number: int) -> list[str]:
    """Returns texts of 20 words, drawn independently."""
    drawn = rng.choice(len(weights), (number, 20), p=weights / weights.sum()).tolist()
    return [" ".join(f"w{word}" for word in text) for text in drawn]


def test_likeness_of_more_text_differs_in_what_is_unseen() -> None:
    p = 1 / np.arange(1, 5001)
    rng = stream(2, "zipf")
    corpus = [[text] for text in texts(rng, p, 4000)]
    task = texts(rng, p, 200)
    likenesses = [likeness(corpus[:number], task) for number in (500, 1000, 4000)]
    assert [each.divergence for each in likenesses] == pytest.approx([0] * 3, abs=0.01)
    assert all(each.uncorrected_divergence > 0.15 for each in likenesses)
    for a, b in pairwise(likenesses):
        assert a.unseen_words > 1.2 * b.unseen_words and a.bits_per_byte > b.bits_per_byte


@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_divergence_is_nearer_to_the_truth_than_counts(strength: float) -> None:
    rng = stream(3, "truth", str(strength))
    p, q = np.exp(strength * rng.normal(size=(2, 5000))) / np.arange(1, 5001)
    truth = jensen_shannon(p, q)
    estimate = likeness([texts(rng, q, 2500)], texts(rng, p, 250))
    assert 0.7 * truth < estimate.divergence < truth < estimate.uncorrected_divergence
    assert truth - estimate.divergence < estimate.uncorrected_divergence - truth


def test_jensen_shannon_is_that_of_scipy() -> None:
    from scipy.spatial.distance import jensenshannon

    one, other = stream(0, "counts").integers(0, 9, (2, 50))
    assert jensen_shannon(one, other) == pytest.approx(jensenshannon(one, other, base=2) ** 2)
    assert jensen_shannon(one, one) == pytest.approx(0)
    assert jensen_shannon(np.array([2, 0]), np.array([0, 5])) == pytest.approx(1)


def test_measured_does_not_depend_on_the_parts_of_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, tasks = mixed(0.5), {"one": TASK, "other": OTHER_TASK, "none": ["", "?"]}
    whole = measure(corpus, tasks)
    monkeypatch.setattr(word_counts, "MOST_HELD", 200)
    comparison = Comparison(tasks)
    readings = [comparison.read(corpus[at : at + 15]) for at in range(0, len(corpus), 15)]
    for order in (readings, readings[::-1]):
        folder = tmp_path / f"words{order is readings}"
        assert Comparison(tasks).measured(order, folder) == whole
        assert len(list(folder.iterdir())) > 2


def test_measured_counts_what_was_read() -> None:
    counted = measure([["Ein Wort.", "Größer!"], ["ein, ein"]], {"task": ["Ein Baum", "wort"]})
    assert (counted.documents, counted.words, counted.types) == (2, 5, 3)
    assert counted.bytes == sum(len(text.encode()) for text in ("Ein Wort.", "Größer!", "ein, ein"))
    task = counted.tasks["task"]
    assert (task.texts, task.words, task.types, task.bytes) == (2, 3, 3, 12)
    assert task.unseen_words == task.unseen_types == 1 / 3


def test_likeness_of_texts_without_words_is_none() -> None:
    empty = likeness([["a b c"]], [""])
    assert empty.divergence is empty.unseen_words is empty.bits_per_byte is None
    assert likeness([], ["a b"]).bits_per_byte == pytest.approx(8)
