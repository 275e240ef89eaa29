"""Limits on how much of a large study the page shows, so that it opens at once."""

from collections import Counter
from collections.abc import Iterable, Sequence

from stages.core.artifacts import Json
from stages.findings.answers import BestRun
from stages.findings.contrasts import Contrast
from stages.findings.scores import Scores

TRIALS = 1000  # with more trials, the page has only their means
MEANS = 1000  # rows of the leaderboard
CONTRASTS = 1000
ROWS = 300  # of any other table
PICTURE = 200_000  # characters of a drawn picture


def contrasts(
    found: Sequence[Contrast], best_runs: Iterable[BestRun], scores: Scores
) -> Sequence[Contrast]:
    """Returns at most CONTRASTS contrasts, in their original order. If there are more, contrasts of
    the best runs are preferred, then those with the most labels, then those with the first method.
    Verdicts play no part."""
    if len(found) <= CONTRASTS:
        return found
    best = {(c.group, c.task) for c in (each.run for each in best_runs)}
    most, first = scores.label_budgets[-1], scores.methods[0]

    def rank(place: int) -> tuple[bool, bool, bool]:
        one = found[place]
        of_best = {(one.a.group, one.task), (one.b.group, one.task)} & best
        return not of_best, one.label_budget != most, one.method != first

    return [found[i] for i in sorted(sorted(range(len(found)), key=rank)[:CONTRASTS])]


def leaderboard(rows: Sequence[Json]) -> Sequence[Json]:
    """Returns all rows or, if there are more than MEANS, the first few of each task and label
    budget. ``rows`` must list the best of each task and label budget first."""
    if len(rows) <= MEANS:
        return rows
    places = [(row["task"], row["labels"]) for row in rows]
    means_of_place, seen = max(MEANS // len(set(places)), 1), Counter[tuple[str, str]]()
    kept = []
    for row, place in zip(rows, places, strict=True):
        seen[place] += 1
        if seen[place] <= means_of_place:
            kept.append(row)
    return kept
