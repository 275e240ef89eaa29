"""The lines of "What mattered": for each axis, mean effects over tasks, with verdicts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.evaluation.metrics import scale_of
from stages.findings.axes import AXES, Axis
from stages.findings.cells import Cell
from stages.findings.questions import Question
from stages.reporting.formats import (
    are,
    compact,
    in_parentheses,
    interval_of_difference,
    with_unit,
)
from stages.reporting.words.names import unit_of_scores, verdict_with_reason

FIRST: tuple[Axis, ...] = ("pretrained", "architecture", "size", "training set")
NAMES: dict[Axis, str] = {"pretrained": "pretraining", "training set": "training text"}
MOST = 3  # comparisons, or confounds, that a sentence names
MOST_OF_METHOD = 2  # comparisons for each method, if there are several methods
FEW_TASKS = 4  # with more, a sentence has only the extreme effects


@dataclass(frozen=True)
class Mattered:
    axis: Axis
    name: str  # of the axis, in words
    lines: tuple[str, ...]  # a sentence for each comparison


def what_mattered(questions: Sequence[Question]) -> list[Mattered]:
    """Returns the sentences on each axis that the questions have, the axes of FIRST first."""
    order: tuple[Axis, ...] = (*FIRST, *(axis for axis in AXES if axis not in FIRST))
    members: dict[Axis, list[Question]] = {
        axis: [question for question in questions if question.axis == axis] for axis in order
    }
    return [
        Mattered(axis, NAMES.get(axis, axis), tuple(_lines(axis, found)))
        for axis, found in members.items()
        if found
    ]


def _lines(axis: Axis, questions: Sequence[Question]) -> Iterator[str]:
    """Yields comparisons, separately for each method, since what helps in full fine-tuning may not
    help a probe: ``With `full`: ...``, ``With `linear_probe`: ...``"""
    by_method: dict[str, list[Question]] = {}
    for question in questions:
        method = "" if axis == "method" else question.first.method
        by_method.setdefault(method, []).append(question)
    if len(by_method) == 1:
        yield from _comparisons(axis, questions, MOST)
        return
    for method, of_method in by_method.items():
        first, *others = _comparisons(axis, of_method, MOST_OF_METHOD)
        yield f"With `{method}`: {first}"
        yield from others


def _comparisons(axis: Axis, questions: Sequence[Question], most: int) -> Iterator[str]:
    """Yields the first answers, at most ``most + 1``, then a sentence on how many are left. Answers
    without a confound come first; apart from that, the lowest p-value comes first."""

    def place(question: Question) -> tuple[bool, bool, float]:
        return bool(_confounds(question)), not question.is_tested, question.p_holm or 0.0

    order = sorted(questions, key=place)
    named = order if len(order) <= most + 1 else order[:most]
    for question in named:
        yield _answer(axis, question)
    if rest := order[len(named) :]:
        significant = sum(question.significant for question in rest)
        number = f"{significant or 'none'} {are(significant or 1)} significant"
        yield f"Of {len(rest)} more comparisons {number}."


def _answer(axis: Axis, question: Question) -> str:
    """Returns ``encoder_mlm against encoder_scratch: +6.1 points on average (+3.2 to +9.0),
    significant after Holm correction; +9.1 on tag (significant), +3.1 on type; also differs: ...``
    """
    sides = " against ".join(_side(axis, cell) for cell in (question.first.a, question.first.b))
    also = _also_differs(question)
    if question.num_tasks > 1 and question.tasks_disagree:
        unit = unit_of_scores(question.metric)
        return f"{sides}: tasks disagree in sign, {_on_tasks(question)} ({unit}); {also}."
    where = "on average" if question.num_tasks > 1 else f"on `{question.first.task}`"
    inside = in_parentheses(interval_of_difference(question.effect, question.metric))
    size = f"{with_unit(question.effect.value, question.metric)} {where}{inside}"
    parts = [f"{size}, {verdict_with_reason(question)}", also]
    if question.num_tasks > 1:
        parts.insert(1, _on_tasks(question))
    return f"{sides}: {'; '.join(parts)}."


def _on_tasks(question: Question) -> str:
    """Returns the effect on each task and whether it is significant; with more than FEW_TASKS
    tasks, only the largest and the smallest effect."""
    by_size, are_few = question.by_size, question.num_tasks <= FEW_TASKS
    effects = [
        f"{scale_of(contrast.metric).signed(contrast.effect.value)} on `{contrast.task}`"
        + (" (significant)" if contrast.significant else "")
        for contrast in (question.contrasts if are_few else (by_size[0], by_size[-1]))
    ]
    return ", ".join(effects) if are_few else f"from {' to '.join(effects)}"


def _confounds(question: Question) -> Counter[str]:
    """Returns, for each confound, the number of tasks in which the sides differ in it."""
    return Counter(name for c in question.contrasts for name in dict.fromkeys(c.confound_names))


def _also_differs(question: Question) -> str:
    """Returns the confounds of the two sides in words, the most frequent first."""
    common, num_tasks = _confounds(question).most_common(), question.num_tasks
    if not common:
        return "nothing else that is counted differs"
    names = [
        name if number == num_tasks else f"{name} in {number} of {num_tasks} tasks"
        for name, number in common[:MOST]
    ]
    more = f" and {len(common) - MOST} more" if len(common) > MOST else ""
    return f"also differs: {', '.join(names)}{more}"


def _side(axis: Axis, cell: Cell) -> str:
    if axis == "method":
        return f"`{cell.group}` with `{cell.method}`"
    if axis == "size":
        return f"`{cell.group}` ({compact(cell.amounts['num_params'])} parameters)"
    return f"`{cell.group}`"
