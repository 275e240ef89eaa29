"""Trains at each of several learning rates and keeps the one that is best on validation."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stages.models._heads import ModelWithHead
from stages.training.checkpoint import Resumable
from stages.training.loop import Diverged, Step

# Trains at a rate, from the saved state if there is one; the list gets the history.
Attempt = Callable[[float, list[Step], Resumable], None]


@dataclass(frozen=True)
class Try:
    """A training at one learning rate."""

    rate: float
    history: list[Step] = field(default_factory=list)

    @property
    def final_loss(self) -> float:
        """The last validation loss; infinite if the training diverged."""
        loss = self.history[-1].validation_loss
        return loss if loss is not None and math.isfinite(loss) else math.inf

    @property
    def diverged(self) -> bool:
        return math.isinf(self.final_loss)


def best(tries: Sequence[Try]) -> Try:
    """Returns the try with the lowest validation loss at the end; of equal tries the first."""
    return min(tries, key=lambda each: each.final_loss)


def try_each(
    model: ModelWithHead, rates: Sequence[float], resumable: Resumable, attempt: Attempt
) -> list[Try]:
    """Trains ``model`` in place at each rate, each time from its initial weights, and leaves it
    with the weights of the best try. A try that diverges loses to all others. The end of each try
    is saved, so that a resumed process goes on with the try that was interrupted.

    Raises ValueError if the training diverges at every rate.
    """
    tries = [Try(rate) for rate in rates]
    if len(tries) == 1:
        attempt(rates[0], tries[0].history, resumable)
        return tries
    initial = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for number, of_rate in enumerate(tries):
        resumable.part = str(number)
        model.load_state_dict(initial, strict=False)  # buffers do not change
        try:
            attempt(of_rate.rate, of_rate.history, resumable)
        except Diverged as error:
            print(f"warning: {error}; it is a try that lost", file=sys.stderr)
    chosen = best(tries)
    if chosen.diverged:
        tried = ", ".join(f"{rate:g}" for rate in rates)
        raise ValueError(f"lr: training diverged at each of {tried}; lower them, or max_grad_norm")
    resumable.part = str(tries.index(chosen))
    resumable.load(model, None)
    return tries
