"""The effect of more seeds or more test rows on the width of intervals, and its cost.

The numbers come from the report's tables, so that the report and the plan of the next study can
both compute them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.core.artifacts import Json
from stages.evaluation.variance import Source

SOURCES: dict[Source, str] = {  # what an interval covers -> suffix of columns of contrasts.csv
    "pretraining seeds": "pretrain",
    "fine-tuning seeds": "finetune",
    "test rows": "rows",
}


@dataclass(frozen=True)
class Doubling:
    """The effect of doubling the number of units of one source of chance in the whole study."""

    source: Source
    narrower: float  # relative reduction of the intervals' width, a mean over contrasts
    cost: float | None  # None for test rows, which cost only their prediction


def doublings(
    undecided: Sequence[Json], trials: Sequence[Json], *, pretraining: str, finetuning: str
) -> tuple[int, list[Doubling]]:
    """Returns the number of ``undecided`` contrasts, and the doublings that would narrow their
    intervals.

    ``undecided`` are the rows of contrasts.csv that have a verdict and are not significant.
    ``trials`` are the rows of trials.csv or costs.csv, whose columns ``pretraining`` (equal in all
    trials of a checkpoint) and ``finetuning`` are the costs.
    """
    if not undecided:
        return 0, []
    tuned = sum(_number(row[finetuning]) for row in trials)
    by_checkpoint = {
        (row["run"], row["pretrain_seed"]): _number(row[pretraining]) for row in trials
    }
    pretrained = sum(by_checkpoint.values())
    costs = {"pretraining seeds": pretrained + tuned, "fine-tuning seeds": tuned, "test rows": None}
    return len(undecided), [
        Doubling(source, fmean(_number(row[f"narrower_{end}"]) for row in undecided), costs[source])
        for source, end in SOURCES.items()
    ]


def _number(value: object) -> float:
    """Returns the number in a field; an empty field is unknown and counts as 0."""
    return 0.0 if value in ("", None) else float(str(value))


def sentence(
    undecided: tuple[int, list[Doubling]], shown: Callable[[float], str], *, per: str
) -> list[str]:
    """Returns the result of ``doublings`` as a sentence, or nothing if all contrasts are decided.

    ``shown`` formats a cost, and ``per`` names its unit: "per hour".
    """
    number, options = undecided
    if not options:
        return []
    parts = [
        f"{option.source} by {_percent(option.narrower)} "
        + ("for predicting them" if option.cost is None else f"for {shown(option.cost)}")
        for option in options
    ]
    priced = [option for option in options if option.cost]
    best = max(priced, key=lambda option: option.narrower / (option.cost or 1), default=None)
    most = f" {best.source.capitalize()} narrow them most {per}." if best else ""
    contrasts, intervals = (
        ("contrast", "its interval") if number == 1 else ("contrasts", "their intervals")
    )
    return [
        f"{number} {contrasts} with a verdict {'is' if number == 1 else 'are'} not significant. "
        f"Doubling one of these would narrow {intervals}, on average: {'; '.join(parts)}.{most}"
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%"
