"""How small results carry over, in the appendix."""

from collections.abc import Sequence

from stages.findings.carry_over import CarryOver
from stages.reporting.formats import DASH, percent
from stages.reporting.words.appendix import Appendix

HEADING = "How small results carry over"
CAPTION = "The share of pairs of runs that keep their order"
NOTE = (
    "The decision accuracy of DataDecide (Magnusson et al. 2025): the share of pairs of runs whose "
    "order in a smaller experiment with one seed is their order in a larger one, in the mean of "
    "the other seeds; 50% is chance. A single seed is compared with itself, which gives too high a "
    "share. Pairs that tie in the larger experiment do not count; pairs that tie in the smaller "
    "one count half. Validation losses are compared between runs with equal objective, training "
    "text, tokenizer, row length and parent. The {confidence} interval is Student's t over seeds, "
    "or over tasks for the mean over tasks; there is none where all of these agree. "
    "`carry_over.csv` also has the experiments that fewer than two runs share, without a share."
)


def carry_over(carried: Sequence[CarryOver], confidence: float) -> Appendix:
    """The table of shares; empty if there is none."""
    rows = [_row(row) for row in carried if row.share is not None]
    notes = [NOTE.format(confidence=percent(confidence))] if rows else []
    return Appendix(HEADING, {CAPTION: rows}, notes)


def _row(carried: CarryOver) -> dict[str, str]:
    task = carried.task or "validation loss"
    return {
        "task": task,
        "method": carried.method or DASH,
        "labels": carried.label_budget or DASH,
        "what grows": carried.growth,
        "from": carried.smaller,
        "to": carried.larger,
        "runs": str(len(carried.runs)),
        "pairs": str(carried.num_pairs),
        "same order": _share(carried),
        "mean of": f"{carried.num_units} {carried.over}" if carried.num_units > 1 else DASH,
    }


def _share(carried: CarryOver) -> str:
    if carried.share is None:
        return DASH
    share = f"{carried.share:.0%}"
    if carried.low is None or carried.high is None:
        return share
    return f"{share} ({max(carried.low, 0):.0%} to {min(carried.high, 1):.0%})"
