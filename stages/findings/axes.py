"""The axes of a study, and the pairs of models that differ in exactly one axis.

A study does not declare its axes: they follow from the entries of params.yaml, never from scores.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, get_args

from stages.core.components import Settings
from stages.core.params import NONE
from stages.findings.facts import AxisName, Difference
from stages.findings.models import ComparedModel

AXES: tuple[AxisName, ...] = get_args(AxisName)
WITHIN: tuple[AxisName, ...] = ("method", "label budget")  # vary without another pretraining
MAX_SIZE_RATIO = 2.0  # architectures within this ratio of used parameters count as one size
MAX_RATIO = 1.02  # sizes, amounts of text or numbers of epochs within this ratio count as one
# Settings of architectures that make a size; any other setting makes another architecture.
DIMENSIONS = {"d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff", "d_cell", "d_head"}
DIMENSIONS |= {"d_embedding", "d_projection", "num_encoder_layers", "num_decoder_layers"}
_CHECKPOINT = ("path", "revision")
# Axes whose effects may depend on how attention starts: reported even if both sides share it.
STARTING = ("architecture", "pretrained", "published")
# An optimizer, and the settings that are chosen for it: learning rates and, to compare optimizers
# at equal time, a number of steps.
OF_OPTIMIZERS = {"optimizer", "training.lr", "training.num_steps"}


class Pair(NamedTuple):
    """Two models that differ in one axis, with their levels on it."""

    axis: AxisName
    a: ComparedModel
    b: ComparedModel
    level_a: str
    level_b: str


def pairs(models: Sequence[ComparedModel]) -> list[Pair]:
    """Returns the matched pairs of models, in the order of the axes.

    Where several models share a level (say, three learning rates of one architecture against one of
    another), those nearest to each other in size, then in settings, are paired: a pair is left out
    if one of its models has a nearer one at the other's level. Two amounts of one text are compared
    at equal steps and at equal epochs, two texts at the nearest amounts. A pretrained model without
    a twin from scratch is matched with one from scratch of which tasks use the same part: an
    encoder-decoder with an encoder.
    """
    levels = {axis: _levels(axis, models) for axis in AXES if axis not in WITHIN}
    axis_of = {
        (a.name, b.name): axis for a, b in combinations(models, 2) if (axis := axis_between(a, b))
    }
    axis_of |= {(b, a): axis for (a, b), axis in axis_of.items()}

    def is_nearest(model: ComparedModel, other: ComparedModel, axis: AxisName) -> bool:
        if axis == "pretrained" and not model.pretrained:
            return True  # one model from scratch is matched with several
        level, text = levels[axis][other.name], other.corpus_text
        is_text = axis == "training set" and text is not None
        rivals = [
            rival
            for rival in models
            if axis_of.get((model.name, rival.name)) == axis
            # Two amounts of one text are one level.
            and (rival.corpus_text == text if is_text else levels[axis][rival.name] == level)
        ]
        return _distance(model, other, axis) <= min(_distance(model, r, axis) for r in rivals)

    matched = []
    for a, b in combinations(models, 2):
        axis = axis_of.get((a.name, b.name))
        if axis and is_nearest(a, b, axis) and is_nearest(b, a, axis):
            order = [*dict.fromkeys(levels[axis].values())]
            places = [order.index(levels[axis][model.name]) for model in (a, b)]
            one, other = (a, b) if _is_in_order(axis, a, b, places) else (b, a)
            matched.append(Pair(axis, one, other, levels[axis][one.name], levels[axis][other.name]))
    return sorted(matched, key=lambda pair: AXES.index(pair.axis))


def axis_between(a: ComparedModel, b: ComparedModel) -> AxisName | None:
    """Returns the one axis in which two models differ; None if they differ in none or in several.

    How public checkpoints differ is unknown, so they are compared with each other as whole
    checkpoints, and with a model pretrained here only if that has the checkpoint's architecture.
    """
    same_objective = a.entry.objective == b.entry.objective
    if a.entry.is_public and b.entry.is_public:
        published = a.entry.as_published + b.entry.as_published
        if a.entry.architecture != b.entry.architecture:
            same = same_objective and a.entry.corpus == b.entry.corpus and a.settings == b.settings
            return "checkpoint" if published == 2 or same else None
        if published:
            return "training set" if published == 1 else None
        if a.corpus != b.corpus:
            return "training set" if same_objective else None
        return _axis_of_settings(a, b) if same_objective else "objective"
    same_model = _is_same_architecture(a, b)
    if a.entry.is_public or b.entry.is_public:
        public = a if a.entry.is_public else b
        return "published" if same_model and public.entry.as_published else None
    if a.pretrained != b.pretrained:
        return "pretrained" if same_model or _is_same_design(a, b) else None
    if a.corpus != b.corpus:
        of_one_text = a.corpus_text is not None and a.corpus_text == b.corpus_text
        axis: AxisName = "amount of text" if of_one_text else "training set"
        return axis if same_model and same_objective else None
    if not (a.pretrained or same_model) and a.settings == b.settings and _is_same_design(a, b):
        return None  # two models from scratch that differ in nothing that a task uses
    if _family(a) != _family(b):
        is_near = _ratio(a.num_params, b.num_params) <= MAX_SIZE_RATIO
        return "architecture" if is_near else None
    if not same_objective:
        return "objective" if same_model else None
    return _axis_of_settings(a, b) if same_model else "size"


def _axis_of_settings(a: ComparedModel, b: ComparedModel) -> AxisName | None:
    keys = differing(a.settings, b.settings)
    if "optimizer" in keys and OF_OPTIMIZERS.issuperset(keys) and not a.entry.is_public:
        return "optimizer"
    settings = {key.partition(".")[0] for key in keys}
    return next(axis for axis in AXES if axis in settings) if len(settings) == 1 else None


def _is_same_architecture(a: ComparedModel, b: ComparedModel) -> bool:
    """Whether two models have the same architecture, whether or not their weights are published."""
    one, other = (m.entry.architecture | {"weights": None} for m in (a, b))
    return one == other


def _family(model: ComparedModel) -> Settings:
    """The settings of a model without its size."""
    return {k: v for k, v in model.entry.architecture.items() if k not in DIMENSIONS}


def _is_same_design(a: ComparedModel, b: ComparedModel) -> bool:
    return a.design is not None and a.design == b.design


def _is_in_order(axis: AxisName, a: ComparedModel, b: ComparedModel, places: Sequence[int]) -> bool:
    """Whether ``a`` is the lower level: the smaller, the one from scratch, the one that is not
    published, or the one whose level comes first in params.yaml (``places``)."""
    if axis == "size":
        return a.num_params <= b.num_params
    if axis == "amount of text":
        return (a.corpus_tokens or 0) <= (b.corpus_tokens or 0)
    if axis == "pretrained":
        return not a.pretrained
    if axis == "published":
        return not a.entry.as_published
    if axis == "training set" and a.entry.is_public:
        return not (b.entry.as_published or a.entry.parent == b.name)
    return places[0] <= places[1]


def _ratio(one: float | None, other: float | None) -> float:
    """Returns the ratio of the larger amount to the smaller one; 1 if one is 0 or unknown."""
    return max(one, other) / min(one, other) if one and other else 1.0


def _distance(a: ComparedModel, b: ComparedModel, axis: AxisName) -> tuple[float, int]:
    """Returns a key that sorts pairs by their distance in size (or amount of text), then by the
    number of settings in which they differ."""
    size, settings = 0.0, set(differing(a.settings, b.settings))
    if axis == "architecture":
        size = round(math.log(_ratio(a.num_params, b.num_params)), 2)
    elif axis == "pretrained":
        size = float(not _is_same_architecture(a, b))
    elif axis == "training set":
        size = math.log(_ratio(a.corpus_tokens, b.corpus_tokens))
    elif axis == "amount of text" and a.epochs and b.epochs:
        settings -= {"training.num_steps"} if _ratio(a.epochs, b.epochs) < MAX_RATIO else set()
    return size, len(settings)


def differing(a: Settings, b: Settings) -> list[str]:
    """Returns the settings that both have, with unlike values."""
    return [key for key in a if key in b and a[key] != b[key]]


# Levels --------------------------------------------------------------------------------------


def _levels(axis: AxisName, models: Sequence[ComparedModel]) -> dict[str, str]:
    """Returns the level of each model on an axis. Models that may be matched with one another on
    another axis share a level."""
    if axis == "size":
        return _sizes(models)
    return {model.name: _level(axis, model, models) for model in models}


def _level(axis: AxisName, model: ComparedModel, models: Sequence[ComparedModel]) -> str:
    entry = model.entry
    if axis == "architecture":
        return _named(_family(model), [_family(other) for other in models])
    if axis == "objective":
        return _named(entry.objective, [other.entry.objective for other in models])
    if axis == "optimizer":
        of_all = [m.settings["optimizer"] for m in models if "optimizer" in m.settings]
        return _named(model.settings.get("optimizer", {"name": NONE}), of_all)
    if axis == "checkpoint" or (axis == "training set" and entry.is_public):
        # The name of the first model with the checkpoint, after the same further texts.
        def of(other: ComparedModel) -> tuple[object, ...]:
            corpus = None if axis == "checkpoint" else other.corpus
            return corpus, *map(other.entry.architecture.get, _CHECKPOINT)

        return next(other.name for other in models if of(other) == of(model))
    if axis == "training set":
        return model.corpus
    if axis == "amount of text" and model.corpus_tokens:
        return f"{model.corpus}, {model.corpus_tokens:,} tokens, {model.epochs:.3g} epochs"
    if axis == "training":
        # The settings in which the study's models differ.
        varied = {key for m in models for key in differing(model.settings, m.settings)}
        shown = (f"{k.removeprefix('training.')}={model.settings[k]}" for k in sorted(varied))
        return ", ".join(shown) or model.name
    if axis == "pretrained":
        return "yes" if model.pretrained else "no"
    if axis == "published":
        return "yes" if entry.as_published else "here" if model.pretrained else "no"
    return {"tokenizer": entry.tokenizer, "parent": entry.parent}.get(axis, model.corpus)


def _sizes(models: Sequence[ComparedModel]) -> dict[str, str]:
    """Returns each model's size. Sizes of different architectures are one level if they are the
    nearest to each other, within ``MAX_SIZE_RATIO``."""
    by_family: dict[str, set[int]] = {}
    for model in models:
        by_family.setdefault(repr(_family(model)), set()).add(model.num_params)
    level_of: dict[tuple[str, int], int] = {}
    for family, sizes in sorted(by_family.items(), key=lambda item: -len(item[1])):
        for size in sorted(sizes):
            taken = {level for (other, _), level in level_of.items() if other == family}
            near = [
                (distance, level)
                for level in {*level_of.values()} - taken
                if (distance := _ratio(size, level)) <= MAX_SIZE_RATIO
            ]
            own = [level for level in taken if _ratio(size, level) <= MAX_RATIO]
            level_of[family, size] = own[0] if own else min(near)[1] if near else size
    return {m.name: f"{level_of[repr(_family(m)), m.num_params] / 1e6:.3g}M" for m in models}


def _named(own: Settings, all_settings: Sequence[Settings]) -> str:
    """Returns ``name`` with the settings in which others of the same name differ."""
    alike = [settings for settings in all_settings if settings["name"] == own["name"]]
    varied = {key for settings in alike for key in own if settings.get(key) != own[key]}
    shown = (f"{key}={own[key]}" for key in sorted(varied) if own[key] is not None)
    return ", ".join([own["name"], *shown])


# What else differs ---------------------------------------------------------------------------


def differences(axis: AxisName, a: ComparedModel, b: ComparedModel) -> tuple[Difference, ...]:
    """Returns what two models of a pair differ in, other than the axis: their start, settings of
    params.yaml, the share of targets, and how the learning rates of their pretraining were chosen.
    Between two training sets, it also counts if both tokenizers were trained on one of the sets,
    and if their amounts differ."""
    also: list[Difference] = []

    def compare(name: str, one: object, other: object, *, differs: bool | None = None) -> None:
        if one != other if differs is None else differs:
            also.append(Difference(name, one, other))

    def compare_settings(one: Settings, other: Settings, own: set[str]) -> None:
        for key in differing(one, other):
            compare(key, one[key], other[key], differs=key not in own)

    compare("start", a.start, b.start, differs=axis in STARTING)
    if axis == "architecture":
        compare("objective", a.entry.learnt[0], b.entry.learnt[0])
        compare_settings(a.entry.architecture, b.entry.architecture, {"start"})
    if axis in ("architecture", "objective"):
        compare("targets per token", a.targets_per_token, b.targets_per_token)
    if axis == "training set":
        text = a.tokenizer_corpus
        is_of_side = text == b.tokenizer_corpus != NONE and text in (a.corpus, b.corpus)
        compare("tokenizer trained on", text, text, differs=is_of_side)
        tokens = a.corpus_tokens, b.corpus_tokens
        compare("tokens of text", *tokens, differs=_ratio(*tokens) > MAX_RATIO)
    if axis not in ("checkpoint", "tokenizer", "parent", "training"):
        compare_settings(a.settings, b.settings, {"optimizer"} if axis == "optimizer" else set())
    if a.kept_rates and b.kept_rates:
        tried = [len(model.entry.training.rates) for model in (a, b)]
        compare("pretraining rates tried", *tried)
        if max(tried) > 1:
            kept = [", ".join(map(str, model.kept_rates)) for model in (a, b)]
            compare("kept pretraining rate", *kept)
    return tuple(d for d in also if d.name not in ("name", axis))
