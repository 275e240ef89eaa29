"""What mattered: for each axis the effects averaged over tasks, with intervals and verdicts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.evaluation.metrics import scale_of
from stages.findings.axes import AXES, Axis
from stages.findings.cells import Cell
from stages.findings.questions import Question
from stages.reporting.formats import are, compact, in_parentheses, interval_of_difference
from stages.reporting.words.names import unit_of_scores, verdict_with_reason

FIRST: tuple[Axis, ...] = ("pretrained", "architecture", "size", "training set")
NAMES: dict[Axis, str] = {"pretrained": "pretraining", "training set": "training text"}
MOST = 3  # comparisons, or confounds, that a sentence names
MOST_OF_METHOD = 2  # comparisons with one of several methods
FEW_TASKS = 4  # whose effects a sentence lists


@dataclass(frozen=True)
class Mattered:
    axis: Axis
    name: str  # of the axis, in words
    lines: tuple[str, ...]  # a sentence for each comparison
    besides: str


def what_mattered(questions: Sequence[Question]) -> list[Mattered]:
    """A sentence for each axis that the questions have, in the order of their interest."""
    order: tuple[Axis, ...] = (*FIRST, *(axis for axis in AXES if axis not in FIRST))
    members: dict[Axis, list[Question]] = {
        axis: [question for question in questions if question.axis == axis] for axis in order
    }
    return [
        Mattered(axis, NAMES.get(axis, axis), tuple(_lines(axis, found)), _besides(axis, found))
        for axis, found in members.items()
        if found
    ]


def _lines(axis: Axis, questions: Sequence[Question]) -> Iterator[str]:
    """Yields the comparisons of each method apart, since what helps in full fine-tuning may not
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
    """Yields the answers with the smallest p-values, and how many more there are."""
    order = sorted(questions, key=lambda question: (not question.is_tested, question.p_holm or 0.0))
    named = order if len(order) <= most + 1 else order[:most]
    for question in named:
        yield _answer(axis, question)
    if rest := order[len(named) :]:
        significant = sum(question.significant for question in rest)
        number = f"{significant or 'none'} {are(significant or 1)} significant"
        yield f"Of {len(rest)} more comparisons {number}."


def _answer(axis: Axis, question: Question) -> str:
    """Writes ``encoder_mlm against encoder_scratch: +6.1 points on average over 2 tasks (+3.2 to
    +9.0), significant after Holm correction; +9.1 on tag (significant), +3.1 on type.``"""
    sides = " against ".join(_side(axis, cell) for cell in (question.first.a, question.first.b))
    if question.num_tasks == 1:
        size = f"{_signed(question)} on `{question.first.task}`"
    elif question.tasks_disagree:
        return f"{sides}: tasks disagree in sign, {_on_tasks(question)}."
    else:
        size = f"{_signed(question)} on average over {question.num_tasks} tasks"
    inside = in_parentheses(interval_of_difference(question.effect, question.metric))
    where = f"; {_on_tasks(question)}" if question.num_tasks > 1 else ""
    return f"{sides}: {size}{inside}, {verdict_with_reason(question)}{where}."


def _on_tasks(question: Question) -> str:
    """Returns the effect on each task and whether it is significant, or of more than FEW_TASKS the
    largest and the smallest effect."""
    by_size, are_few = question.by_size, question.num_tasks <= FEW_TASKS
    effects = [
        f"{scale_of(contrast.metric).signed(contrast.effect.value)} on `{contrast.task}`"
        + (" (significant)" if contrast.significant else "")
        for contrast in (question.contrasts if are_few else (by_size[0], by_size[-1]))
    ]
    return ", ".join(effects) if are_few else f"from {' to '.join(effects)}"


def _signed(question: Question) -> str:
    value = scale_of(question.metric).signed(question.effect.value)
    return f"{value} {unit_of_scores(question.metric)}"


def _side(axis: Axis, cell: Cell) -> str:
    if axis == "method":
        return f"`{cell.group}` with `{cell.method}`"
    if axis == "size":
        return f"`{cell.group}` ({compact(cell.amounts['num_params'])} parameters)"
    return f"`{cell.group}`"


def _besides(axis: Axis, questions: Sequence[Question]) -> str:
    """Returns what the two sides of contrasts differ in besides the axis, the most frequent first;
    "" if nothing that is counted differs."""
    members = [contrast for question in questions for contrast in question.contrasts]
    numbers = Counter(name for c in members for name in dict.fromkeys(c.confound_names))
    common = numbers.most_common()
    in_all = [name for name, number in common[:MOST] if number == len(members)]
    in_some = [f"{name} in {number}" for name, number in common[:MOST] if number < len(members)]
    parts = [", ".join(in_all)] if in_all else []
    if in_some:
        parts[:1] = [f"{part} in all" for part in parts]
        parts.append(f"{', '.join(in_some)} of {len(members)} contrasts")
    more = f"; and {len(common) - MOST} more" if len(common) > MOST else ""
    return f"Also differs: {'; '.join(parts)}{more}." if common else ""
