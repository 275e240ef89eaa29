"""Which groups of trials differ in one axis and in nothing else, and by how much.

Nothing is declared: the axes follow from the entries of params.yaml. Runs whose entries differ in
``seed`` alone are repetitions of one group. What differs between the groups of a contrast besides
its axis (parameters, FLOPs, tokens, settings of the optimisation, ...) is named as a confound.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, get_args

from stages.evaluation.metrics import merit
from stages.evaluation.statistics import Interval, Values, difference, holm, mean
from stages.evaluation.trials import Scored
from stages.params import NONE, Params, Run

Axis = Literal[
    "architecture",
    "objective",
    "size",
    "training set",
    "pretrained",
    "checkpoint",
    "tokenizer",
    "parent",
    "training",
    "method",
    "label budget",
]
AXES: tuple[Axis, ...] = get_args(Axis)
# Of a trial, which no machine decides: the confounds that every contrast shows. What a run's
# parents and teachers took counts as its own.
AMOUNTS = {
    "num_params": "parameters",
    "num_trained_params": "trained parameters",
    "lineage_tokens": "tokens seen",
    "lineage_flops": "pretraining FLOPs",
    "finetune_flops": "fine-tuning FLOPs",
}
MAX_SIZE_RATIO = 2.0  # of the parameters of two architectures that are compared as one size


@dataclass(frozen=True)
class Group:
    """The runs of ``pretrain:`` that are equal but for their seeds; named after the first."""

    name: str
    runs: tuple[str, ...]
    entry: Run
    architecture: str
    num_params: int

    @property
    def pretrained(self) -> bool:
        return self.objective != NONE

    @property
    def objective(self) -> str:
        return self.entry.learnt[0]

    @property
    def corpus(self) -> str:
        return self.entry.learnt[1] if self.pretrained else NONE

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What is no axis while anything else differs: the confounds that params.yaml knows.

        How to pretrain is no property of a model that was not, or by others. A public checkpoint
        has one tokenizer, whether an entry names it or not.
        """
        entry = self.entry
        trained = self.pretrained and not entry.as_published
        training = entry.training.model_dump() if trained else {}
        return {
            **({} if entry.is_public else {"tokenizer": entry.tokenizer}),
            "parent": entry.parent,
            **{f"training.{key}": value for key, value in training.items()},
        }


def groups(params: Params, trials: Sequence[Scored]) -> list[Group]:
    """The groups in the order of params.yaml."""

    def kind(name: str) -> str:
        """What a run is, and what its parents are, but for the seeds."""
        if name not in params.pretrain:
            return name
        run = params.pretrain[name]
        seed = run.seed if run.as_published else 0  # no seed makes another of a public checkpoint
        return repr(run.model_copy(update={"seed": seed, "parent": kind(run.parent)}))

    members: dict[tuple[str, int], list[str]] = defaultdict(list)
    seen: Counter[tuple[str, int]] = Counter()
    for name, run in params.pretrain.items():
        repetition = kind(name), run.seed
        members[kind(name), seen[repetition]].append(name)  # the same seed again is another group
        seen[repetition] += 1
    first = {trial.run: trial for trial in reversed(trials)}
    return [
        Group(
            name=names[0],
            runs=tuple(names),
            entry=params.pretrain[names[0]],
            architecture=first[names[0]].architecture,
            num_params=first[names[0]].num_params,
        )
        for names in members.values()
    ]


