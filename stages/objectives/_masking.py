"""Chosen tokens masked, replaced by others or kept (BERT; Devlin et al. 2019, section 3.1)."""

import numpy as np

from stages.text.tokenizer import MASK_ID


def check_probs(replace_prob: float, random_prob: float) -> None:
    """Raises ValueError if they are no parts of 1."""
    if min(replace_prob, random_prob) < 0 or replace_prob + random_prob > 1:
        raise ValueError(
            f"replace_prob {replace_prob} and random_prob {random_prob} must be parts of 1"
        )


def corrupt(
    tokens: np.ndarray,
    chosen: np.ndarray,
    fate: np.ndarray,
    *,
    replace_prob: float,
    random_prob: float,
    regular_ids: range,
    rng: np.random.Generator,
) -> np.ndarray:
    """The tokens with those at the places ``chosen`` masked, replaced or kept.

    ``fate`` holds a number uniform in [0, 1) for each place: below ``replace_prob`` the token
    becomes [MASK], in the next ``random_prob`` a token drawn for this place. Places that share
    their number share their fate.
    """
    corrupted = tokens.copy()
    corrupted[chosen] = np.select(
        [fate < replace_prob, fate < replace_prob + random_prob],
        [MASK_ID, rng.integers(regular_ids.start, regular_ids.stop, len(chosen))],
        tokens[chosen],
    )
    return corrupted
