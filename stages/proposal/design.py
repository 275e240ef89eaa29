"""Chooses how many seeds, labels and steps a study has, so that it fits into the time allowed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stages.budgets.budget import matched
from stages.core.artifacts import Json
from stages.core.keys import TrialKey
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
FROZEN = 0  # epochs of a linear probe
OWN_EPOCHS = 4  # of full fine-tuning, of a model that is trained here
EPOCHS = (8, 4, 2)  # of the published checkpoint, from the best; the first only on few labels
START_S = 4.0  # to start a stage's process
FIXED_S, CORPUS_S = 60.0, 20.0  # reading, baselines and reporting; a corpus and its tokenizer
SOLVE_S = 2e-4  # of a linear probe, for each labelled row and each output
RESERVE = 0.85  # share of the time that a study is planned for: machines are busy now and then


@dataclass(frozen=True, kw_only=True)
class Design:
    """The choices that make a study fit into the time allowed."""

    budgets: tuple[Budget, ...]
    published: bool = False  # whether a published checkpoint is among the models
    epochs: int = FROZEN  # of the checkpoint's full fine-tuning; FROZEN if it is only probed
    twin: bool = False  # whether the checkpoint is also trained from random weights
    architectures: tuple[str, ...] = ()  # of models that are trained here
    pretrains: bool = False  # whether these are also pretrained
    probed: Literal["none", "published", "all"] = "none"  # models with a linear probe
    draws: int = 1  # number of fine-tuning seeds where there is one pretraining seed
    split_per_seed: bool = False  # whether each fine-tuning seed draws the splits anew
    pretraining_seeds: int = 1
    pretraining_steps: int = LEAST_STEPS
    d_model: int = WIDTHS[0]

    @property
    def finetuning_seeds(self) -> list[int]:
        """The fine-tuning seeds. With several pretraining seeds, which also draw labelled rows,
        heads and orders, one is enough; but only fine-tuning seeds draw the splits."""
        alone = self.pretraining_seeds == 1 or self.split_per_seed
        return [*range(1, self.draws + 1)] if alone else [1]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of training on this machine, by architecture."""

    step_s: Mapping[str, float]  # of a step of pretraining
    # Of a trial at one learning rate, by architecture, epochs (FROZEN for a probe) and labels.
    trials_s: Mapping[tuple[str, int, Budget], float]
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
        ways = (OWN_EPOCHS, FROZEN) if design.probed == "all" else (OWN_EPOCHS,)
        groups = [(name, way, wider, starts) for name in design.architectures for way in ways]
        if design.published and design.epochs:
            groups += [(HUB, design.epochs, 1.0, 1 + design.twin)]
        if design.published and design.probed != "none":
            groups += [(HUB, FROZEN, 1.0, 1 + (design.twin and design.probed == "all"))]
        for name, epochs, by, models in groups:
            for budget in design.budgets:
                trials += [by * self.trials_s[name, epochs, budget]] * (draws * models)
        runs = len(design.architectures) * seeds * starts + design.published + design.twin
        trained = makespan(pretrainings, self.jobs) + makespan(trials, self.jobs)
        return FIXED_S + CORPUS_S * bool(design.architectures) + runs * START_S + trained


def measured(raw: Json, budgets: Sequence[Budget], num_outputs: int) -> Pace:
    """Measures with the calibration of `make plan`, once on each machine: pretraining and full
    fine-tuning of the first model, and fine-tuning of the published checkpoint. Other models are
    assumed to do as much work per second as the first.

    ``raw`` is a study with one seed, one model of each architecture, and tasks that state their
    numbers of rows. ``num_outputs`` are those of a linear probe.
    """
    study = matched(typed(raw))
    jobs = most_jobs(study.compute, study.distributed)
    name_of = {key: str(entry.architecture["name"]) for key, entry in study.models.items()}
    costs = pretrainings(study, {key: entry.seeds for key, entry in study.models.items()})
    speed = (costs[0].work and calibration(study, costs[0], jobs=jobs)) or float("inf")
    step_s = {name_of[cost.model]: cost.work / speed / (cost.steps or 1) for cost in costs}
    speeds, trials_s = dict[bool, float](), dict[tuple[str, int, Budget], float]()
    full, rows = study.finetune.methods["full"], int(next(iter(study.tasks.values())).num_train)
    for epochs in EPOCHS:
        changed = {"num_epochs": epochs}
        assert full.training is not None
        training = full.training.model_copy(update=changed)
        models = {key: entry.model_copy(update=changed) for key, entry in full.models.items()}
        method = full.model_copy(update={"training": training, "models": models})
        methods = study.finetune.methods | {"full": method}
        tune = study.finetune.model_copy(update={"label_budgets": budgets, "methods": methods})
        for cost in finetunings(study.model_copy(update={"finetune": tune})):
            name, is_full = name_of[cost.model], cost.method == "full"
            if is_full and (name == HUB) not in speeds:
                speeds[name == HUB] = calibration(study, cost, jobs=jobs) or float("inf")
            of = {k.label_budget: w for k, w in cost.works.items() if isinstance(k, TrialKey)}
            for budget, work in ((budget, of[str(budget)]) for budget in budgets):
                labels = rows if budget == "all" else budget
                solved = 0.0 if is_full else SOLVE_S * num_outputs * labels
                way = epochs if is_full else FROZEN
                trials_s[name, way, budget] = work / speeds[name == HUB] + solved
    return Pace(step_s=step_s, trials_s=trials_s, jobs=jobs)


