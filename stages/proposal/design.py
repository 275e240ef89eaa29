"""Chooses how many seeds, labels and steps a study has, so that it fits into the time allowed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from stages.core.artifacts import Json
from stages.core.params import HUB
from stages.planning.speed import makespan

Budget = int | Literal["all"]
Probed = Literal["none", "published", "all"]
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
    """The choices that make a study fit into the time allowed."""

    architectures: tuple[str, ...]
    pretrains: bool
    pretraining_seeds: int
    pretraining_steps: int
    budgets: tuple[Budget, ...]
    d_model: int = WIDTHS[0]
    published: bool = False  # whether a published checkpoint is among the candidates
    probed: Probed = "none"  # runs that also have a linear probe of their frozen states
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
        pretrainings, trials = list[float](), list[float]()
        for architecture in design.architectures:
            if design.pretrains:
                one = wider * design.pretraining_steps * self.step_s[architecture]
                pretrainings += [one] * seeds
            methods = 1 + PROBE * (design.probed == "all")
            for budget in design.budgets:
                one = wider * methods * self.trials_s[architecture, budget]
                trials += [one] * (seeds * starts * len(design.finetuning_seeds))
        if design.published:
            methods = 1 + PROBE * (design.probed != "none")
            for budget in design.budgets:
                one = methods * self.trials_s[HUB, budget]
                trials += [one] * (seeds * len(design.finetuning_seeds))
        runs = len(design.architectures) * seeds * starts + design.published
        trained = makespan(pretrainings, self.jobs) + makespan(trials, self.jobs)
        return FIXED_S + runs * START_S + trained


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


def least(
    architectures: tuple[str, ...],
    budget: Budget,
    *,
    pretrains: bool,
    split_per_seed: bool = False,
) -> Design:
    """Returns the smallest study that compares anything."""
    return Design(
        architectures=architectures[:1],
        pretrains=pretrains,
        pretraining_seeds=1,
        pretraining_steps=LEAST_STEPS,
        budgets=(budget,),
        split_per_seed=split_per_seed,
    )


def with_published(*, can_be_probed: bool) -> Json:
    """Returns the choices that add a published checkpoint to a design."""
    return {"published": True, "probed": "published" if can_be_probed else "none"}


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
    have a linear probe; both are added if the time allows. The checkpoint's own probe, which costs
    little, is always added with it. If there is time for the checkpoint or for pretraining but not
    for both, the checkpoint is preferred, since it is more likely to be the best, unless the study
    ``must_pretrain`` on text that the user gave. With ``keep_budgets`` every study has all label
    budgets. If even the smallest study takes longer, it is returned.
    """
    design = replace(smallest, budgets=tuple(budgets)) if keep_budgets else smallest
    pretrains = smallest.pretrains
    checkpoint = with_published(can_be_probed=can_be_probed) if published else {}
    if published and pretrains and not must_pretrain:
        both = replace(design, **checkpoint)
        checkpoint_only = replace(both, pretrains=False)
        if pace.seconds(checkpoint_only) <= seconds < pace.seconds(both):
            design, pretrains = checkpoint_only, False
    most_steps = max(round(MOST_EPOCHS * corpus_tokens / STEP_TOKENS), LEAST_STEPS)

    def steps(number: int) -> Json:
        return {"pretraining_steps": min(number, most_steps)} if pretrains else {}

    def first_budgets(number: int) -> Json:
        return {} if keep_budgets else {"budgets": tuple(budgets[:number])}

    changes: list[Json] = [
        checkpoint,
        {"architectures": architectures},
        {"pretraining_seeds": 2},  # without pretraining, seeds of the weights from scratch
        steps(USUAL_STEPS),
        {"pretraining_seeds": 3},
        {"probed": "all"} if can_be_probed else {},
        first_budgets(2),
        steps(2 * USUAL_STEPS),
        first_budgets(3),
        {"pretraining_seeds": MOST_SEEDS},
    ]
    number = 2 * USUAL_STEPS
    while number < most_steps:
        number *= 2
        changes.append(steps(number))
    changes.append({"d_model": WIDTHS[1]})
    for change in changes:
        larger = replace(design, **change)
        if pace.seconds(larger) <= seconds:
            design = larger
    return design
