"""The sections of the pages: one for each axis, and the appendix."""

from collections.abc import Sequence

from stages.findings.axes import Axis
from stages.findings.contrasts import Contrast
from stages.findings.coverage import coverage
from stages.findings.estimates import agreements
from stages.findings.results import Results
from stages.reporting.words import appendix as parts
from stages.reporting.words.appendix import Appendix
from stages.reporting.words.estimates import SHOWN, estimates
from stages.reporting.words.labels_needed import labels_needed
from stages.reporting.words.tables import run_rows, task_rows
from stages.reporting.words.training_sets import training_sets

INTRODUCTIONS: dict[Axis, str] = {
    "architecture": "Architectures, each with its own pretraining objective, at the nearest sizes "
    "in the study.",
    "objective": "The same model with another pretraining objective.",
    "size": "The same architecture with other dimensions.",
    "training set": "The same model, pretrained on another training set.",
    "amount of text": "The same model, pretrained on more and on less of one text: the smaller "
    "amount is a part of the larger one. At equal steps the smaller amount is read more often; at "
    "equal epochs the larger amount takes more steps.",
    "pretrained": "The same model, pretrained and from scratch. Of two models, what the task uses "
    "is the same.",
    "checkpoint": "Public checkpoints, each as published. They differ in architecture, size, "
    "training set and more at once: a difference says which one does better here, not why.",
    "tokenizer": "The same run with another tokenizer.",
    "parent": "The same run with another parent.",
    "optimizer": "The same run with another optimizer, with learning rates and a number of steps "
    "that may have been chosen for it.",
    "training": "The same run with other training settings.",
    "method": "The same checkpoint with another fine-tuning method.",
    "label budget": "The same checkpoint, fine-tuned with more and with fewer labels.",
}
COST = (
    "Mean score and interval of each run and method against the FLOPs of a trial: pretraining, "
    "including its parents and teachers, and fine-tuning, both at every learning rate that was "
    "tried. Grey squares at the left edge are classical baselines, which train no network. The "
    "line is the Pareto front: nothing that costs less, a baseline included, scores better."
)
PARAMETERS = (
    "Mean score of each pretrained run against the number of parameters that the task uses, with "
    "the best of the methods that train most of these or, if there is none, the run's best method. "
    "Numbers mark runs that no run with the same number of parameters or fewer beats. Where an "
    "architecture has three sizes with one objective, training set and tokenizer, the curve is a "
    "power law fitted to them. Its band is the interval over seeds if a power law holds: marks "
    "outside the band speak against one. The curve claims nothing about other sizes."
)
INTERVALS = (
    "Intervals are t intervals on means per pretraining seed, with the variance of fine-tuning "
    "seeds and of test rows; the variance between seeds is shrunk towards that of comparable "
    "contrasts. Verdicts are corrected (Holm): first the means over tasks, at half of the 5 %, "
    "then the single tasks of those that are significant, at 5 %. A p-value must be below that "
    "share divided by the number of tests that are not significant: if 4 of 7 means over tasks are "
    "significant, the limit for the other 3 is 0.025 / 3 = 0.0083. Intervals are cut off where the "
    "scale of the metric ends."
)


Places = dict[tuple[str, str], list[Contrast]]  # by task and label budget


def sections(contrasts: Sequence[Contrast]) -> dict[Axis, dict[str, Places]]:
    """Groups the contrasts by axis, then by method, then by task and label budget."""
    by_axis: dict[Axis, dict[str, Places]] = {}
    for contrast in contrasts:
        places = by_axis.setdefault(contrast.axis, {}).setdefault(contrast.method, {})
        places.setdefault((contrast.task, contrast.label_budget), []).append(contrast)
    return by_axis


def appendix(results: Results) -> list[Appendix]:
    """Returns the parts of the appendix in which this study has something to show."""
    scores, runs = results.scores, results.params.runs
    agreement = agreements(results, [SHOWN], scores.label_budgets[-1:])
    coverages = (coverage(run, results.coverage[run.task]) for run in results.best_of_tasks)
    parts_of_page = [
        parts.names(results.params, results.groups, results.trials),
        Appendix("Tasks", {"Tasks": task_rows(results.tasks)}),
        parts.comparisons_not_made(results.not_compared, scores),
        parts.inputs(results.inputs, runs),
        estimates(
            agreement, results.estimates.records, results.screened_out, runs, results.confidence
        ),
        parts.carry_over(results.carry_over, results.confidence),
        labels_needed(results.labels_needed.values(), results.confidence),
        parts.calibration(scores, filter(None, coverages)),
        parts.rare_classes(scores),
        parts.contamination(results.overlap, runs),
        training_sets(results.training_sets, scores, results.contrasts_of),
        parts.pretraining(results.endings),
        parts.convergence(scores.cells),
        Appendix("Runs", {"Runs": run_rows(results.groups, results.trials)}),
    ]
    return [part for part in parts_of_page if part.notes or any(part.tables.values())]
