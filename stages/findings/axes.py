"""The pairs of groups that differ in exactly one axis.

A study does not declare its axes: they follow from the entries of params.yaml.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple, get_args

from stages.core.components import Settings
from stages.core.params import NONE
from stages.findings.groups import Group, Used

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
    "optimizer",
    "training",
    "method",
    "label budget",
]
AXES: tuple[Axis, ...] = get_args(Axis)
MAX_SIZE_RATIO = 2.0  # architectures within this ratio of used parameters count as one size
MAX_RATIO = 1.02  # two amounts of text, or two numbers of epochs, within this ratio count as one
TOKENS_OF_TEXT = "tokens of text"  # a confound of two training sets of different text
# An optimizer, and the settings that are chosen for it: learning rates and, to compare optimizers
# at equal time, a number of steps.
OF_OPTIMIZERS = {"optimizer", "training.lr", "training.num_steps"}
# Phrases of ``Pair.reason``, by which the audit counts the reasons.
SAME_MODEL, UNLIKE_SIZES, BETTER_MATCHED = "the same model", "sizes too far apart", "is nearer to"


def axis_between(a: Group, b: Group) -> Axis | None:
    """Returns the one axis in which two groups differ; None if they differ in none or in several.

    Two architectures may have different dimensions here, because ``pairs`` matches the sizes of the
    parts that a task uses. How public checkpoints differ is unknown, so they are compared with each
    other as whole checkpoints, and with no other runs. A checkpoint that was pretrained further
    differs from the published one in its training set.
    """
    same_architecture = a.architecture == b.architecture
    same_model = a.entry.model == b.entry.model
    published = [group for group in (a, b) if group.entry.as_published]
    if a.entry.is_public or b.entry.is_public:
        if not (a.entry.is_public and b.entry.is_public):
            return None
        if not same_model:
            one, other = ((g.entry.corpus, g.entry.objective, g.settings) for g in (a, b))
            trained_alike = one == other  # both had the same further pretraining
            return "checkpoint" if len(published) == 2 or trained_alike else None
        if published:
            return "training set" if len(published) == 1 else None
    if a.pretrained != b.pretrained:
        return "pretrained" if same_model else None
    if a.corpus != b.corpus:
        same = same_model and a.entry.objective == b.entry.objective
        of_one_text = "amount of text" if _same_text(a, b) else "training set"
        return of_one_text if same else None
    if not same_architecture:
        return "architecture"
    if a.entry.objective != b.entry.objective:
        return "objective" if same_model else None
    if not same_model:
        return "size"
    differences = differing(a.settings, b.settings)
    if "optimizer" in differences and OF_OPTIMIZERS.issuperset(differences):
        return "optimizer"
    settings = {key.partition(".")[0] for key in differences}
    return next(axis for axis in AXES if axis in settings) if len(settings) == 1 else None


def _same_text(a: Group, b: Group) -> bool:
    """Whether the training sets of two groups are amounts of one text."""
    return a.corpus_text is not None and a.corpus_text == b.corpus_text


class Pair(NamedTuple):
    """Two groups that differ in one axis."""

    axis: Axis
    a: Group
    b: Group
    reason: str  # why they are not compared; "" if they are


def pairs(candidates: Sequence[Group], used: Mapping[str, Used]) -> list[tuple[Axis, Group, Group]]:
    """Returns the pairs of groups that make a contrast on a task. ``used`` has, for each group with
    trials, the part of its model that the task uses. On the axes "size", "amount of text" and
    "pretrained" the larger or the pretrained group comes first. A public checkpoint that was
    pretrained further comes before the checkpoint that it begins with.

    Where several groups share a level of an axis (say, three learning rates of one architecture
    against one of another), the groups nearest to each other in size, then in settings, are paired.
    Two groups are not compared if one of them has a nearer group at the other's level. Two amounts
    of one text are compared at equal steps and at equal epochs, two texts at the nearest amounts.
    If a pretrained group has no group from scratch of its own model, it is compared with one of
    which the task uses the same part: an encoder-decoder with an encoder, on a task with a head.
    """
    judged = _judged(candidates, used)
    return [(pair.axis, pair.a, pair.b) for pair in judged if not pair.reason]


def left_out(candidates: Sequence[Group], used: Mapping[str, Used]) -> list[Pair]:
    """Returns pairs that differ in one axis and make no contrast, with the reason: for each group
    and each level at which it has no contrast, its pair with the nearest group at that level."""
    judged = list(_judged(candidates, used))
    compared = {
        (group.name, axis, repr(_level(other, axis)))
        for axis, a, b, reason in judged
        for group, other in ((a, b), (b, a))
        if not reason
    }
    omitted: dict[tuple[Axis, frozenset[str]], Pair] = {}
    for alone in candidates:
        nearest: dict[tuple[Axis, str], Pair] = {}
        for pair in judged:
            if not pair.reason or alone not in (pair.a, pair.b):
                continue
            other = pair.b if pair.a is alone else pair.a
            place = pair.axis, repr(_level(other, pair.axis))
            if (alone.name, *place) not in compared:
                nearest[place] = min(
                    filter(None, (nearest.get(place), pair)),
                    key=lambda each: _distance(each.a, each.b, each.axis, used),
                )
        for pair in nearest.values():
            omitted.setdefault((pair.axis, frozenset((pair.a.name, pair.b.name))), pair)
    return list(omitted.values())


def _judged(candidates: Sequence[Group], used: Mapping[str, Used]) -> Iterator[Pair]:
    """Yields every pair of groups with trials that differ in one axis, compared or not."""
    present = [group for group in candidates if group.name in used]
    axes = {
        (a.name, b.name): axis for a, b in combinations(present, 2) if (axis := axis_between(a, b))
    }
    axes |= _axes_of_designs(present, used, axes)
    axes |= {(b, a): axis for (a, b), axis in axes.items()}

    def nearer(group: Group, other: Group, axis: Axis) -> Group | None:
        """Returns the group at the level of ``other`` that is nearest to ``group``, or None if no
        group is nearer than ``other``."""
        if axis not in LEVELS:
            return None
        nearest = min(
            (
                rival
                for rival in present
                if axes.get((group.name, rival.name)) == axis
                and _level(rival, axis) == _level(other, axis)
            ),
            key=lambda rival: _distance(group, rival, axis, used),
        )
        distances = [_distance(group, each, axis, used) for each in (nearest, other)]
        return nearest if distances[0] < distances[1] else None

    for a, b in combinations(present, 2):
        axis = axes.get((a.name, b.name))
        if axis is None:
            continue
        if (
            (axis == "size" and used[b.name].num_params > used[a.name].num_params)
            or (axis == "pretrained" and b.pretrained)
            or _begins_with(b, a)
            or (axis == "amount of text" and (b.corpus_tokens or 0) > (a.corpus_tokens or 0))
        ):
            a, b = b, a  # noqa: PLW2901
        reason = _incomparable(axis, a, b, used)
        for group, other in ((a, b), (b, a)):
            if rival := nearer(group, other, axis):
                better = f"{rival.name} {BETTER_MATCHED} {group.name} in size and settings"
                reason = reason or better
        yield Pair(axis, a, b, reason)


def _begins_with(group: Group, other: Group) -> bool:
    """Whether ``group`` is the public checkpoint ``other``, pretrained further."""
    if group.entry.model != other.entry.model or not group.entry.is_public:
        return False
    return other.entry.as_published or group.entry.parent == other.name


def _axes_of_designs(
    present: Sequence[Group], used: Mapping[str, Used], by_model: Mapping[tuple[str, str], Axis]
) -> dict[tuple[str, str], Axis]:
    """Returns the axis "pretrained" for pairs of a pretrained group and a group from scratch whose
    models differ, but not in the part that the task uses: on a task with a head, an encoder-decoder
    and an encoder. Pretrained groups with a partner of their own model are left out."""
    paired = {name for names, axis in by_model.items() if axis == "pretrained" for name in names}
    axes: dict[tuple[str, str], Axis] = {}
    for a, b in combinations(present, 2):
        pretrained, scratch = (a, b) if a.pretrained else (b, a)
        designs = {used[a.name].design, used[b.name].design}
        if (
            pretrained.pretrained
            and not scratch.pretrained
            and pretrained.name not in paired
            and (a.name, b.name) not in by_model
            and not (a.entry.is_public or b.entry.is_public)
            and len(designs) == 1
            and None not in designs
        ):
            axes[a.name, b.name] = "pretrained"
    return axes


LEVELS: Mapping[Axis, Callable[[Group], object]] = {
    "architecture": lambda g: (g.architecture, g.entry.objective),
    "objective": lambda g: g.entry.objective,
    "size": lambda g: g.entry.model,
    "training set": lambda g: g.corpus_text or g.corpus,
    "amount of text": lambda g: g.corpus,
    "pretrained": lambda g: (g.corpus, g.entry.objective),
}


def _level(group: Group, axis: Axis) -> object:
    """Returns the level of a group on an axis. On an axis that is not in ``LEVELS`` every group is
    a level of its own."""
    return LEVELS[axis](group) if axis in LEVELS else group.name


def _incomparable(axis: Axis, a: Group, b: Group, used: Mapping[str, Used]) -> str:
    """Returns the reason why two groups would not be compared even if there were no other groups:
    they are the same model (both from scratch, and the task uses parts of equal design), or their
    sizes differ too much. Returns "" if there is no such reason."""
    one, other = used[a.name], used[b.name]
    from_scratch = not (a.pretrained or b.pretrained) and a.settings == b.settings
    one_design = one.design is not None and one.design == other.design
    if axis in ("architecture", "size") and from_scratch and one_design:
        return f"{SAME_MODEL}: what is used of both is one {one.architecture} without pretraining"
    ratio = _ratio(one.num_params, other.num_params)
    if axis == "architecture" and ratio > MAX_SIZE_RATIO:
        return f"{UNLIKE_SIZES}: one uses {ratio:.1f} times the parameters of the other"
    return ""


def _ratio(one: float | None, other: float | None) -> float:
    """Returns the ratio of the larger amount to the smaller one; 1 if one is 0 or unknown."""
    return max(one, other) / min(one, other) if one and other else 1.0


def _distance(a: Group, b: Group, axis: Axis, used: Mapping[str, Used]) -> tuple[float, int]:
    """Returns a key that sorts pairs by their distance in size (or amount of text), then by the
    number of settings in which they differ."""
    size, settings = 0.0, set(differing(a.settings, b.settings))
    if axis == "architecture":
        size = math.log(_ratio(used[a.name].num_params, used[b.name].num_params))
    elif axis == "training set":
        size = math.log(_ratio(a.corpus_tokens, b.corpus_tokens))
    elif axis == "amount of text" and a.epochs and b.epochs:
        settings -= {"training.num_steps"} if _ratio(a.epochs, b.epochs) < MAX_RATIO else set()
    return size, len(settings)


class Confound(NamedTuple):
    """A property in which two sides differ, other than the axis, with its value on each side."""

    name: str
    values: tuple[Any, ...]


def confounded_settings(axis: Axis, a: Group, b: Group) -> tuple[Confound, ...]:
    """Returns the settings in params.yaml, other than the axis, in which two groups differ, and the
    differences in how the learning rates of their pretraining were chosen. Between two
    architectures, different objectives are a confound. Between two training sets, it is a
    confound if the tokenizers of both groups were trained on one of the sets, and another if text
    and amount both differ."""
    if axis in ("checkpoint", "tokenizer", "parent", "training"):
        return tuple(_tuning(a, b))
    if axis == "optimizer":
        return tuple(c for c in confounds_among(a.settings, b.settings) if c.name != axis)
    models = (a.entry.model, b.entry.model) if axis == "architecture" else ({}, {})
    objectives = (a.objective, b.objective) if axis == "architecture" else ("", "")
    trained_on = a.tokenizer_corpus
    shared = axis == "training set" and trained_on == b.tokenizer_corpus
    on_one_side = shared and trained_on != NONE and trained_on in (a.corpus, b.corpus)
    other_text = axis == "training set" and not _same_text(a, b)
    unequal_amounts = other_text and _ratio(a.corpus_tokens, b.corpus_tokens) > MAX_RATIO
    tokens = Confound(TOKENS_OF_TEXT, (a.corpus_tokens, b.corpus_tokens))
    return (
        *([Confound("objective", objectives)] if len({*objectives}) > 1 else []),
        *([Confound("tokenizer trained on", (trained_on,))] if on_one_side else []),
        *([tokens] if unequal_amounts else []),
        *(confound for confound in confounds_among(*models) if confound.name != "name"),
        *confounds_among(a.settings, b.settings),
        *_tuning(a, b),
    )


def confounds_among(a: Settings, b: Settings) -> list[Confound]:
    return [Confound(key, (a[key], b[key])) for key in differing(a, b)]


def _tuning(a: Group, b: Group) -> Iterator[Confound]:
    """Yields the numbers of learning rates that two pretrained groups tried, if they differ, and
    the rates that they kept, if they differ."""
    if not (a.kept_rates and b.kept_rates):
        return
    tried = [len(group.entry.training.rates) for group in (a, b)]
    if tried[0] != tried[1]:
        yield Confound("pretraining rates tried", tuple(tried))
    if max(tried) > 1 and a.kept_rates != b.kept_rates:
        kept = (", ".join(map(str, group.kept_rates)) for group in (a, b))
        yield Confound("kept pretraining rate", tuple(kept))


def differing(a: Settings, b: Settings) -> list[str]:
    return [key for key in a if key in b and a[key] != b[key]]


def levels_of(axis: Axis, a: Group, b: Group, used: Mapping[str, Used]) -> tuple[str, str]:
    """Returns the level of each side on the axis, in words."""

    def used_part(g: Group) -> str:
        part = used[g.name].architecture
        return part if part == g.architecture else f"{part} of an {g.architecture}"

    def words(g: Group, other: Group) -> str:
        match axis:
            case "architecture":
                return used_part(g) + (f" ({g.objective})" if g.pretrained else "")
            case "objective":
                return " ".join([g.objective, *_own(g.entry.objective, other.entry.objective)])
            case "size":
                return ", ".join(_own(g.entry.model, other.entry.model))
            case "training set":
                further = g.entry.is_public and not g.entry.as_published
                return f"{g.entry.model['path']}, then {g.corpus}" if further else g.corpus
            case "amount of text":
                return f"{g.corpus}, {g.corpus_tokens:,} tokens, {g.epochs:.3g} epochs"
            case "checkpoint":
                path = g.entry.model["path"]
                same_path = path == other.entry.model["path"]
                return path + (f" at {g.entry.model['revision'][:7]}" if same_path else "")
            case "optimizer":
                optimizer = g.entry.training.optimizer
                return " ".join(
                    [optimizer["name"], *_own(optimizer, other.entry.training.optimizer)]
                )
            case "pretrained":
                start = f"{g.objective} on {g.corpus}" if g.pretrained else "from scratch"
                same = g.entry.model == other.entry.model
                return start if same else f"{used_part(g)}, {start}"
            case _:
                return ", ".join(_own(g.settings, other.settings))

    return words(a, b), words(b, a)


def _own(one: Settings, other: Settings) -> list[str]:
    """Returns the settings of one side that the other side lacks or has with another value."""
    return [f"{k}={v}" for k, v in one.items() if k != "name" and other.get(k) != v]
