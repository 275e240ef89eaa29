"""What to have more of for narrower intervals, and what that takes, from the report's tables.

The report makes the tables, and the plan of the next study reads them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from stages.core.artifacts import Json
from stages.evaluation.variance import Source

SOURCES: dict[Source, str] = {  # what an interval covers, as columns of contrasts.csv end
    "pretraining seeds": "pretrain",
    "fine-tuning seeds": "finetune",
    "test rows": "rows",
}


@dataclass(frozen=True)
class Doubling:
    """Twice as many of one source of chance, in the whole study."""

    source: Source
    narrower: float  # the share of their width by which intervals shrink, a mean over contrasts
    cost: float | None  # None: of test rows, the prediction alone


def doublings(
    contrasts: Iterable[Json], trials: Sequence[Json], *, pretraining: str, finetuning: str
) -> tuple[int, list[Doubling]]:
    """How many contrasts are tested and not significant, and what would narrow their intervals.

    Rows are those of contrasts.csv, and of trials.csv or costs.csv, whose columns ``pretraining``
    (the same in all trials of a run) and ``finetuning`` are the costs.
    """
    undecided = [row for row in contrasts if row["p_holm"] not in ("", None)]
    undecided = [row for row in undecided if "not significant" in row["verdict"]]
    if not undecided:
        return 0, []
    tuned = sum(_number(row[finetuning]) for row in trials)
    pretrained = sum({row["run"]: _number(row[pretraining]) for row in trials}.values())
    costs = {"pretraining seeds": pretrained + tuned, "fine-tuning seeds": tuned, "test rows": None}
    return len(undecided), [
        Doubling(source, fmean(_number(row[f"narrower_{end}"]) for row in undecided), costs[source])
        for source, end in SOURCES.items()
    ]


def _number(value: object) -> float:
    """A field that is empty is not known, and counts as nothing."""
    return 0.0 if value in ("", None) else float(str(value))


def sentence(
    found: tuple[int, list[Doubling]], shown: Callable[[float], str], *, per: str, unit: float
) -> list[str]:
    """The same in words; ``shown`` writes a cost, and ``per`` is ``unit`` of it."""
    number, all_of_them = found
    if not all_of_them:
        return []
    parts = [
        f"{each.source} by {_percent(each.narrower)} "
        + (
            "for predicting them"
            if each.cost is None
            else f"for {shown(each.cost)} ({_rate(each, unit)} {per})"
        )
        for each in all_of_them
    ]
    priced = [each for each in all_of_them if each.cost]
    best = max(priced, key=lambda each: each.narrower / (each.cost or 1), default=None)
    most = f" {best.source.capitalize()} narrow them most {per}." if best else ""
    return [
        f"Of the contrasts with a verdict, {number} are not significant. Twice as many of these "
        f"would narrow their intervals, on average: {'; '.join(parts)}.{most}"
    ]


def _rate(each: Doubling, unit: float) -> str:
    return "free" if not each.cost else _percent(each.narrower / (each.cost / unit))


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
