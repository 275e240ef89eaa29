"""The best sequence of BIO tags (Viterbi 1967)."""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

NEVER = -np.inf


def may_follow(tag: str, before: str) -> bool:
    """Whether ``tag`` may follow ``before`` in BIO: an I- tag must continue a span of its kind."""
    return not tag.startswith("I-") or before in (f"B-{tag[2:]}", tag)


def transition_scores(
    sequences: Iterable[Sequence[str]], tags: Sequence[str], *, weight: float
) -> Float[np.ndarray, "before tag"]:
    """Returns ``weight`` times log(p(tag | tag before) / p(tag)) for each pair of tags, or
    ``NEVER`` for a forbidden pair. 0.5 is added to the count of each pair."""
    index = {tag: i for i, tag in enumerate(tags)}
    counts = np.full((len(tags), len(tags)), 0.5)
    everywhere = np.zeros(len(tags))
    for sequence in sequences:
        for before, tag in zip(sequence, sequence[1:], strict=False):
            counts[index[before], index[tag]] += 1
        for tag in sequence:
            everywhere[index[tag]] += 1
    following = np.log(counts / counts.sum(axis=1, keepdims=True))
    scores = weight * (following - np.log(everywhere / everywhere.sum()))
    allowed = np.array([[may_follow(tag, before) for tag in tags] for before in tags])
    return np.where(allowed, scores, NEVER)


def first_scores(tags: Sequence[str]) -> Float[np.ndarray, " tag"]:
    """Returns 0 for each tag that may begin a sequence, and ``NEVER`` for the others."""
    return np.array([NEVER if tag.startswith("I-") else 0.0 for tag in tags])


def best_sequence(
    scores: Float[np.ndarray, "word tag"],
    transitions: Float[np.ndarray, "before tag"],
    first: Float[np.ndarray, " tag"],
) -> Int[np.ndarray, " word"]:
    """Returns the sequence of tags with the largest sum of the scores of its words, its transitions
    and its first tag. Ties go to the tag with the lower index, from the last word backwards."""
    best = first + scores[0]
    steps = []
    for of_word in scores[1:]:
        through = best[:, None] + transitions
        steps.append(through.argmax(axis=0))
        best = through.max(axis=0) + of_word
    path = [int(best.argmax())]
    for step in reversed(steps):
        path.append(int(step[path[-1]]))
    return np.array(path[::-1])