def axis_between(a: Group, b: Group) -> Axis | None:
    """The one axis in which two groups differ; None if there is none or more than one.

    Two architectures need not have the same dimensions here: ``pairs`` matches their sizes. Public
    checkpoints differ in nobody knows what, so as checkpoints alone, and from no run of the study.
    One that was pretrained further differs from itself in its training set, as a run from its
    parent does.
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
        return "training set" if same else None
    if not same_architecture:
        return "architecture"
    if a.entry.objective != b.entry.objective:
        return "objective" if same_model else None
    if not same_model:
        return "size"
    settings = {key.partition(".")[0] for key in _differing(a.settings, b.settings)}
    return next(axis for axis in AXES if axis in settings) if len(settings) == 1 else None


def _trained_alike(a: Group, b: Group) -> bool:
    """Whether two public checkpoints were pretrained further in the same way."""
    same = (a.entry.corpus, a.entry.objective) == (b.entry.corpus, b.entry.objective)
    return same and a.settings == b.settings


def pairs(candidates: Sequence[Group]) -> list[tuple[Axis, Group, Group]]:
    """The pairs of groups that make a contrast; the first is the one that should gain, if any.

    Where several groups could stand for one level of an axis (three learning rates of one
    architecture against one of another, say), the pair is of those nearest to each other in size
    and then in settings; nothing is compared with what another group matches better.
    """
    level: Mapping[str, Callable[[Group], Any]] = {
        "architecture": lambda g: (g.architecture, g.entry.objective),
        "objective": lambda g: g.entry.objective,
        "size": lambda g: g.entry.model,
        "training set": lambda g: g.corpus,
        "pretrained": lambda g: (g.corpus, g.entry.objective),
    }

    def nearest(group: Group, other: Group, axis: Axis) -> bool:
        """Whether nothing at the level of ``other`` is nearer to ``group``."""
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
        found.append((axis, b, a) if swap else (axis, a, b))
    return found


def _size_ratio(a: Group, b: Group) -> float:
    small, large = sorted((max(a.num_params, 1), max(b.num_params, 1)))
    return large / small


def _distance(a: Group, b: Group, axis: Axis) -> tuple[float, int]:
    size = math.log(_size_ratio(a, b)) if axis == "architecture" else 0.0
    return size, len(_differing(a.settings, b.settings))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [key for key in a if key in b and a[key] != b[key]]


@dataclass(frozen=True)
class Cell:
    """A group's (or baseline's) trials on one task with one method and label budget."""

    group: str
    task: str
    method: str
    label_budget: str
    trials: tuple[Scored, ...]
    confidence: float

    @cached_property
    def values(self) -> Values:
        values: dict[int, dict[int, float]] = defaultdict(dict)
        for trial in self.trials:
            values[trial.pretrain_seed][trial.finetune_seed] = trial.value
        return values

    @cached_property
    def mean(self) -> Interval:
        return mean(self.values, confidence=self.confidence)

    @property
    def metric(self) -> str:
        return self.trials[0].metric

    @property
    def merit(self) -> float:
        """Of the mean: larger is better, whatever the metric."""
        return merit(self.metric, self.mean.value)

    @property
    def num_pretrain_seeds(self) -> int:
        return len(self.values)

    @property
    def num_finetune_seeds(self) -> int:
        return max(len(by_seed) for by_seed in self.values.values())

    @cached_property
    def amounts(self) -> dict[str, int | None]:
        """``AMOUNTS``, averaged over the trials; None is unknown."""
        found = {key: [getattr(trial, key) for trial in self.trials] for key in AMOUNTS}
        return {
            key: None if None in values else round(sum(values) / len(values))
            for key, values in found.items()
        }


def cells(
    all_groups: Sequence[Group], trials: Iterable[Scored], *, confidence: float
) -> list[Cell]:
    """Every group's and every baseline's cells, in the order of the trials."""
    group_of = {run: group.name for group in all_groups for run in group.runs}
    members: dict[tuple[str, str, str, str], list[Scored]] = defaultdict(list)
    for trial in trials:
        name = group_of.get(trial.run, trial.run)
        members[name, trial.task, trial.method, trial.label_budget].append(trial)
    return [Cell(*key, tuple(rows), confidence) for key, rows in members.items()]


@dataclass(frozen=True)
class Contrast:
    """``a`` against ``b``; the effect is a's mean score less b's, whichever sign is better."""

    axis: Axis
    task: str
    a: Cell
    b: Cell
    level_a: str
    level_b: str
    effect: Interval
    p_holm: float | None
    settings: tuple[str, ...]  # confounds that params.yaml knows

    @property
    def metric(self) -> str:
        return self.a.metric

    @property
    def method(self) -> str:
        return _both(self.a.method, self.b.method)

    @property
    def label_budget(self) -> str:
        return _both(self.a.label_budget, self.b.label_budget)

    @property
    def resolved(self) -> bool:
        return self.effect.excludes_zero

    @property
    def verdict(self) -> str:
        """Never stronger than the numbers."""
        if self.effect.low is None:
            return f"{self.effect.basis}: no interval"
        verdict = "resolved" if self.resolved else "not resolved"
        assert self.p_holm is not None
        corrected = self.p_holm < 1 - self.a.confidence or not self.resolved
        return verdict if corrected else "resolved alone, not after correction"

    @property
    def shown(self) -> str:
        """The verdict, and what it would take if there is none."""
        if self.verdict != "not resolved":
            return self.verdict
        needed = self.effect.seeds_needed
        return f"{self.verdict} ({needed} seeds would)" if needed else self.verdict

    @property
    def seeds(self) -> str:
        """``5`` fine-tuning seeds, or ``3 x 5`` where there are several pretraining seeds."""
        return _both(seeds(self.a), seeds(self.b))

    @property
    def confounds(self) -> list[str]:
        """What differs besides the axis, as ``name: a v. b``."""
        one, other = self.a.amounts, self.b.amounts
        amounts = [
            f"{AMOUNTS[key]}: {compact(one[key])} v. {compact(other[key])}"
            for key in AMOUNTS
            if not self._agree(one[key], other[key])
        ]
        return [*amounts, *self.settings]

    def _agree(self, one: int | None, other: int | None) -> bool:
        """Unknown amounts may differ, but for those of one and the same checkpoint."""
        if one is None or other is None:
            return self.a.group == self.b.group
        return math.isclose(one, other, rel_tol=0.01)

    def row(self) -> dict[str, Any]:
        """A row of reports/contrasts.csv; an empty field is a number that does not exist, or that
        nobody knows."""
        amounts = {
            f"{key}_{side}": cell.amounts[key]
            for key in self.a.amounts
            for side, cell in (("a", self.a), ("b", self.b))
        }
        return {
            "axis": self.axis,
            "task": self.task,
            "method": self.method,
            "label_budget": self.label_budget,
            "run_a": self.a.group,
            "run_b": self.b.group,
            "level_a": self.level_a,
            "level_b": self.level_b,
            "mean_a": digits(self.a.mean.value),
            "mean_b": digits(self.b.mean.value),
            "effect": digits(self.effect.value),
            "low": digits(self.effect.low),
            "high": digits(self.effect.high),
            "p_value": significant(self.effect.p_value),
            "p_holm": significant(self.p_holm),
            "test": self.effect.test,
            "basis": self.effect.basis,
            "seeds": self.seeds,
            "resolved": "yes" if self.resolved else "no",
            "verdict": self.verdict,
            "seeds_needed": self.effect.seeds_needed if self.verdict == "not resolved" else None,
            **amounts,
            "confounds": "; ".join(self.confounds),
        }


def contrasts(
    params: Params, all_groups: Sequence[Group], all_cells: Sequence[Cell]
) -> list[Contrast]:
    """Every contrast of the study, corrected together, sorted by axis and then by task."""
    confidence = params.evaluation.confidence
    cell = {(c.group, c.task, c.method, c.label_budget): c for c in all_cells}
    methods = list(params.finetune.methods)
    budgets = sorted(map(str, params.finetune.label_budgets), key=budget_order, reverse=True)
    found: list[tuple[Axis, str, Cell, Cell, str, str, tuple[str, ...]]] = []

    def add(axis: Axis, task: str, a: Any, b: Any, levels: tuple[str, str], *settings: str) -> None:
        if a in cell and b in cell:  # a method that does not fit a run has no trials with it
            found.append((axis, task, cell[a], cell[b], *levels, settings))

    for axis, a, b in pairs(all_groups):
        levels, settings = levels_of(axis, a, b), _confounded_settings(axis, a, b)
        for task in params.tasks:
            for method in methods:
                for n in budgets:
                    keys = (a.name, task, method, n), (b.name, task, method, n)
                    add(axis, task, *keys, levels, *settings)
    for group in all_groups:
        for task in params.tasks:
            for n in budgets:
                for a, b in combinations(methods, 2):
                    keys = (group.name, task, a, n), (group.name, task, b, n)
                    add("method", task, *keys, (a, b), *_method_settings(params, a, b))
            for method in methods:
                for m, n in combinations(budgets, 2):
                    keys = (group.name, task, method, m), (group.name, task, method, n)
                    add("label budget", task, *keys, (m, n))

    effects = [difference(a.values, b.values, confidence=confidence) for _, _, a, b, *_ in found]
    tested = [i for i, effect in enumerate(effects) if effect.p_value is not None]
    corrected = dict(zip(tested, holm([effects[i].p_value or 0.0 for i in tested]), strict=True))
    unsorted = [
        Contrast(
            axis=axis,
            task=task,
            a=a,
            b=b,
            level_a=level_a,
            level_b=level_b,
            effect=effects[i],
            p_holm=corrected.get(i),
            settings=settings,
        )
        for i, (axis, task, a, b, level_a, level_b, settings) in enumerate(found)
    ]
    tasks = list(params.tasks)
    return sorted(unsorted, key=lambda c: (AXES.index(c.axis), tasks.index(c.task)))


def levels_of(axis: Axis, a: Group, b: Group) -> tuple[str, str]:
    """What the axis is for each side, in words."""

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


def _settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings of one side that the other has not."""
    return [f"{k}={v}" for k, v in one.items() if k != "name" and other.get(k) != v]


