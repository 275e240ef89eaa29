"""The audit: a sceptical reviewer's questions about a study, answered from its own records."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from statistics import median
from typing import Any

from stages.core.artifacts import Json
from stages.core.params import Finetune, Method, Run
from stages.evaluation.metrics import scale_of
from stages.evaluation.near_duplicates import NOTEWORTHY_SHARE, NearDuplicates
from stages.evaluation.records import CLASSICAL, InputRecord, ScoredTrial, ScoredTry
from stages.evaluation.statistics import POWER
from stages.evaluation.variance import Variance
from stages.findings.answers import BestRuns, Standing
from stages.findings.axes import BETTER_MATCHED, SAME_MODEL, UNLIKE_SIZES, Axis
from stages.findings.cells import Cell
from stages.findings.contrasts import Contrast
from stages.findings.convergence import faults, share_at_edge
from stages.findings.groups import Group
from stages.findings.not_compared import NotCompared
from stages.findings.overlap import NOTEWORTHY, WITH_LONG_TEXTS
from stages.findings.pretraining_ends import Ending
from stages.findings.questions import unit_of
from stages.findings.results import Results
from stages.findings.shared_defaults import changes, forced_effects, largest_changes, not_varied
from stages.findings.verdicts import Verdict
from stages.kinds._kind import distinct_draws

AT_EDGE = 0.2  # share of the trials that may keep the smallest or the largest value tried
MAJORITY = 0.5
MOST_VALIDATION = 0.5  # share of a trial's labels that may be validation labels
NOTEWORTHY_CUT = 0.05  # share of a split's rows that are cut
UNREAD = "not read"  # in a record's ``read_at`` if the state has not read the rest of the word
SMALL = 2.0  # points; improvements that papers report are often smaller (Card et al. 2020)
# Runs that differ on these axes differ in model or start, so their best rates may differ.
UNLIKE: tuple[Axis, ...] = ("architecture", "objective", "size", "pretrained", "checkpoint")
UNLIKE_PRETRAINING: tuple[Axis, ...] = ("architecture", "objective", "size")
# Effects along these axes are read as caused by the axis, so confounds matter.
ATTRIBUTED: tuple[Axis, ...] = ("architecture", "size", "training set")


class Subject(Enum):
    """The subjects of the checks, in the order of the report."""

    PROBES = "probes"
    FINETUNING_END = "end of fine-tuning"
    PRETRAINING_END = "end of pretraining"
    FINETUNING_RATES = "rates of fine-tuning"
    PRETRAINING_RATES = "rates of pretraining"
    TRIES = "tries"
    SHARED_DEFAULTS = "shared defaults"
    LABELLED_ROWS = "labelled rows"
    VALIDATION_LABELS = "labels for validation"
    CUT = "cut texts"
    READ_AT = "where labels are read"
    NEAR_DUPLICATES = "near-duplicates"
    OVERLAP = "overlap"
    PRETRAINING_SEEDS = "pretraining seeds"
    POWER = "power"
    IDENTICAL = "identical models"
    MISSING = "missing comparisons"
    CONFOUNDS = "confounds"
    BASELINES = "baselines"


# Objections on these subjects question why runs differ; all others also question which is best.
ABOUT_EFFECTS = frozenset(
    {
        Subject.PRETRAINING_SEEDS,
        Subject.IDENTICAL,
        Subject.MISSING,
        Subject.CONFOUNDS,
    }
)


@dataclass(frozen=True)
class Check:
    """The audit's answer to one question about the study."""

    objection: bool | None  # None: the question does not apply to the study
    numbers: Mapping[str, Any] = field(default_factory=dict)  # that the answer states
    details: Sequence[Any] = ()  # the runs, tasks or cells that the answer is about

    @property
    def mark(self) -> str:
        if self.objection is None:
            return "does not apply"
        return "objection" if self.objection else "none"


NOT_ASKED = Check(None)


