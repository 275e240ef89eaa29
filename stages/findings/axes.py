"""The axes of a study, and the pairs of models that differ in exactly one axis.

A study does not declare its axes: they follow from the entries of params.yaml, never from scores.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, get_args

from stages.core.components import Settings
from stages.core.params import NONE
from stages.findings.facts import Axis, AxisName, Difference
from stages.findings.groups import Group

AXES: tuple[AxisName, ...] = get_args(AxisName)
WITHIN: tuple[AxisName, ...] = ("method", "label budget")  # vary without another pretraining
MAX_SIZE_RATIO = 2.0  # architectures within this ratio of used parameters count as one size
MAX_RATIO = 1.02  # sizes, amounts of text or numbers of epochs within this ratio count as one
# Settings of architectures that make a size; any other setting makes another architecture.
DIMENSIONS = {"d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff", "d_cell", "d_head"}
DIMENSIONS |= {"d_embedding", "d_projection", "num_encoder_layers", "num_decoder_layers"}
# Axes whose effects the start of a model may decide: it is told even if both sides share it.
STARTING = ("architecture", "pretrained")
# An optimizer, and the settings that are chosen for it: learning rates and, to compare optimizers
# at equal time, a number of steps.
OF_OPTIMIZERS = {"optimizer", "training.lr", "training.num_steps"}


class Pair(NamedTuple):
    """Two models that differ in one axis, with their levels on it."""

    axis: AxisName
    a: Group
    b: Group
    level_a: str
    level_b: str


def pairs(groups: Sequence[Group]) -> list[Pair]:
    """Returns the matched pairs of models, in the order of the axes.

    Where several models share a level (say, three learning rates of one architecture against one of
    another), those nearest to each other in size, then in settings, are paired: a pair is left out
    if one of its models has a nearer one at the other's level. Two amounts of one text are compared
    at equal steps and at equal epochs, two texts at the nearest amounts. A pretrained model without
    a model from scratch of its own is matched with one of which a task uses the same part: an
    encoder-decoder with an encoder.
    """
    levels = {axis: _levels(axis, groups) for axis in AXES if axis not in WITHIN}
    axis_of = {
        (a.name, b.name): axis
        for a, b in combinations(groups, 2)
        if (axis := axis_between(a, b)) and not _is_same_model(axis, a, b)
    }
    axis_of |= {(b, a): axis for (a, b), axis in axis_of.items()}

    def is_of_level(one: Group, other: Group, axis: AxisName) -> bool:
        if axis == "training set" and one.corpus_text is not None:
            return one.corpus_text == other.corpus_text  # also of another amount
        return levels[axis][one.name] == levels[axis][other.name]

    def is_nearest(group: Group, other: Group, axis: AxisName) -> bool:
        if axis == "pretrained" and not group.pretrained:
            return True  # one model from scratch serves all that begin as it does
        rivals = [
            rival
            for rival in groups
            if axis_of.get((group.name, rival.name)) == axis and is_of_level(rival, other, axis)
        ]
        least = min(_distance(group, rival, axis) for rival in rivals)
        return _distance(group, other, axis) <= least

    matched = []
    for a, b in combinations(groups, 2):
        axis = axis_of.get((a.name, b.name))
        if axis and is_nearest(a, b, axis) and is_nearest(b, a, axis):
            order = [*dict.fromkeys(levels[axis][group.name] for group in groups)]
            places = [order.index(levels[axis][group.name]) for group in (a, b)]
            one, other = (a, b) if _is_in_order(axis, a, b, places) else (b, a)
            names = levels[axis][one.name], levels[axis][other.name]
            matched.append(Pair(axis, one, other, *names))
    return sorted(matched, key=lambda pair: AXES.index(pair.axis))


def axes(
    matched: Sequence[Pair], methods: Sequence[str], label_budgets: Sequence[str]
) -> list[Axis]:
    """Returns the axes on which the study compares, with the models of each level."""
    members: dict[AxisName, dict[str, list[str]]] = {}
    for pair in matched:
        levels = members.setdefault(pair.axis, {})
        for group, level in ((pair.a, pair.level_a), (pair.b, pair.level_b)):
            models = levels.setdefault(level, [])
            if group.name not in models:
                models.append(group.name)
    within: list[tuple[AxisName, Sequence[str]]] = [
        ("method", methods),
        ("label budget", label_budgets),
    ]
    return [
        *(
            Axis(name, tuple(levels), {level: tuple(of) for level, of in levels.items()})
            for name, levels in members.items()
        ),
        *(Axis(name, tuple(levels), {}) for name, levels in within if len(levels) > 1),
    ]


def axis_between(a: Group, b: Group) -> AxisName | None:
    """Returns the one axis in which two models differ; None if they differ in none or in several.

    How public checkpoints differ is unknown, so they are compared with each other as whole
    checkpoints, and with a model pretrained here only if that has the checkpoint's architecture.
    """
    same_model = _without_start(a) == _without_start(b)
    if a.entry.is_public != b.entry.is_public:
        public, other = (a, b) if a.entry.is_public else (b, a)
        if not same_model or not public.entry.as_published:
            return None
        return "published" if other.pretrained else "pretrained"
    if a.entry.is_public:
        return _between_public(a, b)
    if a.pretrained != b.pretrained:
        return "pretrained" if same_model or _is_same_design(a, b) else None
    if a.corpus != b.corpus:
        same = same_model and a.entry.objective == b.entry.objective
        of_one_text = a.corpus_text is not None and a.corpus_text == b.corpus_text
        return ("amount of text" if of_one_text else "training set") if same else None
    if _kind_of_model(a) != _kind_of_model(b):
        is_near = _ratio(a.num_params, b.num_params) <= MAX_SIZE_RATIO
        return "architecture" if is_near else None
    if a.entry.objective != b.entry.objective:
        return "objective" if same_model else None
    if not same_model:
        return "size"
    differences = differing(a.settings, b.settings)
    if "optimizer" in differences and OF_OPTIMIZERS.issuperset(differences):
        return "optimizer"
    settings = {key.partition(".")[0] for key in differences}
    return next(axis for axis in AXES if axis in settings) if len(settings) == 1 else None


def _between_public(a: Group, b: Group) -> AxisName | None:
    published = [group for group in (a, b) if group.entry.as_published]
    if a.entry.architecture != b.entry.architecture:
        one, other = ((g.entry.corpus, g.entry.objective, g.settings) for g in (a, b))
        return "checkpoint" if len(published) == 2 or one == other else None
    if published:
        return "training set" if len(published) == 1 else None
    if a.corpus != b.corpus:
        return "training set" if a.entry.objective == b.entry.objective else None
    if a.entry.objective != b.entry.objective:
        return "objective"
    settings = {key.partition(".")[0] for key in differing(a.settings, b.settings)}
    return next(axis for axis in AXES if axis in settings) if len(settings) == 1 else None


def _without_start(group: Group) -> Settings:
    """The settings of a model without those that say whether its weights are published."""
    return {k: v for k, v in group.entry.architecture.items() if k not in ("weights",)}


def _kind_of_model(group: Group) -> Settings:
    return {k: v for k, v in group.entry.architecture.items() if k not in DIMENSIONS}


def _is_same_model(axis: AxisName, a: Group, b: Group) -> bool:
    """Whether two models from scratch differ in nothing that a task uses."""
    from_scratch = not (a.pretrained or b.pretrained) and a.settings == b.settings
    return axis in ("architecture", "size") and from_scratch and _is_same_design(a, b)


def _is_same_design(a: Group, b: Group) -> bool:
    return a.design is not None and a.design == b.design


def _is_in_order(axis: AxisName, a: Group, b: Group, places: Sequence[int]) -> bool:
    """Whether ``a`` is the lower level: the smaller, the one from scratch, the published one, or
    the one whose level comes first in params.yaml (``places``)."""
    if axis == "size":
        return a.num_params <= b.num_params
    if axis == "amount of text":
        return (a.corpus_tokens or 0) <= (b.corpus_tokens or 0)
    if axis == "pretrained":
        return not a.pretrained
    if axis in ("published", "training set") and a.entry.is_public:
        begins_with = b.entry.as_published or a.entry.parent == b.name
        return not begins_with
    return places[0] <= places[1]


def _ratio(one: float | None, other: float | None) -> float:
    """Returns the ratio of the larger amount to the smaller one; 1 if one is 0 or unknown."""
    return max(one, other) / min(one, other) if one and other else 1.0


def _distance(a: Group, b: Group, axis: AxisName) -> tuple[float, int]:
    """Returns a key that sorts pairs by their distance in size (or amount of text), then by the
    number of settings in which they differ."""
    size, settings = 0.0, set(differing(a.settings, b.settings))
    if axis == "architecture":
        size = round(math.log(_ratio(a.num_params, b.num_params)), 2)
    elif axis == "pretrained":
        size = float(_without_start(a) != _without_start(b))
    elif axis == "training set":
        size = math.log(_ratio(a.corpus_tokens, b.corpus_tokens))
    elif axis == "amount of text" and a.epochs and b.epochs:
        settings -= {"training.num_steps"} if _ratio(a.epochs, b.epochs) < MAX_RATIO else set()
    return size, len(settings)


def differing(a: Settings, b: Settings) -> list[str]:
    return [key for key in a if key in b and a[key] != b[key]]


# Levels --------------------------------------------------------------------------------------


def _levels(axis: AxisName, groups: Sequence[Group]) -> dict[str, str]:
    """Returns the level of each model on an axis. Models that may be matched with one another on
    another axis share a level."""
    if axis == "size":
        return _sizes(groups)
    return {group.name: LEVELS[axis](group, groups) for group in groups}


def _sizes(groups: Sequence[Group]) -> dict[str, str]:
    """Returns each model's size. Sizes of different architectures are one level if they are the
    nearest to each other, within ``MAX_SIZE_RATIO``."""
    by_kind: dict[str, set[int]] = {}
    for group in groups:
        by_kind.setdefault(repr(_kind_of_model(group)), set()).add(group.num_params)
    most_first = sorted(by_kind.items(), key=lambda item: -len(item[1]))
    level_of: dict[tuple[str, int], int] = {}
    for kind, sizes in most_first:
        for size in sorted(sizes):
            taken = {level for (other, _), level in level_of.items() if other == kind}
            near = [
                (distance, level)
                for level in {*level_of.values()} - taken
                if (distance := _ratio(size, level)) <= MAX_SIZE_RATIO
            ]
            mine = [level for level in taken if _ratio(size, level) <= MAX_RATIO]
            level_of[kind, size] = mine[0] if mine else min(near)[1] if near else size
    return {
        group.name: f"{level_of[repr(_kind_of_model(group)), group.num_params] / 1e6:.3g}M"
        for group in groups
    }


def _named(own: Settings, all_settings: Sequence[Settings]) -> str:
    """Returns ``name`` with the settings in which others of the same name differ."""
    alike = [each for each in all_settings if each["name"] == own["name"]]
    varied = {key for each in alike for key in own if each.get(key) != own[key]}
    shown = (f"{key}={own[key]}" for key in sorted(varied) if own[key] is not None)
    return ", ".join([own["name"], *shown])


def _checkpoint(group: Group, groups: Sequence[Group]) -> str:
    model = group.entry.architecture
    path = str(model.get("path", model["name"]))
    others = {
        g.entry.architecture.get("revision")
        for g in groups
        if g.entry.architecture.get("path") == path
    }
    return f"{path} at {model['revision'][:7]}" if len(others) > 1 else path


def _training_set(group: Group, groups: Sequence[Group]) -> str:
    further = group.entry.is_public and not group.entry.as_published
    return f"{group.entry.architecture['path']}, then {group.corpus}" if further else group.corpus


def _amount(group: Group, groups: Sequence[Group]) -> str:
    if not group.corpus_tokens:
        return group.corpus
    return f"{group.corpus}, {group.corpus_tokens:,} tokens, {group.epochs:.3g} epochs"


def _settings(group: Group, groups: Sequence[Group]) -> str:
    """The settings of training in which the study's models differ."""
    others = [g.settings for g in groups if g.settings]
    varied = {key for each in others for key in differing(group.settings, each)}
    shown = (f"{key.removeprefix('training.')}={group.settings[key]}" for key in sorted(varied))
    return ", ".join(shown) or group.name


