"""The sections of the pages: one for each axis, and the appendix."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stages.reporting.comparison import (
    calibration,
    contamination,
    convergence,
    corpora,
    estimates,
    inputs,
    pretraining_ends,
    tables,
)
from stages.reporting.comparison.appendix import Appendix
from stages.reporting.comparison.axes import AXES, Axis
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.not_compared import not_compared_rows
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.score_against_cost import left_out

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
    "the best of the methods that train most of these or, if none does, with its best method. "
    "Numbers mark runs that no run with the same number of parameters or fewer beats. Where an "
    "architecture has three sizes with one objective, training set and tokenizer, the curve is a "
    "power law fitted to them. Its band is the {} interval over seeds if a power law holds: marks "
    "outside the band speak against one. The curve claims nothing about other sizes."
)


INTERVALS = (
    "Intervals are t intervals on means per pretraining seed, with the variance of fine-tuning "
    "seeds and of test rows; the variance between seeds is shrunk towards that of comparable "
    "contrasts. Verdicts are corrected (Holm): first the means over tasks, then the single tasks "
    "of those that are significant. Intervals are cut off where the scale of the metric ends."
)
CONVERGENCE = "How long each run was fitted, and the values that validation chose from"
EDGES = "A better value than the chosen one may lie beyond an edge of those tried."


@dataclass(frozen=True)
class Block:
    """The contrasts on one task with one label budget, and the scores of the baselines on it."""

    task: str
    label_budget: str
    baselines: list[tuple[str, float]]
    contrasts: list[Contrast]


@dataclass(frozen=True)
class Part:
    """The contrasts of one axis with one method."""

    method: str
    tables: list[tables.Table]
    blocks: list[Block]


@dataclass(frozen=True)
class Section:
    axis: Axis
    introduction: str
    parts: list[Part]


def sections(results: Results) -> list[Section]:
    """The axes in which the study's groups differ."""
    return [
        Section(axis, INTRODUCTIONS[axis], list(_parts(results, axis, members)))
        for axis in AXES
        if (members := [contrast for contrast in results.contrasts if contrast.axis == axis])
    ]


def _parts(results: Results, axis: Axis, members: Sequence[Contrast]) -> Iterable[Part]:
    for method in dict.fromkeys(contrast.method for contrast in members):
        within = [contrast for contrast in members if contrast.method == method]
        places = dict.fromkeys((contrast.task, contrast.label_budget) for contrast in within)
        yield Part(
            method=method,
            tables=tables.by_axis(results, axis, method) if axis in tables.MEANS else [],
            blocks=[
                Block(
                    task=task,
                    label_budget=budget,
                    baselines=_baselines(results, task, budget),
                    contrasts=[c for c in within if (c.task, c.label_budget) == (task, budget)],
                )
                for task, budget in places
            ],
        )


def _baselines(results: Results, task: str, label_budget: str) -> list[tuple[str, float]]:
    found = [(name, results.cell(name, task, "", label_budget)) for name in results.baselines]
    return [(name, cell.mean.value) for name, cell in found if cell]


def appendix(results: Results) -> list[Appendix]:
    """What both pages have behind the comparison, where the study has it."""
    ends = pretraining_ends.ending_rows(results)
    ending_notes = [pretraining_ends.EXPLANATION, *pretraining_ends.ending_notes(results)]
    parts = [
        Appendix("Names", {"What the names mean": names(results)}, []),
        Appendix("Tasks", {"Tasks": tables.task_rows(results)}, []),
        Appendix("Comparisons not made", {"Reasons": not_compared_rows(results)}, []),
        inputs.appendix(results),
        estimates.appendix(results),
        calibration.appendix(results),
        contamination.appendix(results),
        corpora.appendix(results),
        Appendix("Pretraining", {"The end of each pretraining": ends}, ending_notes)
        if ends
        else None,
        Appendix("Convergence", {CONVERGENCE: convergence.rows(results.cells)}, [EDGES]),
        Appendix("Runs", {"Runs": tables.run_rows(results)}, []),
    ]
    return [part for part in parts if part and (part.notes or any(part.tables.values()))]


def names(results: Results) -> list[dict[str, str]]:
    """What params.yaml says about tasks, corpora and methods."""
    about = results.params.about
    kinds = {"task": about.tasks, "corpus": about.corpora, "method": about.methods}
    return [
        {"name": name, "is a": kind, "meaning": meaning}
        for kind, meanings in kinds.items()
        for name, meaning in meanings.items()
    ]


def who_is_left_out(results: Results) -> Iterable[str]:
    unknown, untrained = left_out(results)
    if unknown:
        names = ", ".join(f"`{name}`" for name in unknown)
        yield f"Left out because the cost of their pretraining is unknown: {names}."
    if untrained:
        names = ", ".join(f"`{run}` with `{method}`" for run, method in untrained)
        yield f"Left out because nothing was trained: {names}."
