"""The learning rate of a step: a linear warm-up, then a decay."""

import math


def lr_factor(step: int, num_steps: int, *, warmup_fraction: float, decay: str) -> float:
    """Returns the factor of the learning rate in ``step`` (0, 1, ..., num_steps - 1).

    It rises linearly to 1, then falls to 0 at ``num_steps`` or, without decay, stays at 1.
    """
    warmup = round(warmup_fraction * num_steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    remaining = (num_steps - step) / max(num_steps - warmup, 1)
    match decay:
        case "linear":
            return remaining
        case "cosine":
            return 0.5 * (1 - math.cos(math.pi * remaining))
        case _:
            return 1.0
