"""Confusions of classes in words and shades."""

from collections.abc import Sequence

from stages.findings.confusions import MOST, Confusion, Line, Worst
from stages.reporting.formats import percent
from stages.reporting.words.names import quoted

LEVELS = (0.005, 0.1, 0.3, 0.6)  # shares of a row; a cell is one shade darker from each on


def finding(confusion: Confusion, baselines: Sequence[str]) -> str:
    """The class that is found least often, and what it is taken for."""
    cell, number = confusion.cell, confusion.num_classes
    named = quoted([cell.group])
    named += "" if cell.group in baselines else f" with `{cell.method}`"
    few = f"; the {MOST} of {number} classes with the most errors" if number > MOST else ""
    return f"{named}: {_worst(confusion.worst)}{few}"


def _worst(worst: Worst | None) -> str:
    if worst is None:
        return "every class is always found"
    share_found, mistaken = (percent(round(share, 2)) for share in (worst.found, worst.mistaken))
    return (
        f"`{worst.name}` is found least often ({share_found}) and most often taken for "
        f"`{worst.taken_for}` ({mistaken})"
    )


def shades(line: Line) -> list[int]:
    """Returns how dark each share is shaded, from 0 (not at all) to 4."""
    return [sum(share >= level for level in LEVELS) for share in line.shares]
