"""Chooses how many seeds, labels and steps a study has, so that it fits into the time allowed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from stages.budgets.budget import matched
from stages.core.artifacts import Json
from stages.core.parallel import most_jobs
from stages.core.params import HUB
from stages.core.study_file import typed
from stages.planning.costs import finetunings, pretrainings
from stages.planning.speed import calibration, makespan

Budget = int | Literal["all"]
STEP_TOKENS = 16 * 128  # of a step of pretraining: number of rows times their length
WIDTHS = (128, 256)  # values of d_model; the second if time is left after everything else
LEAST_STEPS, USUAL_STEPS = 130, 260  # of pretraining
MOST_EPOCHS = 4  # Muennighoff et al. 2023: four epochs of a corpus are nearly as good as new text
MOST_SEEDS = 5
FINETUNING_SEEDS = 3  # where a study has one pretraining seed
SPLITS_DRAWN = 5  # number of draws if rows are few; with fewer, intervals are wide
FEW_LABELS, MANY_LABELS, MOST_LABELS = 100, 1000, 20_000
FEW_PER_CLASS = 5
START_S = 4.0  # to start a stage's process
PROBE = 0.25  # time of a linear probe as a share of full fine-tuning's; 0.2 in the default study
FIXED_S = 45.0  # reading, tokenizing and reporting


@dataclass(frozen=True, kw_only=True)
class Design:
    """The choices that make a study fit into the time allowed. The defaults with one of the
    architectures and one label budget are the smallest study that compares anything."""

    architectures: tuple[str, ...]
    pretrains: bool
    budgets: tuple[Budget, ...]
    pretraining_seeds: int = 1
    pretraining_steps: int = LEAST_STEPS
    d_model: int = WIDTHS[0]
    published: bool = False  # whether a published checkpoint is among the candidates
    probed: Literal["none", "published", "all"] = "none"  # runs with a linear probe of their states
    split_per_seed: bool = False  # whether each fine-tuning seed draws the splits anew

    @property
    def finetuning_seeds(self) -> list[int]:
        """The fine-tuning seeds. With several pretraining seeds, which also draw labelled rows,
        heads and orders, one is enough; but only fine-tuning seeds draw the splits."""
        if self.split_per_seed:
            return [*range(1, SPLITS_DRAWN + 1)]
        return [1] if self.pretraining_seeds > 1 else [*range(1, FINETUNING_SEEDS + 1)]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of training on this machine, by architecture."""

    step_s: Mapping[str, float]  # of a step of pretraining
    trials_s: Mapping[tuple[str, Budget], float]  # of full fine-tuning at one learning rate
    jobs: int = 1  # number of trainings that run at once

    def seconds(self, design: Design) -> float:
        """Returns the seconds of the whole study."""
        # Seconds are measured at the first width; operations grow at most with the width squared.
        wider = (design.d_model / WIDTHS[0]) ** 2
        seeds, starts = design.pretraining_seeds, 1 + design.pretrains
        draws = seeds * len(design.finetuning_seeds)
        pretrainings, trials = list[float](), list[float]()
        for name in design.architectures:
            one = wider * design.pretraining_steps * self.step_s[name] if design.pretrains else 0.0
            pretrainings += [one] * seeds
            methods = wider * (1 + PROBE * (design.probed == "all"))
            for budget in design.budgets:
                trials += [methods * self.trials_s[name, budget]] * (draws * starts)
        for budget in design.budgets if design.published else ():
            methods = 1 + PROBE * (design.probed != "none")
            trials += [methods * self.trials_s[HUB, budget]] * draws
        runs = len(design.architectures) * seeds * starts + design.published
        trained = makespan(pretrainings, self.jobs) + makespan(trials, self.jobs)
        return FIXED_S + runs * START_S + trained


