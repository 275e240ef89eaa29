"""How much more seeds or test rows would narrow the intervals, and what they would cost.

Everything is computed from the report's tables, because not only the report but also the plan of
the next study needs it.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

from stages.core.artifacts import Json
from stages.evaluation.variance import Source

SOURCES: dict[Source, str] = {  # source of chance -> suffix of its columns in contrasts.csv
    "pretraining seeds": "pretrain",
    "fine-tuning seeds": "finetune",
    "test rows": "rows",
}


def narrowing(
    undecided: Sequence[Json],
    trials: Sequence[Json],
    shown: Callable[[float], str],
    *,
    pretraining: str,
    finetuning: str,
    per: str,
) -> list[str]:
    """Returns, in a list, a sentence on how much narrower the intervals of ``undecided`` contrasts
    would be if the whole study had twice as many units of one source of chance, and on what that
    would cost. The list is empty if all contrasts are decided.

    ``undecided`` are the rows of contrasts.csv that have a verdict and are not significant.
    ``trials`` are the rows of trials.csv or costs.csv, whose columns ``pretraining`` (equal in all
    trials of a checkpoint) and ``finetuning`` are the costs. ``shown`` formats a cost, and ``per``
    names its unit: "per hour".
    """
    # Contrasts whose seeds draw the splits have no numbers in the ``narrower_`` columns.
    undecided = [row for row in undecided if any(row[f"narrower_{e}"] for e in SOURCES.values())]
    if not undecided:
        return []
    tuned = sum(_number(row[finetuning]) for row in trials)
    by_checkpoint = {
        (row["run"], row["pretrain_seed"]): _number(row[pretraining]) for row in trials
    }
    costs: dict[Source, float] = {  # test rows cost only their prediction
        "pretraining seeds": sum(by_checkpoint.values()) + tuned,
        "fine-tuning seeds": tuned,
    }
    narrower = {  # the relative reduction of the intervals' width, a mean over contrasts
        source: fmean(_number(row[f"narrower_{end}"]) for row in undecided)
        for source, end in SOURCES.items()
    }
    parts = [
        f"{source} by {_percent(share)}, "
        + (f"for {shown(costs[source])}" if source in costs else "for predicting them")
        for source, share in narrower.items()
    ]
    priced = [source for source, cost in costs.items() if cost]
    best = max(priced, key=lambda source: narrower[source] / costs[source], default=None)
    most = f" {best.capitalize()} narrow them most {per}." if best else ""
    number = len(undecided)
    contrasts, intervals = (
        ("contrast", "its interval") if number == 1 else ("contrasts", "their intervals")
    )
    return [
        f"{number} {contrasts} with a verdict {'is' if number == 1 else 'are'} not significant. "
        f"Doubling one thing in the whole study would narrow {intervals} on average: "
        f"{'; '.join(parts)}.{most}"
    ]


def _number(value: object) -> float:
    """Returns the number in a field; an empty field is unknown and counts as 0."""
    return 0.0 if value in ("", None) else float(str(value))


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%"
