from itertools import product

import numpy as np
import pytest

from stages.baselines._viterbi import best_sequence, first_scores, transition_scores
from stages.core.seeding import stream

TAGS = ["B-X", "B-Y", "I-X", "I-Y", "O"]


def valid(tags: tuple[str, ...]) -> bool:
    """Whether each I- continues a span of its kind, written from the definition."""
    for before, tag in zip(("O", *tags), tags, strict=False):
        if tag.startswith("I-") and (before == "O" or before[2:] != tag[2:]):
            return False
    return True


def test_best_sequence_is_the_best_of_all_valid_ones() -> None:
    rng = stream(1, "viterbi")
    seen = [["O", "B-X", "I-X", "O"], ["B-Y", "I-Y", "B-X", "O", "O"]]
    first = first_scores(TAGS)
    for weight in (0.0, 0.5, 1.0):
        transitions = transition_scores(seen, TAGS, weight=weight)
        for length in (1, 2, 4):
            scores = rng.normal(size=(length, len(TAGS)))

            def value(numbers: tuple[int, ...], own=scores, between=transitions) -> float:
                steps = zip(numbers, numbers[1:], strict=False)
                return sum(own[i, n] for i, n in enumerate(numbers)) + sum(
                    between[a, b] for a, b in steps
                )

            candidates = [
                numbers
                for numbers in product(range(len(TAGS)), repeat=length)
                if valid(tuple(TAGS[n] for n in numbers))
            ]
            expected = max(candidates, key=value)
            assert tuple(best_sequence(scores, transitions, first)) == expected


def test_transition_scores_are_log_ratios_of_frequencies() -> None:
    scores = transition_scores([["O", "O", "B-X", "O"]], ["B-X", "O"], weight=1.0)
    # After B-X, O occurs once, and a half is added to both counts. Three of all four tags are O.
    assert scores[0, 1] == pytest.approx(np.log((1.5 / 2) / (3 / 4)))
    assert scores[1, 0] == pytest.approx(np.log((1.5 / 3) / (1 / 4)))
    assert not transition_scores([["O", "B-X"]], ["B-X", "O"], weight=0.0).any()


def test_best_sequence_is_outside_where_nothing_else_is_allowed() -> None:
    tags = ["I-X", "O"]
    scores = np.log(np.array([[0.9, 0.1]] * 3))
    transitions = transition_scores([["O", "O"], ["I-X"]], tags, weight=0.0)
    assert [tags[i] for i in best_sequence(scores, transitions, first_scores(tags))] == ["O"] * 3
