"""How small results carry over, in the appendix."""

from collections.abc import Sequence

from stages.findings.carry_over import CarryOver
from stages.reporting.formats import DASH, in_parentheses, percent
from stages.reporting.words.appendix import Appendix

HEADING = "How small results carry over"
CAPTION = "The share of pairs of runs that keep their order"
NOTE = (
    "The decision accuracy of DataDecide (Magnusson et al. 2025): the share of pairs of runs that "
    "have the same order in a smaller experiment with one seed as in a larger one, averaged over "
    "the other seeds; 50% is chance. A single seed is compared with itself, which gives too high a "
    "share. Pairs that tie in the larger experiment do not count; pairs that tie in the smaller "
    "one count half. Validation losses are compared between runs with equal objective, training "
    "text, tokenizer, row length and parent. The {confidence} interval is Student's t over seeds, "
    "or over tasks for the mean over tasks; there is none where all of these agree. "
    "`carry_over.csv` also has the experiments that fewer than two runs share, without a share."
)


def carry_over(carried: Sequence[CarryOver], confidence: float) -> Appendix:
    """The table of shares; empty if there is none."""
    rows = [_row(row, share) for row in carried if (share := row.share) is not None]
    notes = [NOTE.format(confidence=percent(confidence))] if rows else []
    return Appendix(HEADING, {CAPTION: rows}, notes)


def _row(carried: CarryOver, share: float) -> dict[str, str]:
    number = len(carried.shares)
    low, high = carried.ends or (None, None)
    interval = "" if low is None or high is None else f"{max(low, 0):.0%} to {min(high, 1):.0%}"
    return {
        "task": carried.task or "validation loss",
        "method": carried.method or DASH,
        "labels": carried.label_budget or DASH,
        "what grows": carried.growth,
        "from": carried.smaller,
        "to": carried.larger,
        "runs": str(len(carried.runs)),
        "pairs": str(carried.num_pairs),
        "same order": f"{share:.0%}{in_parentheses(interval)}",
        "mean of": f"{number} {carried.over}" if number > 1 else DASH,
    }
