"""What the audit asks of settings that all runs share by default."""

from collections.abc import Iterable, Iterator

from stages.evaluation.metrics import scale_of
from stages.reporting.comparison.audit.check import Check, place
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.shared_defaults import (
    Change,
    Forced,
    ForcedEffect,
    changes,
    forced_effects,
    largest_changes,
    not_varied,
)
from stages.reporting.score_format import with_unit


def shared_defaults(results: Results) -> Check:
    """An objection if a forced value reverses a contrast whose interval excludes zero, or if
    nothing was varied that could have been."""
    question = "Does a shared default decide?"
    fixed = not_varied(results.tries)
    found = changes(results.cells, results.tries)
    left = (f"not varied: {', '.join(fixed)}",) if fixed else ()
    if not found:
        if not fixed:
            return Check(question, "No trial had such a setting to choose.", None)
        return Check(question, "Every run has the same defaults; no other was tried.", True, left)
    largest = largest_changes(found)
    reversals = [*_reversals(results.contrasts, found)]
    shown = [contrast for contrast, _ in reversals if contrast.significant_before_correction]
    sizes = ", ".join(f"{name} by up to {_size(change)}" for name, change in largest.items())
    return Check(
        question,
        f"With one value forced on all runs the mean of a cell changes: {sizes}. That reverses "
        f"{len({id(contrast) for contrast, _ in reversals})} of {len(results.contrasts)} "
        f"contrasts, {len({id(contrast) for contrast in shown})} of them with an interval that "
        "excludes zero.",
        bool(shown),
        (
            *(_largest(change) for change in largest.values()),
            *(_reversal(contrast, effect) for contrast, effect in reversals),
            *left,
        ),
    )


def _reversals(
    contrasts: Iterable[Contrast], found: Iterable[Change]
) -> Iterator[tuple[Contrast, ForcedEffect]]:
    """The contrasts that a forced value reverses, those whose interval excludes zero first."""
    every, listed = [*contrasts], [*found]
    for contrast in sorted(every, key=lambda each: not each.significant_before_correction):
        for effect in forced_effects([(contrast.a, contrast.b)], listed):
            if effect.is_reversed:
                yield contrast, effect


def _size(change: Change) -> str:
    scale = scale_of(change.cell.metric)
    return f"{scale.shown(abs(change.size))} {scale.unit}".strip()


def _largest(change: Change) -> str:
    size = with_unit(change.size, change.cell.metric)
    return f"{_name(change.forced)}: {size} for {place(change.cell)}"


def _reversal(contrast: Contrast, effect: ForcedEffect) -> str:
    scale = scale_of(contrast.metric)
    sizes = f"{scale.signed(effect.chosen)} becomes {with_unit(effect.value, contrast.metric)}"
    sides = " against ".join(map(_side, (contrast.a, contrast.b)))
    return f"{_name(effect.forced)} reverses {sides} on {contrast.task}: {sizes}"


def _side(cell: Cell) -> str:
    return f"{cell.group} ({cell.method}, {cell.label_budget} labels)"


def _name(forced: Forced) -> str:
    return f"{forced.setting}={forced.value}"