def audit(results: Results) -> dict[Subject, Check]:
    cells, contrasts = results.scores.cells, results.contrasts
    params, tasks, endings = results.params, results.tasks, results.endings
    return {
        Subject.PROBES: probes(cells),
        Subject.FINETUNING_END: end_of_finetuning(cells),
        Subject.PRETRAINING_END: end_of_pretraining(endings),
        Subject.FINETUNING_RATES: finetuning_rates(cells, contrasts, params.finetune.methods),
        Subject.PRETRAINING_RATES: pretraining_rates(endings, contrasts),
        Subject.TRIES: tries(results.trials, endings),
        Subject.SHARED_DEFAULTS: shared_defaults(cells, contrasts, results.tries),
        Subject.LABELLED_ROWS: labelled_rows(params.finetune, params.pretrain_seeds, tasks),
        Subject.VALIDATION_LABELS: validation_labels(results.num_labels, tasks),
        Subject.CUT: cut_texts(results.inputs, tasks),
        Subject.READ_AT: read_at(results.inputs),
        Subject.NEAR_DUPLICATES: near_duplicates(results.near_duplicates),
        Subject.OVERLAP: overlap(
            results.overlap.shares, params.runs, results.scores.external_systems
        ),
        Subject.PRETRAINING_SEEDS: pretraining_seeds(cells, contrasts),
        Subject.POWER: power(contrasts, tasks),
        Subject.IDENTICAL: identical(contrasts, results.scores.group_of),
        Subject.MISSING: missing_comparisons(results.not_compared),
        Subject.CONFOUNDS: confounds(contrasts),
        Subject.BASELINES: baselines(results.best_runs[None], results.scores.baselines),
    }


def _trials(cells: Sequence[Cell]) -> list[ScoredTrial]:
    return [trial for cell in cells for trial in cell.trials]


def _trained(cells: Sequence[Cell]) -> list[Cell]:
    """Returns the cells whose trials were trained in epochs."""
    return [cell for cell in cells if cell.trials[0].num_epochs]


def probes(cells: Sequence[Cell]) -> Check:
    """Checks whether probes reached a minimum, and kept a penalty inside the range tried."""
    cells = [cell for cell in cells if cell.trials[0].converged is not None]
    trials = _trials(cells)
    if not trials:
        return NOT_ASKED
    converged, share = sum(bool(t.converged) for t in trials), share_at_edge(trials) or 0.0
    at_edge = {cell: share_at_edge(cell.trials) or 0.0 for cell in cells}
    return Check(
        converged < len(trials) or share > AT_EDGE,
        {"converged": converged, "trials": len(trials), "share": share},
        [(c, edge) for c, edge in at_edge.items() if faults(c) or edge > MAJORITY],
    )


def end_of_finetuning(cells: Sequence[Cell]) -> Check:
    """Checks whether fine-tuning went on until the models had fitted their labels."""
    cells = _trained(cells)
    if not cells:
        return NOT_ASKED
    trials, warned = _trials(cells), [cell for cell in cells if faults(cell)]
    numbers = {
        "converged": len(cells) - len(warned),
        "cells": len(cells),
        "trials": len(trials),
        "improving": sum(trial.still_improving for trial in trials),
        "early": sum(trial.chosen_in_warmup for trial in trials),
        "best": sum(trial.best_is_last for trial in trials),
    }
    return Check(bool(warned), numbers, warned)


def end_of_pretraining(endings: Sequence[Ending]) -> Check:
    """Checks whether pretraining went on until its loss was flat."""
    if not endings:
        return NOT_ASKED
    open_ends = [ending for ending in endings if ending.falls or ending.slope is None]
    slopes = [ending.slope for ending in endings if ending.slope is not None]
    numbers = {
        "falling": sum(ending.falls for ending in endings),
        "unknown": sum(ending.slope is None for ending in endings),
        "runs": len(endings),
        "steepest": min(slopes, default=None),
    }
    return Check(bool(open_ends), numbers, open_ends)


