"""What mattered: for each axis one sentence over all its contrasts, by counts of their verdicts.

Ahead and behind are significant after Holm correction.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stages.core.params import NONE
from stages.evaluation.metrics import scale_of
from stages.reporting.comparison.axes import AXES, Axis
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.number_format import are, compact, metric_name

FIRST: tuple[Axis, ...] = ("pretrained", "architecture", "size", "training set")
NAMES: dict[Axis, str] = {"pretrained": "pretraining", "training set": "training text"}
# What differs between two sides by what the axis is.
PART_OF_AXIS: dict[Axis, tuple[str, ...]] = {
    "size": ("parameters", "trained parameters"),
    "pretrained": ("tokens seen", "pretraining FLOPs", "bytes read"),
}
MOST = 3  # pairs of levels, or confounds, that a sentence names
FEW = 2  # contrasts that a sentence names


@dataclass(frozen=True)
class Mattered:
    axis: Axis
    name: str  # of the axis, in words
    sentence: str
    besides: str


def what_mattered(contrasts: Sequence[Contrast]) -> list[Mattered]:
    """A sentence for each axis of runs that the contrasts have, in the order of their interest."""
    order: tuple[Axis, ...] = (*FIRST, *(axis for axis in AXES if axis not in FIRST))
    members: dict[Axis, list[Contrast]] = {
        axis: [c for c in contrasts if c.axis == axis] for axis in order
    }
    return [
        Mattered(axis, NAMES.get(axis, axis), _sentence(axis, found), _besides(axis, found))
        for axis, found in members.items()
        if found
    ]


def _sentence(axis: Axis, contrasts: Sequence[Contrast]) -> str:
    members: dict[object, list[Contrast]] = defaultdict(list)
    for contrast in _told(contrasts):
        members[_kind(axis, contrast)].append(contrast)
    pairs = {_words(axis, found[0]): found for found in members.values()}
    # Those with a significant difference first.
    order = sorted(pairs, key=lambda pair: -sum(c.significant for c in pairs[pair]))
    named = order if len(order) <= MOST else order[: MOST - 1]
    parts = [_pair(pair, pairs[pair]) for pair in named]
    if rest := order[len(named) :]:
        parts.append(_rest(len(rest), [c for pair in rest for c in pairs[pair]]))
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def _told(contrasts: Sequence[Contrast]) -> Sequence[Contrast]:
    """Those of pretrained runs, where there are any: of others the forest tells."""
    pretrained = [c for c in contrasts if c.a.trials[0].objective != NONE]
    return pretrained or contrasts


def _kind(axis: Axis, contrast: Contrast) -> object:
    """Equal for the contrasts that are counted together."""
    if axis == "pretrained":
        return axis
    if axis in ("architecture", "objective", "training set"):
        return contrast.level_a, contrast.level_b
    return contrast.a.group, contrast.b.group


def _words(axis: Axis, contrast: Contrast) -> tuple[str, str]:
    """The two sides."""
    if axis == "pretrained":
        return "pretrained models", "the same models from scratch"
    if axis == "training set":
        return f"`{contrast.level_a}`", f"`{contrast.level_b}`"
    if axis in ("architecture", "objective"):
        return contrast.level_a, contrast.level_b
    one, other = contrast.a, contrast.b
    if axis == "size":
        return _with_size(one), _with_size(other)
    return f"`{one.group}`", f"`{other.group}`"


def _with_size(cell: Cell) -> str:
    return f"`{cell.group}` ({compact(cell.amounts['num_params'])} parameters)"


def _pair(pair: tuple[str, str], contrasts: Sequence[Contrast]) -> str:
    """``a is ahead of b in 3 of 6, behind in 1 of 6 contrasts (...)``: after Holm correction."""
    decided = [c for c in contrasts if c.significant]
    if not decided:
        return f"{_none(contrasts)} between {pair[0]} and {pair[1]} ({_count(contrasts)})"
    ahead = sum(c.a.merit > c.b.merit for c in decided)
    behind = len(decided) - ahead
    verb = "are" if pair[0].endswith("s") else "is"
    found = [
        f"{word} {number} of {len(contrasts)}"
        for word, number in ((f"ahead of {pair[1]} in", ahead), ("behind in", behind))
        if number
    ]
    if not ahead:
        found = [f"behind {pair[1]} in {behind} of {len(contrasts)}"]
    inside = "; ".join(filter(None, (_where(decided), _range(contrasts))))
    return f"{pair[0]} {verb} {', '.join(found)} contrasts{f' ({inside})' if inside else ''}"


def _where(decided: Sequence[Contrast]) -> str:
    """Of a few contrasts, with their effects."""
    if len(decided) > FEW:
        return ""
    return " and ".join(f"`{c.task}` with `{c.method}`: {_range([c])}" for c in decided)


def _rest(number: int, contrasts: Sequence[Contrast]) -> str:
    """The pairs beside those that are named."""
    significant = sum(c.significant for c in contrasts)
    where = f"in {number} more comparisons"
    if significant:
        count = f"{significant:,} of {len(contrasts):,} contrasts {are(significant)}"
        return f"{count} significant {where}"
    return f"{_none(contrasts)} {where} ({_count(contrasts)})"


def _none(contrasts: Sequence[Contrast]) -> str:
    tested = any(c.is_tested for c in contrasts)
    return "no significant difference" if tested else "no verdict on a difference"


def _count(contrasts: Sequence[Contrast]) -> str:
    number = f"{len(contrasts):,} contrast{'s' if len(contrasts) > 1 else ''}"
    return ", ".join(filter(None, (number, _range(contrasts))))


def _range(contrasts: Iterable[Contrast]) -> str:
    """The lowest effect and the highest, if they have one unit: no interval."""
    effects = [(c.effect.value, c.metric) for c in contrasts]
    units = {scale_of(metric).unit or metric_name(metric) for _, metric in effects}
    if len(units) > 1:
        return ""
    metric = effects[0][1]
    low, high = (scale_of(metric).signed(f(v for v, _ in effects)) for f in (min, max))
    return f"lowest {low}, highest {high} {units.pop()}" if low != high else f"{low} {units.pop()}"


def _besides(axis: Axis, contrasts: Sequence[Contrast]) -> str:
    """What the two sides differ in besides the axis, what most differ in first. Empty if nothing
    that is counted differs."""
    members = _told(contrasts)
    numbers = Counter(name for c in members for name in dict.fromkeys(_differs(axis, c)))
    found = numbers.most_common()
    in_all = [name for name, number in found[:MOST] if number == len(members)]
    in_some = [f"{name} in {number}" for name, number in found[:MOST] if number < len(members)]
    parts = [", ".join(in_all)] if in_all else []
    if in_some:
        parts[:1] = [f"{part} in all" for part in parts]
        parts.append(f"{', '.join(in_some)} of {len(members)} contrasts")
    more = f"; and {len(found) - MOST} more" if len(found) > MOST else ""
    return f"Also differs: {'; '.join(parts)}{more}." if found else ""


def _differs(axis: Axis, contrast: Contrast) -> list[str]:
    """The names of the confounds, without what the axis itself is."""
    names = [text.partition(":")[0] for text in contrast.confounds]
    objectives = {side.trials[0].objective for side in (contrast.a, contrast.b)}
    if axis == "architecture" and len(objectives) > 1:
        names.insert(0, "objective")
    return [name for name in names if name not in PART_OF_AXIS.get(axis, ())]
