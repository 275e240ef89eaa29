"""The number of labels that a run needs to be ahead of the best baseline: text and table."""

from collections.abc import Iterable

from stages.evaluation.metrics import cut, scale_of
from stages.findings.labels_needed import Crossing, LabelsNeeded, Reach
from stages.reporting.formats import DASH, in_parentheses, percent, with_unit
from stages.reporting.words.appendix import Appendix
from stages.reporting.words.names import best_baseline

HEADING = "Labels needed"
CAPTION = "From how many labels on a run is ahead of the best classical baseline"
NOTE = (
    "The number of labels from which on the mean score of a run is better than that of the best "
    "classical baseline with as many labels, up to the largest label budget. Between two label "
    "budgets the difference is taken as linear in the logarithm of the number of labels; nothing "
    "is extrapolated. The {confidence} interval is the range of numbers at which the interval of "
    "the difference includes 0; with few seeds it often ends outside the label budgets. The best "
    "baseline is the best of several, in part by luck, so the numbers are rather too large."
)
DOUBLING = (
    "Twice the labels: the change of the mean score per doubling, from the two largest label "
    "budgets. It says nothing about more labels than these."
)


def more_labels(needed: LabelsNeeded) -> str:
    """Returns the sentences of the first screen: from how many labels on the run is ahead of the
    best baseline, and how its score changes per doubling of the labels."""
    sentences = []
    if passing := needed.passing:
        fewest, most = needed.num_labels[0], needed.num_labels[-1]
        number, interval = _shown(passing.labels, needed), _interval(needed)
        reach = passing.labels.reach
        where = {
            Reach.ALREADY: f"already with {fewest:,} labels",
            Reach.BETWEEN: f"from {number} labels on",
            Reach.NOT_REACHED: f"with none of up to {most:,} labels",
            Reach.LOST: f"with fewer labels, but not with {most:,}",
        }[reach]
        baseline = best_baseline(may_be_external=passing.has_external)
        says_more = reach is not Reach.LOST and " to " in interval
        sentences.append(
            f"`{needed.run}` with `{needed.method}` is ahead of {baseline} {where}"
            f"{in_parentheses(f'interval: {interval}' if says_more else '')}."
        )
    *_, few, many = needed.num_labels
    gain = with_unit(needed.gain_per_doubling.value, needed.metric)
    sentences.append(
        f"Per doubling of the labels, from {few:,} to {many:,}: "
        f"{gain}{in_parentheses(_ends_of_gain(needed))}."
    )
    return " ".join(sentences)


def labels_needed(needed: Iterable[LabelsNeeded], confidence: float) -> Appendix:
    """Returns the table of all runs; it is empty if the study has only one number of labels."""
    rows = []
    for of_run in needed:
        passing, (*_, few, many) = of_run.passing, of_run.num_labels
        gain = scale_of(of_run.metric).signed(of_run.gain_per_doubling.value)
        rows.append(
            {
                "task": of_run.task,
                "run": of_run.run,
                "method": of_run.method,
                "best baseline": ", ".join(passing.baselines) if passing else DASH,
                "ahead from": _shown(passing.labels, of_run) if passing else DASH,
                "interval": _interval(of_run) or DASH,
                "twice the labels": f"{gain}{in_parentheses(_ends_of_gain(of_run))}",
                "between": f"{few:,} and {many:,}",
            }
        )
    notes = [NOTE.format(confidence=percent(confidence)), DOUBLING] if rows else []
    return Appendix(HEADING, {CAPTION: rows}, notes)


def _shown(crossing: Crossing, needed: LabelsNeeded) -> str:
    """Returns a number of labels as ``about 240``, ``at most 50`` or ``not up to 400``."""
    fewest, most = needed.num_labels[0], needed.num_labels[-1]
    match crossing.reach:
        case Reach.ALREADY:
            return f"at most {fewest:,}"
        case Reach.NOT_REACHED:
            return f"not up to {most:,}"
        case Reach.LOST:
            return f"not at {most:,}, with fewer"
    return f"about {crossing.num_labels:,.0f}"


def _interval(needed: LabelsNeeded) -> str:
    """Returns the interval of the labels needed: ``120 to more than 400``; "" if there is none."""
    passing = needed.passing
    if passing is None or passing.low is None or passing.high is None:
        return ""
    below, above = f"at most {needed.num_labels[0]:,}", f"more than {needed.num_labels[-1]:,}"
    low, high = (
        (below if end.reach is Reach.ALREADY else above)
        if end.num_labels is None
        else f"{end.num_labels:,.0f}"
        for end in (passing.low, passing.high)
    )
    return low if low == high else f"{low} to {high}"


def _ends_of_gain(needed: LabelsNeeded) -> str:
    gain = needed.gain_per_doubling
    if gain.low is None or gain.high is None:
        return ""
    signed = scale_of(needed.metric).signed
    low, high = cut(gain.low, gain.high, needed.metric, difference=True)
    return f"{signed(low)} to {signed(high)}"