def finetuning_rates(
    cells: Sequence[Cell], contrasts: Sequence[Contrast], methods: Mapping[str, Method]
) -> Check:
    """Checks whether the learning rates that fine-tuning kept lie inside the range tried. Contrasts
    of unlike models are an objection, too, if a side has tried only one rate."""
    cells = _trained(cells)
    if not cells:
        return NOT_ASKED
    trials = _trials(cells)
    several = [trial for trial in trials if trial.at_edge is not None]
    on_one_rate = {cell for cell in cells if any(t.at_edge is None for t in cell.trials)}
    resting = sum(c.axis in UNLIKE and not on_one_rate.isdisjoint(c.sides) for c in contrasts)
    share = share_at_edge(several) or 0.0
    numbers = {
        "single": len(trials) - len(several),
        "several": len(several),
        "trials": len(trials),
        "share": share,
        "resting": resting,
    }
    rates = [(name, m.training.rates) for name, m in methods.items() if m.training]
    return Check(bool(resting) or share > AT_EDGE, numbers, rates)


def pretraining_rates(endings: Sequence[Ending], contrasts: Sequence[Contrast]) -> Check:
    """Checks whether the learning rates that pretraining kept lie inside the range tried. Contrasts
    of unlike models are an objection, too, if a side has tried only one rate."""
    if not endings:
        return NOT_ASKED
    edges = [ending for ending in endings if ending.at_edge]
    single = [ending for ending in endings if len(ending.rates) == 1]
    on_one_rate = {ending.checkpoint.run for ending in single}
    resting = sum(
        c.axis in UNLIKE_PRETRAINING and not on_one_rate.isdisjoint(s.group for s in c.sides)
        for c in contrasts
    )
    numbers = {
        "single": len(single),
        "edges": len(edges),
        "runs": len(endings),
        "resting": resting,
    }
    return Check(bool(edges or resting), numbers, edges)


def tries(trials: Sequence[ScoredTrial], endings: Sequence[Ending]) -> Check:
    """Checks whether all trials, and all pretrainings, made equally many tries. Baselines and
    methods without a setting to choose (majority, in-context learning) are left out."""
    counts: dict[str, list[int]] = {}
    for trial in trials:
        if trial.method == CLASSICAL:
            if trial.num_tries > 1:
                counts.setdefault(f"baseline {trial.run}", []).append(trial.num_tries)
        elif trial.num_epochs or trial.converged is not None:
            counts.setdefault(trial.method, []).append(trial.num_tries)
    numbers = sorted({number for of_name in counts.values() for number in of_name})
    if not numbers:
        return NOT_ASKED
    pretrained = [len(ending.rates) for ending in endings]
    unequal = len(numbers) > 1 or len({*pretrained}) > 1
    details = [*counts.items(), *([("pretraining", pretrained)] if pretrained else [])]
    return Check(unequal, {"tries": numbers, "pretrained": pretrained}, details)


def shared_defaults(
    cells: Sequence[Cell], contrasts: Sequence[Contrast], tries: Sequence[ScoredTry]
) -> Check:
    """Checks whether a contrast whose interval excludes zero is reversed if one value of a setting
    is forced on all trials. It is an objection, too, if settings could have been varied and none
    was."""
    fixed, changed = not_varied(tries), changes(cells, tries)
    if not changed:
        return Check(True, {"fixed": fixed}) if fixed else NOT_ASKED
    reversals = [  # contrasts whose interval excludes zero come first
        (contrast, effect)
        for contrast in sorted(contrasts, key=lambda c: not c.significant_before_correction)
        for effect in forced_effects(*contrast.sides, changed)
        if effect.is_reversed
    ]
    reversed_by_number = {contrast.number: contrast for contrast, _ in reversals}
    clear = sum(c.significant_before_correction for c in reversed_by_number.values())
    numbers = {
        "fixed": fixed,
        "largest": largest_changes(changed),
        "reversed": len(reversed_by_number),
        "clear": clear,
        "contrasts": len(contrasts),
    }
    return Check(bool(clear), numbers, reversals)


