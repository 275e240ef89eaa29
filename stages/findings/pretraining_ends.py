"""How each pretraining ended: whether its loss still fell, and which of its learning rates it kept.

A run that was stopped early, or whose best rate lies beyond those tried, says little about its
architecture, size or training set.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from stages.core.keys import RunKey
from stages.core.params import Run
from stages.findings.groups import names_of
from stages.findings.pretraining_progress import Progress, kept_rate
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
    last_quarter: float | None  # share of the loss's fall that came in the last quarter of steps
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
        """The loss at the next best rate minus the loss at the kept one, in nats; None if no other
        rate has a loss."""
        others = [
            loss for rate, loss in self.rates.items() if rate != self.kept and loss is not None
        ]
        return min(others) - self.validation_loss if others else None


def endings(runs: Mapping[str, Run], progress: Mapping[RunKey, Progress]) -> list[Ending]:
    """Returns the ends of all pretrainings, in the order of ``progress``."""
    ends = []
    for checkpoint, of_checkpoint in progress.items():
        if history := of_checkpoint.history:
            losses = {s.step: s.validation_loss for s in history if s.validation_loss is not None}
            last = max(losses)
            kept = kept_rate(runs[checkpoint.run], of_checkpoint)
            at_end = {step.rate: step.validation_loss for step in of_checkpoint.tries}
            rates = {r: v if v and math.isfinite(v) else None for r, v in at_end.items()}
            (name,) = names_of([checkpoint], runs)
            ends.append(
                Ending(
                    checkpoint,
                    name,
                    num_steps=last,
                    validation_loss=losses[last],
                    slope=slope_at_end(losses),
                    last_quarter=last_quarter_share(history[0].loss, losses),
                    rates=rates or {kept: losses[last]},
                    kept=kept,
                )
            )
    return ends
