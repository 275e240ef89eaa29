"""How each pretraining ended: whether its loss still fell, and which of its learning rates it kept.

A run that was stopped early, or whose best rate lies beyond those tried, says little about its
architecture, size or training set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.reporting.comparison.pretraining_progress import final_losses, kept_rate
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import formatted
from stages.training.curve_end import last_quarter_share, slope_at_end

FALLING = 0.05  # nats per doubling of the steps; less is called flat
EXPLANATION = (
    "The slope is that of the validation loss against log2(step) over the last half of a run's "
    "steps, by least squares, in nats per doubling of the steps. Where the learning rate decays, "
    "part of it comes from the decay: it says that a run was stopped early, not what a longer one "
    "would reach. The last quarter is the share of the whole fall in loss that came in the last "
    "quarter of the steps. Rates are the peak learning rates that a run was pretrained at; it kept "
    "the one with the lowest validation loss at the end."
)


@dataclass(frozen=True)
class Ending:
    """Of a run that was pretrained."""

    run: str
    num_steps: int
    validation_loss: float
    slope: float | None  # None: too few validations
    last_quarter: float | None
    rates: dict[float, float | None]  # the last validation loss at each; None if it diverged
    kept: float

    @property
    def falls(self) -> bool:
        return self.slope is not None and self.slope <= -FALLING

    @property
    def place(self) -> str:
        """Where the kept rate lies among those tried."""
        if len(self.rates) == 1:
            return "one rate"
        lower = sum(rate < self.kept for rate in self.rates)
        if lower == 0:
            return f"lowest of {len(self.rates)}"
        return f"highest of {len(self.rates)}" if lower == len(self.rates) - 1 else "inside"

    @property
    def at_edge(self) -> bool:
        return len(self.rates) > 1 and self.place != "inside"

    @property
    def next_best(self) -> float | None:
        """How much higher the loss is at the next best rate, in nats."""
        others = [loss for rate, loss in self.rates.items() if rate != self.kept and loss]
        return min(others) - self.validation_loss if others else None


def endings(results: Results) -> list[Ending]:
    return [
        _ending(results, run) for run in results.params.pretrain if results.progress[run].history
    ]


def _ending(results: Results, run: str) -> Ending:
    entry, progress = results.params.pretrain[run], results.progress[run]
    history = progress.history
    losses = {s.step: s.validation_loss for s in history if s.validation_loss is not None}
    last = max(losses)
    kept = kept_rate(entry, progress)
    return Ending(
        run,
        last,
        losses[last],
        slope_at_end(losses),
        last_quarter_share(history[0].loss, losses),
        final_losses(progress) or {kept: losses[last]},
        kept,
    )


def ending_rows(results: Results) -> list[dict[str, str]]:
    """The table of the report; nothing in it depends on the machine."""
    return [
        {
            "run": each.run,
            "steps": f"{each.num_steps:,}",
            "validation loss": f"{each.validation_loss:.3f}",
            "slope per doubling": formatted(each.slope, "+.3f"),
            "last quarter": formatted(each.last_quarter, ".0%"),
            "rates tried": ", ".join(_at(rate, loss) for rate, loss in each.rates.items()),
            "kept": f"{each.kept:g}",
            "place": each.place,
            "next best": formatted(each.next_best, "+.3f"),
        }
        for each in endings(results)
    ]


def ending_notes(results: Results) -> list[str]:
    """What a reader should know before believing a contrast of pretrained runs, in sentences."""
    return [*_notes(endings(results))]


def _notes(found: Sequence[Ending]) -> Iterator[str]:
    if falling := sorted((e for e in found if e.falls), key=lambda e: e.slope or 0.0):
        steepest = -(falling[0].slope or 0.0)
        yield (
            f"{len(falling)} of {len(found)} pretrainings were still falling when they were "
            f"stopped, by up to {steepest:.2f} nats per doubling of the steps (from {FALLING:g} "
            "on): a longer pretraining would change what is compared. "
            + _listed(f"`{e.run}` {-(e.slope or 0.0):.2f}" for e in falling)
        )
    if flat := [e for e in found if e.slope is not None and not e.falls]:
        yield f"Flat at the end: {_listed(f'`{e.run}`' for e in flat)}"
    if unknown := [e for e in found if e.slope is None]:
        yield (
            "Too few validations in the last half of the steps for a slope (num_validations): "
            + _listed(f"`{e.run}`" for e in unknown)
        )
    if edges := [e for e in found if e.at_edge]:
        yield (
            "The kept learning rate is the lowest or highest of those tried, so that a better one "
            "may lie beyond: " + _listed(f"`{e.run}` ({e.place})" for e in edges)
        )
    if single := [e for e in found if len(e.rates) == 1]:
        yield (
            f"{len(single)} of {len(found)} runs were pretrained at one learning rate: how far "
            "their best one lies from it is not known."
        )
    if len({len(e.rates) for e in found}) > 1:
        yield (
            "Runs tried different numbers of learning rates, which favours those that tried more: "
            + _listed(f"`{e.run}` {len(e.rates)}" for e in found)
        )
    if diverged := [
        f"`{e.run}` at {r:g}" for e in found for r, loss in e.rates.items() if loss is None
    ]:
        yield f"Diverged: {_listed(diverged)}"


def _listed(names: Iterator[str] | Sequence[str]) -> str:
    return ", ".join(names) + "."


def _at(rate: float, loss: float | None) -> str:
    return f"{rate:g}: {'diverged' if loss is None else f'{loss:.3f}'}"