def labelled_rows(
    finetune: Finetune, pretrain_seeds: Sequence[int], tasks: Mapping[str, Json]
) -> Check:
    """Checks whether the labelled rows are drawn anew for each seed."""
    draws = {
        (task, str(budget)): len(
            distinct_draws(
                budget,
                pretrain_seeds=pretrain_seeds,
                finetune_seeds=finetune.seeds,
                about=tasks[task],
                task=task,
            )
        )
        for task, budget in product(tasks, finetune.label_budgets)
    }
    shared = sum(number == 1 for number in draws.values())
    numbers = {"shared": shared, "nested": len(finetune.label_budgets) > 1}
    available = {task: about["num_examples"]["train"] for task, about in tasks.items()}
    details = [(*place, available[place[0]], number) for place, number in draws.items()]
    return Check(bool(shared), numbers, details)


def validation_labels(
    num_labels: Mapping[str, Mapping[str, int]], tasks: Mapping[str, Json]
) -> Check:
    """Checks whether validation uses at most as many labels as the label budget has."""
    details = []
    for task, about in tasks.items():
        validation = about["num_examples"]["validation"]
        for budget, number in num_labels[task].items():
            details.append((task, budget, validation, validation / (validation + number)))
    most = max(share for *_, share in details)
    return Check(most > MOST_VALIDATION, {"most": most}, details)


def cut_texts(inputs: Mapping[str, Sequence[InputRecord]], tasks: Mapping[str, Json]) -> Check:
    """Checks whether texts are read as a whole. ``long_texts: cut`` drops the end of long
    texts, ``head_tail`` their middle."""
    if not any(inputs.values()):
        return NOT_ASKED
    shares, runs = dict.fromkeys(inputs, 0.0), list[str]()
    for task, records in inputs.items():
        for record in records:
            share = record.rows_cut / max(record.rows, 1)
            shares[task] = max(shares[task], share)
            if share > NOTEWORTHY_CUT and record.run not in runs:
                runs.append(record.run)
    most = max(shares.values())
    readings = {
        task: settings.get("long_texts", "cut")
        for task, share in shares.items()
        if share > NOTEWORTHY_CUT and (settings := tasks[task]["task"])["name"] in WITH_LONG_TEXTS
    }
    numbers = {
        "most": most,
        "runs": runs,
        "endless": [task for task, reading in readings.items() if reading == "cut"],
        "without_middle": [task for task, reading in readings.items() if reading == "head_tail"],
    }
    return Check(most > NOTEWORTHY_CUT, numbers, [*shares.items()])


def read_at(inputs: Mapping[str, Sequence[InputRecord]]) -> Check:
    """Checks whether the state that predicts the label of a word has read the whole word."""
    places = {
        (task, record.run): record.read_at for task, records in inputs.items() for record in records
    }
    if not places:
        return NOT_ASKED
    unread = [(run, task, place) for (task, run), place in places.items() if UNREAD in place]
    return Check(bool(unread), {"unread": len(unread), "pairs": len(places)}, unread)


def near_duplicates(by_task: Mapping[str, NearDuplicates]) -> Check:
    """Checks whether train is free of near-duplicates of test rows."""
    most = max(of_task.share for of_task in by_task.values())
    return Check(most > NOTEWORTHY_SHARE, {"most": most}, [*by_task.items()])


def overlap(
    shares: Mapping[tuple[str, str], float], runs: Mapping[str, Run], external: Sequence[str]
) -> Check:
    """Checks whether the training text of pretraining is free of test rows. The training text of
    public checkpoints and of external systems is unknown, which is an objection, too."""
    public = sum(run.is_public for run in runs.values())
    if not (shares or public or external):
        return NOT_ASKED
    most = max(shares.values(), default=None)
    high = most is not None and most > NOTEWORTHY
    numbers = {"most": most, "public": public, "external": external}
    return Check(high or bool(public or external), numbers, [*shares.items()])


def pretraining_seeds(cells: Sequence[Cell], contrasts: Sequence[Contrast]) -> Check:
    """Checks whether runs were pretrained with several seeds."""
    here = {
        cell.group: cell.num_pretrain_seeds
        for cell in cells
        if cell.checkpoints == "pretrained here"
    }
    if not here:
        return NOT_ASKED
    without = sum(contrast.verdict is Verdict.ONE_SEED for contrast in contrasts)
    numbers = {"seeds": [*here.values()], "without": without, "contrasts": len(contrasts)}
    return Check(bool(without), numbers, [group for group, number in here.items() if number == 1])