def label_budgets(num_train: int, num_labels: int) -> list[Budget]:
    """Returns the numbers of labels that a study may have, the fewest first."""
    few = max(FEW_LABELS, FEW_PER_CLASS * num_labels)
    budgets: list[Budget] = [few] if 2 * few <= min(num_train, MANY_LABELS) else []
    if num_train > MANY_LABELS:
        budgets.append(MANY_LABELS)
    return budgets if num_train > MOST_LABELS else [*budgets, "all"]


def fitted(
    architectures: tuple[str, ...],
    budgets: Sequence[Budget],
    corpus_tokens: int,
    pace: Pace,
    seconds: float,
    *,
    pretrains: bool,
    keep_budgets: bool,
    published: bool = False,
    can_be_probed: bool = False,
    can_draw_anew: bool = False,
    must_pretrain: bool = False,
) -> Design:
    """Returns the largest study that takes at most ``seconds``: the smallest one with as many
    additions as fit, tried from the most to the least informative. If even the smallest study takes
    longer, it is returned.

    With a ``published`` checkpoint the smallest study is the checkpoint, frozen if it
    ``can_be_probed``. It is fully fine-tuned on as many labels and in as many epochs as fit. Models
    trained here come after all else, unless the study ``must_pretrain`` on text of the user.

    ``budgets`` has the fewest labels first; with ``keep_budgets`` every study has all of them.
    ``can_draw_anew`` is whether seeds may draw the splits.
    """
    mains: list[tuple[Budget, ...]] = (
        [tuple(budgets)] if keep_budgets else [(budget,) for budget in reversed(budgets)]
    )
    own: Json = {"architectures": architectures[:1], "pretrains": pretrains}
    is_large = not keep_budgets and MANY_LABELS in budgets and budgets[-1] == "all"
    if published:
        first = own if must_pretrain else {}
        probed = "published" if can_be_probed else "none"
        probes = can_be_probed and not must_pretrain
        full = mains[:-1] if probes and mains[1:] else mains  # a probe on more labels is better
        cases = [(main, n) for main in full for n in EPOCHS[is_large and "all" in main :]]
        cases += [(main, FROZEN) for main in mains if probes]
        bases = [
            Design(budgets=main, published=True, epochs=epochs, probed=probed, **first)
            for main, epochs in cases
        ]
    else:
        bases = [Design(budgets=main, **own) for main in mains[is_large:]]
    design = next((base for base in bases if pace.seconds(base) <= seconds), bases[-1])
    others = [budget for budget in budgets if budget not in design.budgets]
    most_steps = max(round(MOST_EPOCHS * corpus_tokens / STEP_TOKENS), LEAST_STEPS)
    steps = [2**i * USUAL_STEPS for i in range(20)] if pretrains else [LEAST_STEPS]
    steps = [min(number, most_steps) for number in steps]

    def grown(design: Design, changes: Iterable[Json]) -> Design:
        for change in changes:
            larger = replace(design, **change)
            design = larger if pace.seconds(larger) <= seconds else design
        return design

    few, many = (design.budgets + (*others[:number],) for number in (1, 2))
    changes: list[Json] = [{"draws": 2}, {"draws": FINETUNING_SEEDS}]
    changes += [{"twin": True}] * (published and design.epochs > FROZEN)
    changes += [{"budgets": few}]
    changes += [{"split_per_seed": True, "draws": SPLITS_DRAWN}] * can_draw_anew
    most = replace(design, **{key: value for change in changes for key, value in change.items()})
    design = grown(design, changes)
    if not design.architectures and (design != most or design.epochs == FROZEN):
        return design
    design = grown(design, [own, own | {"architectures": architectures}])
    changes = [{"pretraining_steps": steps[0]}, {"pretraining_seeds": FINETUNING_SEEDS}]
    changes += [{"probed": "all"}] * can_be_probed
    changes += [{"pretraining_steps": number} for number in steps[1:2]]
    changes += [{"budgets": many}, {"pretraining_seeds": MOST_SEEDS}]
    changes += [{"pretraining_steps": number} for number in steps[2:]]
    changes += [{"d_model": WIDTHS[1]}]
    return grown(design, changes) if design.architectures else design
