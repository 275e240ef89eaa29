"""The best sequence of tags is the best of all that BIO allows."""

from itertools import product

from stages.baselines.window import Window, best_sequence
from stages.core.seeding import stream

TAGS = ["B-X", "B-Y", "I-X", "I-Y", "O"]


def valid(tags: tuple[str, ...]) -> bool:
    """Whether each I- continues a span of its kind, written from the definition."""
    for before, tag in zip(("O", *tags), tags, strict=False):
        if tag.startswith("I-") and (before == "O" or before[2:] != tag[2:]):
            return False
    return True


def test_best_sequence_is_the_best_of_all_valid_ones() -> None:
    rng, window = stream(1, "viterbi"), Window()
    window.tags = TAGS
    window._learn_transitions([["O", "B-X", "I-X", "O", "I-Y"], ["B-Y", "I-Y", "B-X", "O", "O"]])
    between = window.transitions
    for length in (1, 2, 4):
        scores = rng.normal(size=(length, len(TAGS)))

        def value(numbers: tuple[int, ...], own=scores) -> float:
            steps = zip(numbers, numbers[1:], strict=False)
            return sum(own[i, n] for i, n in enumerate(numbers)) + sum(
                between[a, b] for a, b in steps
            )

        every = product(range(len(TAGS)), repeat=length)
        expected = max((n for n in every if valid(tuple(TAGS[i] for i in n))), key=value)
        allowed = between + [[0.0 if a else -float("inf") for a in row] for row in window.allowed]
        assert tuple(best_sequence(scores, allowed, window.first)) == expected
