"""The part of the appendix on how well estimates from frozen states rank the runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stages.core.keys import RunKey
from stages.core.params import Run
from stages.evaluation.estimates import ESTIMATES, EstimateRecord
from stages.evaluation.metrics import scale_of
from stages.evaluation.rank_agreement import FEWEST
from stages.evaluation.screening import ScreenedOut
from stages.findings.estimates import (
    COMPARABLE,
    HEURISTICS,
    MEAN_RANK,
    NUM_PARAMS,
    PRETRAIN_FLOPS,
    VALIDATION_LOSS,
    Agreement,
)
from stages.findings.groups import names_of
from stages.reporting.formats import DASH, formatted, percent
from stages.reporting.words.appendix import Appendix

NAMES = {
    "h_score": "H-score",
    "h_score_above_chance": "H-score above chance",
    "logme": "LogME",
    "knn": "nearest neighbours",
    NUM_PARAMS: "parameters",
    PRETRAIN_FLOPS: "pretraining FLOPs",
    VALIDATION_LOSS: "low pretraining loss",
    MEAN_RANK: "mean rank on the other tasks",
}
SHOWN = "last"  # the layer whose estimates are shown: the one that heads read, whatever the results
EXPLAINED = (
    "H-score, LogME and the accuracy of the 3 nearest neighbours are computed from the frozen "
    "states of the last layer, for the same labelled rows of each checkpoint, before anything is "
    "fine-tuned; `agreement.csv` has the mean of the layers and the best layer as well. Above "
    "chance: less the mean over all orders of the labels, which differs between runs. Tau: the "
    "weighted Kendall correlation of the estimate with the test score over checkpoints (1: the "
    "same order, 0: chance; the better ones weigh more), with its {confidence} interval from a "
    "bootstrap over runs, each with all of its seeds, which is wide where there are few. It takes "
    f"{FEWEST} checkpoints for a tau, and {FEWEST} runs for an interval. The report's "
    "recommendations use test scores, not estimates."
)
COMPARED = (
    "Heuristics need no labelled row of the task, and show what an estimate has to beat: the "
    "number of parameters in use; the FLOPs of pretraining with parents and teachers, which are "
    "unknown of public checkpoints; a low validation loss at the end of pretraining, compared only "
    "between runs with equal objective, training text, tokenizer, row length and parent; and the "
    "mean rank of the test scores on the other tasks, which needs fine-tuning on these."
)
CHOICES = (
    "What a study would lose and save by fine-tuning only the checkpoint with the highest "
    "estimate: the score of the best checkpoint less that of the chosen one, in the unit of the "
    "metric, and the share of the FLOPs of fine-tuning all checkpoints, less those of the "
    "estimate's own states. At random: the mean loss of a checkpoint drawn blindly. The best "
    "checkpoint's score is partly luck, so even a right choice may seem to lose a little."
)


def estimates(
    agreements: Sequence[Agreement],
    records: Mapping[str, Sequence[EstimateRecord]],
    screened_out: Mapping[str, Sequence[ScreenedOut]],
    runs: Mapping[str, Run],
    confidence: float,
) -> Appendix:
    """Returns the appendix on estimates, which is empty without an estimate. ``agreements`` are
    those of estimates from the layer SHOWN and of heuristics, at the largest label budget."""
    places = _by_place(a for a in agreements if a.estimate in ESTIMATES)
    if not places:
        return Appendix("Estimates", {})
    compared = [
        _correlations(by_name, HEURISTICS)
        for by_name in _by_place(a for a in agreements if a.estimate in HEURISTICS)
    ]
    tables = {
        "Rank correlation of estimates from frozen states with test scores": [
            _correlations(by_estimate, ESTIMATES) for by_estimate in places
        ],
        "Rank correlation of heuristics with test scores": compared,
        "What the choice of an estimate would have lost and saved": [
            _choice(by_estimate, runs)
            for by_estimate in places
            if _any(by_estimate).runs == "all" and _any(by_estimate).num_checkpoints > 1
        ],
        # the best of each task first
        "Runs that are screened out, and the mean of their estimates": [
            {
                "task": task,
                "run": screened.run,
                "estimate": screened.by,
                "mean": formatted(screened.value, ".3f"),
                "rank": str(screened.rank),
            }
            for task, some in screened_out.items()
            for screened in some
        ],
    }
    explained = EXPLAINED.format(confidence=percent(confidence))
    return Appendix("Estimates", tables, [explained, COMPARED, *_left_out(records), CHOICES])


def _by_place(agreements: Iterable[Agreement]) -> list[dict[str, Agreement]]:
    """Groups agreements by task, method and set of checkpoints; a group is a dict by estimate."""
    by_place: dict[tuple[object, ...], dict[str, Agreement]] = {}
    for agreement in agreements:
        members = agreement.checkpoints if agreement.runs == COMPARABLE else ()
        place = agreement.task, agreement.method, agreement.runs, members
        by_place.setdefault(place, {})[agreement.estimate] = agreement
    return list(by_place.values())


def _any(by_estimate: Mapping[str, Agreement]) -> Agreement:
    return next(iter(by_estimate.values()))


def _correlations(by_estimate: Mapping[str, Agreement], names: Sequence[str]) -> dict[str, str]:
    first = _any(by_estimate)
    runs = "" if first.num_checkpoints == first.num_runs else f" ({first.num_runs} runs)"
    return {
        "task": first.task,
        "method": first.method,
        "labels": first.label_budget,
        "checkpoints": f"{first.runs}, {first.num_checkpoints}{runs}",
        **{NAMES[key]: _tau(by_estimate.get(key)) for key in names},
    }


def _tau(agreement: Agreement | None) -> str:
    if agreement is None or agreement.tau is None:
        return DASH
    numbers = (agreement.tau, agreement.low, agreement.high)
    tau, low, high = (formatted(value, "+.2f") for value in numbers)
    return tau if agreement.low is None else f"{tau} ({low} to {high})"


def _choice(by_estimate: Mapping[str, Agreement], runs: Mapping[str, Run]) -> dict[str, str]:
    def named(*checkpoints: RunKey) -> str:
        return "; ".join(names_of(checkpoints, runs))

    first = _any(by_estimate)
    shown = scale_of(first.metric).shown
    shares = [a.saved_flops for a in by_estimate.values() if a.saved_flops is not None]
    extremes = (min(shares), max(shares)) if shares else ()
    saved = dict.fromkeys(formatted(share, ".0%") for share in extremes)
    return {
        "task": first.task,
        "method": first.method,
        "labels": first.label_budget,
        "best checkpoint": named(first.best),
        **{
            NAMES[key]: f"{shown(by_estimate[key].lost)} ({named(*by_estimate[key].chosen)})"
            if key in by_estimate
            else DASH
            for key in ESTIMATES
        },
        "at random": shown(first.lost_at_random),
        "FLOPs saved": " to ".join(saved) or DASH,
    }


def _left_out(records: Mapping[str, Sequence[EstimateRecord]]) -> Iterator[str]:
    """Yields the estimates that a task lacks, with the reason."""
    for task, of_task in records.items():
        reasons: dict[str, dict[str, None]] = {}
        for record in of_task:
            if record.reason and record.layers == SHOWN:
                reasons.setdefault(record.reason, {})[NAMES[record.estimate]] = None
        for reason, names in reasons.items():
            yield f"Not on `{task}`: {', '.join(names)} ({reason})."
