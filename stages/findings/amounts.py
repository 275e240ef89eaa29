"""Training sets that are amounts of one text, at equal steps and at equal epochs."""

from collections.abc import Hashable
from typing import Literal

from stages.findings.groups import Group

AMOUNT: Literal["amount of text"] = "amount of text"  # the axis
MAX_RATIO = 1.02  # two amounts of text, or two numbers of epochs, within this ratio count as one
NUM_STEPS = "training.num_steps"


def same_text(a: Group, b: Group) -> bool:
    """Whether two training sets differ in their amount of text alone."""
    return a.corpus_text is not None and a.corpus_text == b.corpus_text


def text_of(group: Group) -> Hashable:
    """Returns a key that is equal for all amounts of one text."""
    return group.corpus_text or group.corpus


def unlike_amount(a: Group, b: Group) -> float:
    """Returns the ratio of the larger amount of text to the smaller one; 1 if one is unknown."""
    return _ratio(a.corpus_tokens, b.corpus_tokens)


def equal_epochs(a: Group, b: Group) -> bool:
    """Whether two groups read their training sets equally often."""
    return None not in (a.epochs, b.epochs) and _ratio(a.epochs, b.epochs) < MAX_RATIO


def words(group: Group) -> str:
    """Returns the level of a group on the axis, in words."""
    return f"{group.corpus}, {group.corpus_tokens:,} tokens, {group.epochs:.3g} epochs"


def _ratio(one: float | None, other: float | None) -> float:
    """Returns the ratio of the larger amount to the smaller one; 1 if one is 0 or unknown."""
    return max(one, other) / min(one, other) if one and other else 1.0