def power(contrasts: Sequence[Contrast], tasks: Mapping[str, Json]) -> Check:
    """Checks whether there are enough test rows and seeds to find small differences."""
    if not contrasts:
        return NOT_ASKED
    sizes: dict[str, list[tuple[float, str]]] = {}  # by unit: (smallest effect, metric)
    for contrast in contrasts:
        if contrast.effect.variance is not None:
            size = smallest_effect(contrast.effect.variance, contrast.effect.confidence)
            sizes.setdefault(unit_of(contrast.metric), []).append((size, contrast.metric))
    rows = [about["num_examples"]["test"] for about in tasks.values()]
    details = [
        (of_unit[0][1], *(f(size for size, _ in of_unit) for f in (min, median, max)))
        for of_unit in sizes.values()
    ]
    if not details:
        return Check(True, {"rows": rows})
    in_points = [
        scale_of(metric).factor * middle
        for metric, _, middle, _ in details
        if scale_of(metric).unit == "points"
    ]
    return Check(in_points[0] > SMALL if in_points else None, {"rows": rows}, details)


def smallest_effect(variance: Variance, confidence: float) -> float:
    """Returns the smallest true effect that a share POWER of studies with this variance would find
    (Card et al. 2020)."""
    low, high = 0.0, variance.half_width(confidence)
    while variance.power(high, confidence) < POWER:
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        is_enough = variance.power(middle, confidence) >= POWER
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def identical(contrasts: Sequence[Contrast], group_of: Mapping[str, Group]) -> Check:
    """Checks whether compared runs are different models. Two runs from scratch with equal designs
    and settings are not: they differ in nothing that a task uses."""
    between = [contrast for contrast in contrasts if contrast.is_between_runs]
    if not between:
        return NOT_ASKED
    same = []
    for contrast in between:
        a, b = (group_of[side.group] for side in contrast.sides)
        designs = {side.trials[0].design for side in contrast.sides}
        from_scratch = not (a.pretrained or b.pretrained) and a.settings == b.settings
        if from_scratch and len(designs) == 1 and None not in designs:
            same.append(contrast)
    return Check(bool(same), {"same": len(same), "between": len(between)}, same)


def missing_comparisons(found: Sequence[NotCompared]) -> Check:
    """Checks whether all comparisons that the runs suggest are made. Leaving out a pair is no loss
    if both runs are one model, or if another pair is better matched."""
    kinds = SAME_MODEL, BETTER_MATCHED, UNLIKE_SIZES, ""
    numbers = Counter(next(kind for kind in kinds if kind in each.reason) for each in found)
    return Check(bool({UNLIKE_SIZES, ""} & {*numbers}), {"kinds": numbers}, found)


def confounds(contrasts: Sequence[Contrast]) -> Check:
    """Checks whether runs that are compared along an axis differ in nothing else."""
    names = {axis: [c.confound_names for c in contrasts if c.axis == axis] for axis in ATTRIBUTED}
    total = sum(map(len, names.values()))
    if not total:
        return NOT_ASKED
    clean = sum(not of_contrast for of_axis in names.values() for of_contrast in of_axis)
    details = [
        (axis, len(of_axis), Counter(name for some in of_axis for name in dict.fromkeys(some)))
        for axis, of_axis in names.items()
    ]
    return Check(clean < total, {"clean": clean, "total": total}, details)


def baselines(best_runs: BestRuns, fitted: Sequence[str]) -> Check:
    """Checks whether a run beats the best classical baseline on each task and label budget."""
    if not fitted:
        return Check(True)
    beaten = sum(best.standing is Standing.LEADS for best in best_runs.values())
    numbers = {"beaten": beaten, "places": len(best_runs)}
    return Check(beaten < len(best_runs), numbers, [*best_runs.values()])
