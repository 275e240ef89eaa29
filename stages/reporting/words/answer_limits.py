"""The limits of size and speed on an answer, in words."""

from collections.abc import Sequence

from stages.core.params import AnswerLimits
from stages.findings.answers import BestRun, Excess, Excesses
from stages.reporting.words.names import run_or_baseline, shown_mean

# Two templates for each limit: the measured value, and how far the value is beyond the limit.
WORDS = {
    "max_weights_mb": ("{:.3g} MB of weights", "{:.3g} MB over"),
    "max_latency_ms": ("a latency of {:.3g} ms", "{:.3g} ms over"),
    "min_texts_per_s": ("{:.4g} texts per second", "{:.3g} under"),
}


def within(limits: AnswerLimits) -> str:
    """Returns the limits of a study in a sentence; "" if it has none."""
    stated = [f"{name}: {value:g}" for name, value in limits.model_dump(exclude_none=True).items()]
    if not stated:
        return ""
    return f" Only choices within the limits of answer ({', '.join(stated)}) count, unless none is."


def left_out(best: BestRun, outside: Excesses, baselines: Sequence[str]) -> str:
    """Returns sentences on the better choice that the limits leave out, and on how far it is beyond
    them. If nothing is within the limits, the sentences are on the best choice instead; "" if the
    limits change nothing."""
    cell = best.left_out or best.best
    if cell not in outside:
        return ""
    over = " and ".join(map(_excess, outside[cell]))
    if best.left_out is None:
        return f"No choice is within the limits, so this is the best without them. It has {over}."
    named = f"{run_or_baseline(cell, baselines)}, {shown_mean(cell)}"
    return f"The limits leave out a better choice: {named}. It has {over}."


def _excess(excess: Excess) -> str:
    """Returns "90.9 MB of weights, 40.9 MB over `answer.max_weights_mb: 50`"."""
    limit = f"`answer.{excess.limit}: {excess.allowed:g}`"
    if excess.measured is None:
        return f"an unknown value for {limit}"
    measured, over = WORDS[excess.limit]
    size = over.format(abs(excess.measured - excess.allowed))
    return f"{measured.format(excess.measured)}, {size} {limit}"
