"""How each pretraining ended: whether its loss still fell, and which of its learning rates it kept.

A run that was stopped early, or whose best rate lies beyond those tried, says little about its
architecture, size or training set.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stages.core.keys import RunKey
from stages.core.params import Run
from stages.findings.groups import names_of
from stages.findings.pretraining_progress import Progress, final_losses, kept_rate
from stages.training.curve_end import last_quarter_share, slope_at_end

FALLING = 0.05  # nats per doubling of the steps; less is called flat


@dataclass(frozen=True)
class Ending:
    """The end of the pretraining of a checkpoint."""

    checkpoint: RunKey
    name: str  # of the checkpoint, in sentences
    num_steps: int
    validation_loss: float
    slope: float | None  # nats per doubling of the steps; None: too few validations
    last_quarter: float | None  # share of the fall in loss that came in the last quarter
    rates: dict[float, float | None]  # learning rate -> last validation loss; None if it diverged
    kept: float

    @property
    def falls(self) -> bool:
        return self.slope is not None and self.slope <= -FALLING

    @property
    def num_lower_rates(self) -> int:
        """The number of tried rates below the kept one."""
        return sum(rate < self.kept for rate in self.rates)

    @property
    def at_edge(self) -> bool:
        """Whether the kept rate is the lowest or highest of several."""
        return len(self.rates) > 1 and self.num_lower_rates in (0, len(self.rates) - 1)

    @property
    def next_best(self) -> float | None:
        """How much higher the loss is at the next best rate, in nats; None if no other rate has a
        loss."""
        others = [loss for rate, loss in self.rates.items() if rate != self.kept and loss]
        return min(others) - self.validation_loss if others else None


def endings(runs: Mapping[str, Run], progress: Mapping[RunKey, Progress]) -> list[Ending]:
    """Returns the ends of all pretrainings, in the order of ``progress``."""
    return [
        _ending(checkpoint, runs, of_checkpoint)
        for checkpoint, of_checkpoint in progress.items()
        if of_checkpoint.history
    ]


def _ending(checkpoint: RunKey, runs: Mapping[str, Run], progress: Progress) -> Ending:
    history = progress.history
    losses = {s.step: s.validation_loss for s in history if s.validation_loss is not None}
    last = max(losses)
    kept = kept_rate(runs[checkpoint.run], progress)
    (name,) = names_of([checkpoint], runs)
    return Ending(
        checkpoint,
        name,
        last,
        losses[last],
        slope_at_end(losses),
        last_quarter_share(history[0].loss, losses),
        final_losses(progress) or {kept: losses[last]},
        kept,
    )