def measured(raw: Json, budgets: Sequence[Budget]) -> Pace:
    """Measures the pretraining and the full fine-tuning of the first run, with the calibration of
    `make plan`. Other runs are assumed to do as much work per second.

    ``raw`` is a study with one seed, one run of each architecture, and tasks that state their
    numbers of rows.
    """
    study = matched(typed(raw))
    jobs = most_jobs(study.compute, study.distributed)
    name_of = {key: str(run.architecture["name"]) for key, run in study.runs.items()}
    costs = pretrainings(study, {key: run.seeds for key, run in study.runs.items()})
    speed = calibration(study, costs[0], jobs=jobs) if costs[0].work else None
    step_s = {
        name_of[cost.run]: cost.work / speed / cost.steps if speed and cost.steps else 0.0
        for cost in costs
    }
    speed, trials_s = None, dict[tuple[str, Budget], float]()
    for budget in budgets:
        tune = study.finetune.model_copy(update={"label_budgets": [budget]})
        first, *others = finetunings(study.model_copy(update={"finetune": tune}))
        speed = speed or calibration(study, first, jobs=jobs)
        for cost in (first, *others):
            if cost.method == first.method:
                trials_s[name_of[cost.run], budget] = cost.work / speed if speed else 0.0
    return Pace(step_s=step_s, trials_s=trials_s, jobs=jobs)


def label_budgets(num_train: int, num_labels: int) -> list[Budget]:
    """Returns the label budgets: the main one first, then a small one, then all rows."""
    main: Budget = MANY_LABELS if num_train > MANY_LABELS else "all"
    few = max(FEW_LABELS, FEW_PER_CLASS * num_labels)
    budgets: list[Budget] = [main]
    if 2 * few <= min(num_train, MANY_LABELS):
        budgets.append(few)
    if main != "all" and num_train <= MOST_LABELS:
        budgets.append("all")
    return budgets


def with_published(design: Design, *, can_be_probed: bool) -> Design:
    """Returns the design with a published checkpoint and its own probe, which costs little."""
    return replace(design, published=True, probed="published" if can_be_probed else "none")


def fitted(
    smallest: Design,
    architectures: tuple[str, ...],
    budgets: list[Budget],
    corpus_tokens: int,
    pace: Pace,
    seconds: float,
    *,
    keep_budgets: bool,
    published: bool = False,
    can_be_probed: bool = False,
    must_pretrain: bool = False,
) -> Design:
    """Returns the largest study that takes at most ``seconds``. It is the ``smallest`` study
    with as many additions as fit, tried from the most to the least informative.

    ``published`` is whether there is a published checkpoint, ``can_be_probed`` whether the task can
    have a linear probe; both are added if the time allows. If there is time for the checkpoint or
    for pretraining but not for both, the checkpoint is preferred, since it is more likely to be the
    best, unless the study ``must_pretrain`` on text that the user gave. With ``keep_budgets`` every
    study has all label budgets. If even the smallest study takes longer, it is returned.
    """
    design = replace(smallest, budgets=tuple(budgets)) if keep_budgets else smallest
    if published:
        both = with_published(design, can_be_probed=can_be_probed)
        alone = both if must_pretrain else replace(both, pretrains=False)
        design = next((d for d in (both, alone) if pace.seconds(d) <= seconds), design)
    most_steps = max(round(MOST_EPOCHS * corpus_tokens / STEP_TOKENS), LEAST_STEPS)

    changes: list[tuple[str, Any]] = [
        ("architectures", architectures),
        ("pretraining_seeds", 2),  # without pretraining, seeds of the weights from scratch
        ("pretraining_steps", USUAL_STEPS),
        ("pretraining_seeds", 3),
        ("probed", "all"),
        ("budgets", tuple(budgets[:2])),
        ("pretraining_steps", 2 * USUAL_STEPS),
        ("budgets", tuple(budgets[:3])),
        ("pretraining_seeds", MOST_SEEDS),
        *(("pretraining_steps", 2**i * USUAL_STEPS) for i in range(2, 20)),
        ("d_model", WIDTHS[1]),
    ]
    for key, value in changes:
        if key == "pretraining_steps":
            value = min(value, most_steps) if design.pretrains else LEAST_STEPS
        elif (key == "budgets" and keep_budgets) or (key == "probed" and not can_be_probed):
            continue
        larger = replace(design, **{key: value})
        if pace.seconds(larger) <= seconds:
            design = larger
    return design
