"""The picture of what mattered: one mark with its interval for each main effect."""

from collections import defaultdict
from statistics import fmean

from stages.evaluation.metrics import scale_of
from stages.findings.facts import Estimate, MainEffect, Verdict
from stages.reporting.formats import difference_interval, signed
from stages.reporting.svg import Panel, Picture, Plot, Scale
from stages.reporting.view import View

BOTTOM, MOST = 24, 8  # pixels; effects in the picture


def shown_effects(view: View) -> list[MainEffect]:
    """Returns the effects of the picture: those of the first unit, the surest first if there are
    too many for a picture."""
    effects = view.results.effects
    alike = [e for e in effects if scale_of(e.metric) == scale_of(effects[0].metric)]
    if len(alike) > MOST:
        surest = sorted(alike, key=lambda e: (e.p is None, e.p))[:MOST]
        alike = [effect for effect in alike if effect in surest]
    return alike


def picture(view: View) -> Picture | None:
    effects = shown_effects(view) if view.results.effects else []
    if not effects:
        return None
    factor = scale_of(effects[0].metric).factor
    pairs = [_pairs(view, effect) for effect in effects]
    ends = [0.0]
    for effect, dots in zip(effects, pairs, strict=True):
        sign = factor * view.upwards(effect)[2]
        estimate = effect.estimate
        ends_of_one = [v for v in (estimate.value, estimate.low, estimate.high) if v is not None]
        ends += [sign * value for value in (*ends_of_one, *dots.values())]
    room = 0.04 * (max(ends) - min(ends)) or 1
    scale = Scale(min(ends) - room, max(ends) + room, left=1, right=99)
    panels, rows = [], []
    for effect, dots in zip(effects, pairs, strict=True):
        last = effect is effects[-1]
        first, second, sign = view.upwards(effect)
        title = view.compared(effect)
        plot = Plot(BOTTOM + 20 * last, title)
        _draw(plot, effect, dots, scale, sign * factor, last=last)
        estimate = turned(effect.estimate, sign)
        between = difference_interval(estimate, effect.metric)
        note = signed(estimate.value, effect.metric) + (f" ({between})" if between else "")
        panels.append(Panel(plot, title, note))
        about = {"axis": effect.axis, "level": first, "than": second}
        rows.append(about | {"effect": estimate.value, "low": estimate.low, "high": estimate.high})
    title = "Main effects"
    return Picture("effects", title, panels, rows, width=420, columns=1)


def turned(estimate: Estimate, sign: int) -> Estimate:
    """Returns the estimate times 1 or -1."""
    if sign > 0:
        return estimate
    low, high = (None if v is None else -v for v in (estimate.high, estimate.low))
    return Estimate(-estimate.value, low, high)


def _draw(
    plot: Plot,
    effect: MainEffect,
    pairs: dict[tuple[str, ...], float],
    scale: Scale,
    factor: int,
    *,
    last: bool,
) -> None:
    if last:
        plot.grid(scale, 0, BOTTOM, 8)
    plot.line("zero", scale(0), 0, scale(0), BOTTOM)
    for value in pairs.values() if len(pairs) > 1 else ():
        dot = f'<circle class="pair" cx="{scale(factor * value)}" cy="19" r="3"/>'
        plot.add(dot)
    name = "sure" if effect.verdict is Verdict.SIGNIFICANT else "unsure"
    ends: tuple[str, str] | None = None
    if effect.estimate.low is not None and effect.estimate.high is not None:
        ends = (scale(factor * effect.estimate.low), scale(factor * effect.estimate.high))
    plot.mark(name, scale(factor * effect.estimate.value), 8, plot.label, ends)


def _pairs(view: View, effect: MainEffect) -> dict[tuple[str, ...], float]:
    """Returns the mean over tasks of each matched pair's difference."""
    values: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for c in view.results.contrasts:
        if (c.axis, c.level_a, c.level_b) == (effect.axis, effect.level_a, effect.level_b):
            key = (*c.a.key._replace(task=""), *c.b.key._replace(task=""))
            values[key].append(c.estimate.value)
    return {key: fmean(some) for key, some in values.items()}