LEVELS: Mapping[AxisName, Callable[[Group, Sequence[Group]], str]] = {
    "architecture": lambda g, every: _named(_kind_of_model(g), [_kind_of_model(o) for o in every]),
    "objective": lambda g, every: _named(g.entry.objective, [o.entry.objective for o in every]),
    "training set": _training_set,
    "amount of text": _amount,
    "pretrained": lambda g, _: "yes" if g.pretrained else "no",
    "published": lambda g, _: "yes" if g.entry.as_published else "no",
    "checkpoint": _checkpoint,
    "tokenizer": lambda g, _: g.entry.tokenizer,
    "parent": lambda g, _: g.entry.parent,
    "optimizer": lambda g, every: _named(
        g.settings.get("optimizer", {"name": NONE}),
        [o.settings["optimizer"] for o in every if "optimizer" in o.settings],
    ),
    "training": _settings,
}


# What else differs ---------------------------------------------------------------------------


def start_of(group: Group) -> str:
    """Returns how a model's attention starts: "usual", "local" or, with published weights,
    "published"."""
    if group.entry.is_public:
        return "published"
    return str(group.entry.architecture.get("start", "usual"))


def differences(axis: AxisName, a: Group, b: Group) -> tuple[Difference, ...]:
    """Returns what two models of a pair differ in, other than the axis: their start, settings of
    params.yaml, the share of targets, and how the learning rates of their pretraining were chosen.
    Between two training sets, it also counts if both tokenizers were trained on one of the sets,
    and if their amounts differ."""
    also: list[Difference] = []
    if axis in STARTING:
        also.append(Difference("start", *(start_of(group) for group in (a, b))))
    if axis == "architecture":
        if a.objective != b.objective:
            also.append(Difference("objective", a.objective, b.objective))
        one, other = (g.entry.architecture for g in (a, b))
        settings = [key for key in differing(one, other) if key != "start"]
        also += [Difference(key, one[key], other[key]) for key in settings]
    if axis in ("architecture", "objective") and a.targets_per_token != b.targets_per_token:
        shares = a.targets_per_token, b.targets_per_token
        also.append(Difference("targets per token", *shares))
    if axis == "training set":
        trained_on = a.tokenizer_corpus
        if trained_on == b.tokenizer_corpus != NONE and trained_on in (a.corpus, b.corpus):
            also.append(Difference("tokenizer trained on", trained_on, trained_on))
        if _ratio(a.corpus_tokens, b.corpus_tokens) > MAX_RATIO:
            also.append(Difference("tokens of text", a.corpus_tokens, b.corpus_tokens))
    owned = {"optimizer": {"optimizer"}}.get(axis, set())
    if axis not in ("checkpoint", "tokenizer", "parent", "training"):
        also += [
            Difference(key, a.settings[key], b.settings[key])
            for key in differing(a.settings, b.settings)
            if key not in owned
        ]
    if a.kept_rates and b.kept_rates:
        tried = [len(group.entry.training.rates) for group in (a, b)]
        if tried[0] != tried[1]:
            also.append(Difference("pretraining rates tried", *tried))
        if max(tried) > 1 and a.kept_rates != b.kept_rates:
            kept = [", ".join(map(str, group.kept_rates)) for group in (a, b)]
            also.append(Difference("kept pretraining rate", *kept))
    return tuple(d for d in also if d.name not in ("name", axis))