def _confounded_settings(axis: Axis, a: Group, b: Group) -> tuple[str, ...]:
    if axis in ("checkpoint", "tokenizer", "parent", "training"):
        return ()
    models = (a.entry.model, b.entry.model) if axis == "architecture" else ({}, {})
    return (
        *(f"{k}: {models[0][k]} v. {models[1][k]}" for k in _differing(*models) if k != "name"),
        *(f"{k}: {a.settings[k]} v. {b.settings[k]}" for k in _differing(a.settings, b.settings)),
    )


def _method_settings(params: Params, a: str, b: str) -> tuple[str, ...]:
    settings = [params.finetune.methods[m].training for m in (a, b)]
    one, other = (training.model_dump() if training else {} for training in settings)
    return tuple(f"training.{k}: {one[k]} v. {other[k]}" for k in _differing(one, other))


def seeds(cell: Cell) -> str:
    if cell.num_pretrain_seeds > 1:
        return f"{cell.num_pretrain_seeds} x {cell.num_finetune_seeds}"
    return str(cell.num_finetune_seeds)


def budget_order(budget: str) -> tuple[bool, int]:
    """Sorts label budgets: numbers first, "all" last."""
    return budget == "all", 0 if budget == "all" else int(budget)


def digits(value: float | None) -> float | str:
    """A number with six digits behind the point, or nothing."""
    return "" if value is None else round(value, 6)


def significant(value: float | None) -> float | str:
    """A number with three significant digits, or nothing."""
    return "" if value is None else float(f"{value:.3g}")


def compact(value: float | None) -> str:
    """``2.55M``: three significant digits and a unit."""
    if value is None:
        return "unknown"
    power = 0
    while value >= 999.5 and power < 6:
        value, power = value / 1000, power + 1
    return f"{value:.3g}{' kMGTPE'[power].strip()}"


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} v. {b}"
