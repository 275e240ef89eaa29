"""Studies with known effects, drawn at the level of single predictions.

A test row is predicted correctly if a normal latent exceeds 0. Latents sum what a draw of labels, a
checkpoint, a trial and a row add, with the spread of the default study: over seeds 1 to 4 points by
task (a draw of labels 2, shared by all models; a checkpoint 0.8; a trial 0.7 to 1.8), and 1.3
points from the noise of one trial on 600 rows. One of two baselines equals the best model; the
other is 3 points below it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from scipy.special import ndtri

from stages.core.keys import TrialKey
from stages.core.params import Params
from stages.core.study_file import typed
from stages.evaluation.records import CLASSICAL, ScoredTrial
from stages.evaluation.row_scores import by_groups
from stages.findings.facts import Answer, Contrast, MainEffect
from stages.findings.results import Results
from tests.synthetic_study import raw_params, run

# Standard deviations of latents; 0.025 is a point of score.
LABELS, CHECKPOINT, TRIAL = 0.05, 0.02, 0.03  # of a seed's labels (shared), a checkpoint, a trial
ROW, DRAW_ROW, MODEL_ROW, TRIAL_ROW = 0.63, 0.32, 0.2, 0.67  # of a test row; squares sum to 1
GROUP = 0.3  # of a model and a group of rows
TASK = (0.6, 1.0, 1.5)  # how much tasks differ in the spread of trials
NUM_ROWS, NUM_VALIDATION = 600, 100
LEVEL, BEST, WEAK = 0.45, "crf", "tfidf"  # accuracy of the first model; two baselines
ARCHITECTURES = {"a": ("encoder", "mlm"), "b": ("decoder", "causal"), "c": ("bilstm", "causal")}
SIZES = {"small": (96, 800_000), "large": (192, 2_600_000)}
Model = tuple[str, str, str]  # architecture, size, pretrained ("yes", "no") or a corpus


@dataclass(frozen=True, eq=False)
class Case:
    """A kind of study."""

    name: str
    models: tuple[Model, ...]
    gains: Mapping[str, float]  # level -> points that it adds
    only: int | None = None  # the task with the gains; None: all
    seeds: Callable[[str], int] = lambda name: 3
    tasks: int = 3
    spread: Callable[[str, int], float] = lambda name, task: 1.0  # of a model's seeds on a task
    groups: int = 0  # clusters of test rows; 0: rows are independent
    by_level: float = 0.0  # noise of a seed that all pretrained models share, in latents
    methods: tuple[str, ...] = ("full",)
    best: float | None = None  # points of the better baseline; None: those of the best model

    def points(self, name: str, method: str, task: int) -> float:
        """Returns the expected points of a model or baseline above ``LEVEL``."""
        if name in (BEST, WEAK):
            tops = [self.points("_".join(model), self.methods[0], task) for model in self.models]
            top = max(tops) if self.best is None else self.best
            return top - 3 * (name == WEAK)
        here = self.only in (None, task)
        return here * sum(self.gains.get(level, 0.0) for level in name.split("_")) + self.gains.get(
            method, 0.0
        )


def crossed(*architectures: str) -> tuple[Model, ...]:
    return tuple(product(architectures, SIZES, ("no", "yes")))


@dataclass(frozen=True)
class Drawn:
    """A drawn study with its findings, and the truth of each."""

    results: Results
    expected: Mapping[tuple[str, str, str], float]  # of a name, task and method

    def truth(self, effect: MainEffect) -> float:
        """Returns the expected value of a main effect."""
        own = [self.difference(c) for c in self.results.compared if c.family == effect.family]
        return float(np.mean(own))

    def lead(self, answer: Answer) -> float:
        """Returns the expected lead of the chosen model over the chosen baseline."""
        assert answer.model and answer.baseline
        model, baseline = answer.model, answer.baseline
        expected = self.expected[model.model, answer.task, model.method]
        return expected - self.expected[baseline.model, answer.task, CLASSICAL]

    def difference(self, c: Contrast) -> float:
        """Returns the expected difference of two cells."""
        a, b = (self.expected[side.model, side.task, side.method] for side in (c.a, c.b))
        return b - a


@cache
def _params(case: Case) -> Params:
    runs = {}
    for model in case.models:
        architecture, objective = ARCHITECTURES[model[0]]
        corpus = model[2] if len(model[2]) > 3 else "all"
        objective = "none" if model[2] == "no" else objective
        entry = run(architecture, objective, corpus, d_model=SIZES[model[1]][0])
        name = "_".join(model)
        runs[name] = entry | {"seeds": [*range(1, case.seeds(name) + 1)]}
    raw = raw_params(runs, seeds=[1])
    corpora = {entry["corpus"] for entry in runs.values()} - {"none"} | {"all"}
    raw["corpora"] = dict.fromkeys(sorted(corpora), raw["corpora"]["all"])
    raw["tasks"] = {f"t{i}": raw["tasks"]["type"] for i in range(case.tasks)}
    raw["pretrain"]["matched"] = "none"
    raw["baselines"] = {name: {"name": name} for name in (BEST, WEAK)}
    raw["finetune"]["methods"] = dict.fromkeys(
        case.methods, raw["finetune"]["methods"]["full"] | {"method": "full"}
    )
    return typed(raw)


def _trial(case: Case, key: TrialKey, value: float, validation: float) -> ScoredTrial:
    about: dict[str, Any] = {"architecture": key.model}
    if key.model not in (BEST, WEAK):
        architecture, size, _ = key.model.split("_")
        about = {"architecture": ARCHITECTURES[architecture][0], "num_params": SIZES[size][1]}
        about["finetune_flops"] = SIZES[size][1]
    return ScoredTrial(
        **key._asdict(),
        **about,
        used_architecture=key.model,
        metric="accuracy",
        value=value,
        other_metric="accuracy",
        other_value=value,
        validation_score=validation,
    )


def drawn(case: Case, rng: np.random.Generator) -> Drawn:
    """Draws the predictions of a study; returns its findings."""
    params, number = _params(case), NUM_ROWS + NUM_VALIDATION
    names = [*params.models, BEST, WEAK]
    seeds_of = {name: case.seeds(name) for name in names}
    num_seeds = max(seeds_of.values())
    checkpoint = CHECKPOINT * rng.standard_normal((len(names), num_seeds))
    alike = case.by_level * rng.standard_normal(num_seeds)
    group_of = np.arange(number) % max(case.groups, 1)
    group_of[NUM_ROWS:] += case.groups  # groups are not split between test and validation
    trials: list[ScoredTrial] = []
    rows: dict[TrialKey, np.ndarray] = {}
    expected: dict[tuple[str, str, str], float] = {}
    for t in range(case.tasks):
        places = []
        for model, name in enumerate(names):
            for method in (CLASSICAL,) if name in (BEST, WEAK) else case.methods:
                expected[name, f"t{t}", method] = LEVEL + 0.01 * case.points(name, method, t)
                places += [(model, name, method, seed) for seed in range(seeds_of[name])]
        model, seed = (np.array([place[i] for place in places]) for i in (0, 3))
        level = np.array([expected[name, f"t{t}", method] for _, name, method, _ in places])
        is_pretrained = np.array([name[-3:] == "yes" for _, name, _, _ in places])
        spread = np.array([case.spread(name, t) for _, name, _, _ in places])
        trial = TRIAL * TASK[t % 3] * rng.standard_normal(len(places))
        of_trials = LABELS * rng.standard_normal(num_seeds)[seed] + is_pretrained * alike[seed]
        of_trials += spread * (checkpoint[model, seed] + trial)

        def noise(deviation: float, *shape: int) -> np.ndarray:
            return deviation * rng.standard_normal((*shape, number), np.float32)

        of_rows = noise(ROW) + noise(DRAW_ROW, num_seeds)[seed] + noise(TRIAL_ROW, len(places))
        of_rows += noise(MODEL_ROW, len(names))[model]
        squares = 1 + LABELS**2 + is_pretrained * case.by_level**2
        squares = squares + spread**2 * (CHECKPOINT**2 + (TRIAL * TASK[t % 3]) ** 2)
        if case.groups:
            of_groups = GROUP * rng.standard_normal((len(names), 2 * case.groups))
            of_rows, squares = of_rows + of_groups[model][:, group_of], squares + GROUP**2
        right = ((ndtri(level) * squares**0.5 + of_trials)[:, None] + of_rows > 0).astype(float)
        test, validation = right[:, :NUM_ROWS], right[:, NUM_ROWS:].mean(axis=1)
        by_group = by_groups(test, group_of[:NUM_ROWS] if case.groups else np.empty(0, int))
        for i, (_, name, method, s) in enumerate(places):
            key = TrialKey(name, s + 1, f"t{t}", method, "200", 1)
            trials.append(_trial(case, key, float(test[i].mean()), float(validation[i])))
            rows[key] = by_group[i]
    about = {"split_seeds": [], "num_examples": {"train": 200, "test": NUM_ROWS}}
    results = Results(
        params=params,
        trials=trials,
        row_scores=rows,
        tasks=dict.fromkeys(params.tasks, about),
        confusion=dict.fromkeys(params.tasks, []),
        coverage=dict.fromkeys(params.tasks, []),
    )
    return Drawn(results, expected)
