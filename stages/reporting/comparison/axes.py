"""The pairs of groups that differ in exactly one axis.

Nothing is declared: the axes follow from the entries of params.yaml.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, get_args

from stages.core.components import Settings
from stages.reporting.comparison import amounts
from stages.reporting.comparison.groups import Group

Axis = Literal[
    "architecture",
    "objective",
    "size",
    "training set",
    "amount of text",
    "pretrained",
    "checkpoint",
    "tokenizer",
    "parent",
    "training",
    "method",
    "label budget",
]
AXES: tuple[Axis, ...] = get_args(Axis)
MAX_SIZE_RATIO = 2.0  # two architectures within this ratio of parameters count as one size


def axis_between(a: Group, b: Group) -> Axis | None:
    """The one axis in which two groups differ; None if there is none or more than one.

    Two architectures may have different dimensions here: ``pairs`` matches their sizes. How public
    checkpoints differ is unknown, so they are compared with each other as whole checkpoints, and
    with no run of the study. A checkpoint that was pretrained further differs from the published
    one in its training set, as a run differs from its parent.
    """
    same_architecture = a.architecture == b.architecture
    same_model = a.entry.model == b.entry.model
    published = [group for group in (a, b) if group.entry.as_published]
    if a.entry.is_public or b.entry.is_public:
        if not (a.entry.is_public and b.entry.is_public):
            return None
        if not same_model:
            return "checkpoint" if len(published) == 2 or _trained_alike(a, b) else None
        if published:
            return "training set" if len(published) == 1 else None
    if a.pretrained != b.pretrained:
        return "pretrained" if same_model else None
    if a.corpus != b.corpus:
        same = same_model and a.entry.objective == b.entry.objective
        if same and amounts.same_text(a, b):
            return amounts.AMOUNT
        return "training set" if same else None
    if not same_architecture:
        return "architecture"
    if a.entry.objective != b.entry.objective:
        return "objective" if same_model else None
    if not same_model:
        return "size"
    settings = {key.partition(".")[0] for key in differing(a.settings, b.settings)}
    return next(axis for axis in AXES if axis in settings) if len(settings) == 1 else None


def _trained_alike(a: Group, b: Group) -> bool:
    """Whether two public checkpoints were pretrained further in the same way."""
    same = (a.entry.corpus, a.entry.objective) == (b.entry.corpus, b.entry.objective)
    return same and a.settings == b.settings


def pairs(candidates: Sequence[Group]) -> list[tuple[Axis, Group, Group]]:
    """The pairs of groups that make a contrast. Along "size", "amount of text" and "pretrained"
    the larger or the pretrained group comes first.

    Where several groups share a level of an axis (say, three learning rates of one architecture
    against one of another), those nearest to each other in size, then in settings, are paired. A
    group is not compared with one that another group matches better. Two amounts of one text are
    compared at equal steps and at equal epochs, two texts at the nearest amounts.
    """
    level: Mapping[str, Callable[[Group], Any]] = {
        "architecture": lambda g: (g.architecture, g.entry.objective),
        "objective": lambda g: g.entry.objective,
        "size": lambda g: g.entry.model,
        "training set": amounts.text_of,
        amounts.AMOUNT: lambda g: g.corpus,
        "pretrained": lambda g: (g.corpus, g.entry.objective),
    }

    def nearest(group: Group, other: Group, axis: Axis) -> bool:
        """Whether no group at the level of ``other`` is nearer to ``group``."""
        if axis not in level:
            return True
        return _distance(group, other, axis) == min(
            _distance(group, rival, axis)
            for rival in candidates
            if axis_between(group, rival) == axis and level[axis](rival) == level[axis](other)
        )

    found: list[tuple[Axis, Group, Group]] = []
    for a, b in combinations(candidates, 2):
        axis = axis_between(a, b)
        if axis is None or not (nearest(a, b, axis) and nearest(b, a, axis)):
            continue
        if axis == "architecture" and _size_ratio(a, b) > MAX_SIZE_RATIO:
            continue
        swap = (axis == "size" and b.num_params > a.num_params) or (
            axis == "pretrained" and b.pretrained
        )
        swap = swap or (axis == amounts.AMOUNT and (b.corpus_tokens or 0) > (a.corpus_tokens or 0))
        found.append((axis, b, a) if swap else (axis, a, b))
    return found


def _size_ratio(a: Group, b: Group) -> float:
    small, large = sorted((max(a.num_params, 1), max(b.num_params, 1)))
    return large / small


def _distance(a: Group, b: Group, axis: Axis) -> tuple[float, int]:
    size = math.log(_size_ratio(a, b)) if axis == "architecture" else 0.0
    settings = set(differing(a.settings, b.settings))
    if axis == "training set":
        size = math.log(amounts.unlike_amount(a, b))
    elif axis == amounts.AMOUNT and amounts.equal_epochs(a, b):
        settings -= {amounts.NUM_STEPS}
    return size, len(settings)


def levels_of(axis: Axis, a: Group, b: Group) -> tuple[str, str]:
    """The level of each side on the axis, in words."""

    def words(g: Group, other: Group) -> str:
        match axis:
            case "architecture":
                return f"{g.architecture} ({g.objective})" if g.pretrained else g.architecture
            case "objective":
                return " ".join([g.objective, *_settings(g.entry.objective, other.entry.objective)])
            case "size":
                return ", ".join(_settings(g.entry.model, other.entry.model))
            case "training set":
                further = g.entry.is_public and not g.entry.as_published
                return f"{g.entry.model['path']}, then {g.corpus}" if further else g.corpus
            case amounts.AMOUNT:
                return amounts.words(g)
            case "checkpoint":
                return _checkpoint(g, other)
            case "pretrained":
                return f"{g.objective} on {g.corpus}" if g.pretrained else "from scratch"
            case _:
                return ", ".join(_settings(g.settings, other.settings))

    return words(a, b), words(b, a)


def _checkpoint(group: Group, other: Group) -> str:
    path = group.entry.model["path"]
    same_path = path == other.entry.model["path"]
    return path + (f" at {group.entry.model['revision'][:7]}" if same_path else "")


def _settings(one: Settings, other: Settings) -> list[str]:
    """The settings of one side that the other side lacks or has with another value."""
    return [f"{k}={v}" for k, v in one.items() if k != "name" and other.get(k) != v]


def confounded_settings(axis: Axis, a: Group, b: Group) -> tuple[str, ...]:
    """The settings in params.yaml, other than the axis, in which two groups differ, and how the
    learning rates of their pretraining were chosen."""
    if axis in ("checkpoint", "tokenizer", "parent", "training"):
        return tuple(_tuning(a, b))
    models = (a.entry.model, b.entry.model) if axis == "architecture" else ({}, {})
    return (
        *(amounts.unequal_amounts(a, b) if axis == "training set" else ()),
        *(f"{k}: {models[0][k]} v. {models[1][k]}" for k in differing(*models) if k != "name"),
        *(f"{k}: {a.settings[k]} v. {b.settings[k]}" for k in differing(a.settings, b.settings)),
        *_tuning(a, b),
    )


def _tuning(a: Group, b: Group) -> Iterator[str]:
    """Where two pretrained groups tried other numbers of learning rates, or kept other ones."""
    if not (a.kept_rates and b.kept_rates):
        return
    tried = [len(group.entry.training.rates) for group in (a, b)]
    if tried[0] != tried[1]:
        yield f"pretraining rates tried: {tried[0]} v. {tried[1]}"
    if max(tried) > 1 and a.kept_rates != b.kept_rates:
        kept = [", ".join(map(str, group.kept_rates)) for group in (a, b)]
        yield f"kept pretraining rate: {kept[0]} v. {kept[1]}"


def differing(a: Settings, b: Settings) -> list[str]:
    return [key for key in a if key in b and a[key] != b[key]]
