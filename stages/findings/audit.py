"""The audit: a sceptical reviewer's questions about a study, answered from its own records.

Each function answers one question of ``AuditQuestion``; its docstring says what an objection is and
which ``values`` and ``details`` the answer has.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from scipy import special

from stages.evaluation.metrics import scale_of
from stages.evaluation.near_duplicates import NOTEWORTHY_SHARE
from stages.findings.axes import WITHIN
from stages.findings.cells import Cell
from stages.findings.facts import AuditAnswer, AuditQuestion, LeadCertainty, Mark
from stages.tasks._labelled_rows import distinct_draws

if TYPE_CHECKING:
    from stages.findings.results import Results

AT_EDGE = 0.2  # share of the trials that may keep the smallest or the largest value tried
MOST_VALIDATION = 0.5  # share of a trial's labels that may be validation labels
NOTEWORTHY_CUT = 0.05  # share of a split's rows that are cut
NOTEWORTHY_OVERLAP = 0.03  # share of a task's test rows
UNREAD = "not read"  # in a record's ``read_at`` if the state has not read the rest of the word
POWER = 0.8  # share of studies that find an effect
SMALL = 2.0  # points; improvements that papers report are often smaller (Card et al. 2020)
# Models that differ on these axes may have different best settings.
UNLIKE = ("architecture", "objective", "size", "pretrained", "published", "checkpoint")
# Whether there is an objection, and the answer's values and details; None: it does not apply.
Finding = tuple[bool, Mapping[str, float | None], Sequence[tuple[str, object]]] | None


def audit(results: "Results") -> list[AuditAnswer]:
    """Returns the answers to all questions, in their order."""
    answers = []
    for question, ask in zip(AuditQuestion, QUESTIONS, strict=True):
        if finding := ask(results):
            objects, values, details = finding
            mark = Mark.OBJECTION if objects else Mark.NONE
            answers.append(AuditAnswer(question, mark, values, tuple(details)))
        else:
            answers.append(AuditAnswer(question, Mark.NOT_ASKED))
    return answers


def _fitted(results: "Results") -> list[Cell]:
    """Returns the cells whose trials were trained in epochs, then those of solved probes."""
    first = [(cell, cell.trials[0]) for cell in results.cells]
    solved = [cell for cell, t in first if t.converged is not None and not t.num_epochs]
    return [*(cell for cell, trial in first if trial.num_epochs), *solved]


def shared_defaults(results: "Results") -> Finding:
    """Could a setting that all models share decide the result?

    A setting that suits one architecture, size or start better than another is an objection if the
    study compares such models and has a single value of it. Details: (setting, its value).
    """
    unlike = [pair for pair in results.pairs if pair.axis in UNLIKE]
    if not unlike:
        return None
    models = {model.name: model for pair in unlike for model in (pair.a, pair.b)}.values()
    trained = [m for m in models if m.pretrained and not m.entry.as_published]
    rates = [m.entry.training.rates for m in trained]
    shared: dict[str, set[object]] = {
        "start": {m.start if m.start == "local" else None for m in trained},
        "learning rate of pretraining": {tried[0] if len(tried) == 1 else None for tried in rates},
        "targets per token": {m.targets_per_token for m in trained},
    }
    for name, method in results.params.finetune.methods.items():
        if method.training and len(method.training.rates) == 1:
            shared[f"learning rate of {name}"] = {method.training.rates[0]}
    for task, entry in results.params.tasks.items():
        shared[f"pooling on {task}"] = {entry.task.get("pooling")}
    single = [(name, next(iter(v))) for name, v in shared.items() if len(v) == 1 and v != {None}]
    return bool(single), {}, single


def convergence(results: "Results") -> Finding:
    """Were models trained until they had learnt what they could?

    An objection is a cell whose trials ended too early or found no minimum, or a pretraining whose
    validation loss still fell. Values: ``cells``, ``unconverged`` cells, ``pretrainings``, those
    that were ``falling``.
    """
    cells, endings = _fitted(results), results.endings
    if not cells and not endings:
        return None
    unconverged = sum(bool(cell.faults) for cell in cells)
    falling = sum(ending.falls for ending in endings)
    values = {"cells": len(cells), "unconverged": unconverged, "pretrainings": len(endings)}
    return bool(unconverged or falling), values | {"falling": falling}, ()


def rates(results: "Results") -> Finding:
    """Are the learning rates (and penalties of probes) that were kept inside the range tried?

    An objection is a range whose ends were kept often, or a single rate for models that differ in
    architecture, size or start. Values: ``single``, trials with one rate; ``several``;
    ``share_at_edge`` of these; ``resting``, pairs of unlike models on a single rate.
    """
    trials = [trial for cell in _fitted(results) for trial in cell.trials]
    if not trials:
        return None
    edges = [trial.at_edge for trial in trials if trial.at_edge is not None]
    single = {trial.model for trial in trials if trial.at_edge is None}
    single |= {end.checkpoint.model for end in results.endings if len(end.rates) == 1}
    resting = sum(
        pair.axis in UNLIKE and bool({pair.a.name, pair.b.name} & single) for pair in results.pairs
    )
    share = fmean(edges) if edges else 0.0
    objects = bool(resting) or any(end.at_edge for end in results.endings) or share > AT_EDGE
    numbers = {"single": len(trials) - len(edges), "several": len(edges), "resting": resting}
    return objects, {**numbers, "share_at_edge": share}, ()


def tries(results: "Results") -> Finding:
    """Did all models (and all baselines that choose something) try equally much on validation?

    Values: ``fewest`` and ``most`` tries of a trial.
    """
    numbers = {
        trial.num_tries
        for cell in results.cells
        for trial in cell.trials
        if (
            trial.num_tries > 1
            if cell.is_baseline
            else trial.num_epochs or trial.converged is not None
        )
    }
    if not numbers:
        return None
    of_pretraining = {len(end.rates) for end in results.endings}
    unequal = len(numbers) > 1 or len(of_pretraining) > 1
    return unequal, {"fewest": min(numbers), "most": max(numbers)}, ()


def labelled_rows(results: "Results") -> Finding:
    """Are the labelled rows drawn anew for each seed, and does validation need few labels?

    An objection is a label budget with one draw, or more labels for validation than for training.
    Values: ``one_draw``, places with a single draw; ``validation_share``, the largest.
    """
    finetune, one_draw, most = results.params.finetune, 0, 0.0
    for task, about in results.tasks.items():
        validation = about["num_examples"]["validation"]
        for budget in finetune.label_budgets:
            draws = distinct_draws(
                budget,
                pretrain_seeds=results.params.pretrain_seeds,
                finetune_seeds=finetune.seeds,
                about=about,
                task=task,
            )
            one_draw += len(draws) == 1
            most = max(most, validation / (validation + results.num_labels(task, str(budget))))
    objects = bool(one_draw) or most > MOST_VALIDATION
    return objects, {"one_draw": one_draw, "validation_share": most}, ()


def read_input(results: "Results") -> Finding:
    """Do models read whole texts, and whole words before they label them?

    Values: ``largest_cut``, the largest share of a split's rows that is cut; ``unread``, models and
    tasks whose labels are predicted before the end of a word.
    """
    records = [(task, record) for task, of in results.inputs.items() for record in of]
    if not records:
        return None
    largest = max(record.rows_cut / max(record.rows, 1) for _, record in records)
    unread = len({(task, record.model) for task, record in records if UNREAD in record.read_at})
    objects = largest > NOTEWORTHY_CUT or bool(unread)
    return objects, {"largest_cut": largest, "unread": unread}, ()


def test_rows(results: "Results") -> Finding:
    """Is train free of near-duplicates of test rows, and are test rows drawn more than once?

    Values: ``largest_share`` of near-duplicates, ``fewest_rows`` of a task's test set,
    ``grouped_tasks``, whose rows are counted by document, package or group.
    """
    largest = max(near.share for near in results.near_duplicates.values())
    fewest = min(about["num_examples"]["test"] for about in results.tasks.values())
    rows = {"fewest_rows": fewest, "grouped_tasks": len(results.grouped_tasks)}
    return largest > NOTEWORTHY_SHARE, {"largest_share": largest, **rows}, ()


def overlap(results: "Results") -> Finding:
    """Is the text of pretraining free of test rows, so that no row shares an n-gram with it?

    The text of public checkpoints and of external systems is unknown, which is an objection, too.
    Values: ``largest_share``, ``public`` models, ``external`` systems.
    """
    counts = [text["tasks"][t] for text in results.contamination.values() for t in results.tasks]
    largest = max((count["ngram"] / count["num_test"] for count in counts), default=None)
    public = sum(model.entry.is_public for model in results.models)
    external = len({cell.model for cell in results.cells if cell.is_external})
    if largest is None and not (public or external):
        return None
    objects = (largest or 0.0) > NOTEWORTHY_OVERLAP or bool(public or external)
    return objects, {"largest_share": largest, "public": public, "external": external}, ()


def seeds(results: "Results") -> Finding:
    """Was every model pretrained with several seeds? Values: ``fewest`` and ``most`` seeds."""
    numbers = [
        cell.sample.num_checkpoints
        for cell in results.cells
        if cell.sample.checkpoints == "pretrained here"
    ]
    if not numbers:
        return None
    return min(numbers) == 1, {"fewest": min(numbers), "most": max(numbers)}, ()


def power(results: "Results") -> Finding:
    """How small an effect could the study find in four of five repetitions (Card et al. 2020)?

    An objection is more than 2 points for the median main effect. Values: ``smallest`` and
    ``largest`` such effect, in the unit of the metric as shown.
    """
    sizes = []
    for effect in results.effects:
        low = effect.estimate.low
        if low is not None and effect.df:
            share = (1 - results.confidence) / 2
            quantiles = [-float(special.stdtrit(effect.df, p)) for p in (share, 1 - POWER)]
            error = (effect.estimate.value - low) / quantiles[0]
            sizes.append(scale_of(effect.metric).factor * error * sum(quantiles))
    if not sizes:
        return None
    return median(sizes) > SMALL, {"smallest": min(sizes), "largest": max(sizes)}, ()


def confounds(results: "Results") -> Finding:
    """Do matched models differ in something else, and is every model matched with another?

    Values: ``clean`` effects of ``effects``. Details: (what differs, in how many effects), then
    ("not matched", model).
    """
    if not results.models:
        return None
    effects = [effect for effect in results.effects if effect.axis not in WITHIN]
    also = [[d.name for d in e.also_differs if d.name != "start" or d.a != d.b] for e in effects]
    counts = Counter(name for names in also for name in names)
    matched = {name for effect in effects for pair in effect.pairs for name in pair}
    alone = [model.name for model in results.models if model.name not in matched]
    alone = alone if len(results.models) > 1 else []
    clean = sum(not names for names in also)
    details = [*counts.most_common(), *(("not matched", name) for name in alone)]
    objects = clean < len(effects) or bool(alone)
    return objects, {"clean": clean, "effects": len(effects)}, details


def baselines(results: "Results") -> Finding:
    """Is a model ahead of the best baseline on each task and label budget?

    Values: ``beaten`` of ``places``, ``fitted`` baselines.
    """
    leads = [answer.lead for answer in results.answers if answer.lead]
    beaten = sum(lead.certainty is LeadCertainty.LEADS for lead in leads)
    places, fitted = len(results.answers), {c.model for c in results.cells if c.is_baseline}
    return beaten < places, {"beaten": beaten, "places": places, "fitted": len(fitted)}, ()


QUESTIONS: tuple[Callable[["Results"], Finding], ...] = (
    *(shared_defaults, convergence, rates, tries, labelled_rows, read_input),
    *(test_rows, overlap, seeds, power, confounds, baselines),
)
