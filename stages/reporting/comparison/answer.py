"""The first screen: for each task what to use, how sure that is, and what it is better than.

There is an answer for every choice of label budget and method, and in it a sentence for every
reference to compare with. Sentences come from the numbers and are never stronger than the verdicts.
Names are in backticks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from stages.core.artifacts import Json
from stages.evaluation.metrics import scale_of
from stages.reporting.comparison import optimism
from stages.reporting.comparison.advice import sentence_of, size_of
from stages.reporting.comparison.best_runs import BestRun, best_runs
from stages.reporting.comparison.cells import Cell
from stages.reporting.comparison.choice import (
    cheapest,
    name_of,
    next_best,
    otherwise,
    shown_mean,
    takes,
)
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.questions import Question
from stages.reporting.comparison.results import Results
from stages.reporting.comparison.verdicts import BEFORE_CORRECTION
from stages.reporting.comparison.what_mattered import Mattered, what_mattered
from stages.reporting.number_format import metric_name, six_decimals
from stages.reporting.score_format import interval

ANY = "any"  # the method of a choice: of each task the one with the best mean
CLASSICAL = "the best classical baseline"  # a reference; the others are runs
FEW = 4  # tasks that a sentence names
MOST_REFERENCES = 30  # runs; the contrasts of the others are in contrasts.csv
# How sure it is that the best run is better than every baseline; of other runs ``Card.runs`` tells.
LEADS, OPEN = "ahead of the baselines", "model first, a baseline may be as good"
BASELINE, UNTESTED = "baseline first", "not tested against a baseline"


@dataclass(frozen=True)
class Card:
    """The answer for one task."""

    task: str
    about: str  # the task in words
    label_budget: str
    best: Cell
    use: str  # what to use, with its score
    sure: str  # LEADS, OPEN, BASELINE or UNTESTED
    runs: str  # how sure the first place among the runs is
    against: dict[str, str]  # of each reference
    otherwise: str  # what else could be chosen
    takes: str  # what it took on the machine that computed the study
    chip: str  # ``sure``, and of a baseline that is first, whether that is sure
    cheapest: str  # what costs least of those that may be as good, with its cost


@dataclass(frozen=True)
class Answer:
    """Of one label budget and one method, or ANY."""

    label_budget: str
    method: str
    cards: list[Card]
    verdict: str  # over all tasks: whether models are ahead of baselines
    chosen: str  # by how much the choice of the best favours it
    mattered: dict[str, list[Mattered]]  # of each reference


def answers(results: Results) -> list[Answer]:
    """Of every label budget and method, the largest budget and ANY method first."""
    methods = [ANY, *results.methods] if len(results.methods) > 1 else [ANY]
    found = {m: best_runs(results, None if m == ANY else m) for m in methods}
    best = {
        (budget, method): [
            each for task in results.params.tasks if (each := found[method].get((task, budget)))
        ]
        for budget, method in product(reversed(results.label_budgets), methods)
    }
    return [
        Answer(
            label_budget=budget,
            method=method,
            cards=[_card(results, each, _methods(results, method)) for each in of_tasks],
            verdict=_verdict(of_tasks),
            chosen=optimism.sentence(results, budget, _methods(results, method)),
            mattered={
                reference: what_mattered(_scope(results, budget, method, reference))
                for reference in references(results)
            },
        )
        for (budget, method), of_tasks in best.items()
    ]


def _verdict(found: Sequence[BestRun]) -> str:
    """On how many tasks a model is ahead of the best classical baseline; "" without baselines."""
    tasks = {each.run.task: each for each in found if each.strongest}
    sure = {task: _sure(each) for task, each in tasks.items()}
    tested = [task for task, each in tasks.items() if _is_tested(each)]
    ahead = [task for task in tested if sure[task] == LEADS]
    behind = [task for task in tested if sure[task] == BASELINE and tasks[task].significant]
    counts = {
        "the baseline is ahead": behind,
        "the difference may be chance": [t for t in tested if t not in (*ahead, *behind)],
        "nothing was tested": [task for task in tasks if task not in tested],
    }
    if not tasks:
        return ""
    number = f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}"
    than = "ahead of the best classical baseline, after Holm correction"
    first = f"On none of {number} is a model {than}"
    if ahead:
        first = f"On {len(ahead)} of {number}{_named(ahead)} a model is {than}"
    rest = [_on(some, len(tasks)) + what for what, some in counts.items() if some]
    return "; ".join([first, *rest]) + "."


def _on(tasks: Sequence[str], number: int) -> str:
    """Some of a ``number`` of tasks."""
    if len(tasks) < number:
        return f"on {len(tasks)}{_named(tasks)} "
    return f"on all {number} " if number > 1 else ""


def _named(tasks: Sequence[str]) -> str:
    """A few tasks, in brackets."""
    return f" ({', '.join(f'`{task}`' for task in tasks)})" if 0 < len(tasks) <= FEW else ""


COLUMNS = [
    *("task", "label_budget", "run", "members", "method", "metric", "mean", "low", "high", "sure"),
    *("next_run", "next_method", "next_mean", "use", "against", "runs", "otherwise"),
]


def rows(results: Results) -> list[Json]:
    """reports/answer.csv: for each label budget and task what to use, in numbers and in words. The
    interval is of the mean score on new test rows, with other seeds."""
    return [
        _row(results, card)
        for answer in answers(results)
        if answer.method == ANY
        for card in answer.cards
    ]


def _row(results: Results, card: Card) -> Json:
    best, after = card.best, next_best(results, card.best, results.methods)
    members = [group.runs for group in results.groups if group.name == best.group]
    words = {
        "use": card.use,
        "against": card.against[CLASSICAL],
        "runs": card.runs,
        "otherwise": card.otherwise,
    }
    return {
        "task": card.task,
        "label_budget": card.label_budget,
        "run": best.group,
        "members": " ".join(members[0] if members else [best.group]),
        "method": best.method,
        "metric": best.metric,
        "mean": six_decimals(best.mean.value),
        "low": six_decimals(best.mean.low),
        "high": six_decimals(best.mean.high),
        "sure": card.sure,
        "next_run": after.group if after else "",
        "next_method": after.method if after else "",
        "next_mean": six_decimals(after.mean.value) if after else "",
    } | {key: text.replace("`", "") for key, text in words.items()}


def references(results: Results) -> list[str]:
    """What can be compared with: CLASSICAL and every run, of very many the first ones."""
    return [CLASSICAL, *(group.name for group in results.groups[:MOST_REFERENCES])]


def _scope(results: Results, budget: str, method: str, reference: str) -> list[Question]:
    """The questions between runs; with a run as the reference, those that it is a side of."""
    return [
        question
        for question in results.questions
        if (contrast := question.first).a.group != contrast.b.group
        and contrast.label_budget == budget
        and method in (ANY, contrast.method)
        and (reference == CLASSICAL or reference in (contrast.a.group, contrast.b.group))
    ]


def _methods(results: Results, chosen: str) -> list[str]:
    """Those that a choice leaves."""
    return results.methods if chosen == ANY else [chosen]


def _card(results: Results, found: BestRun, methods: Sequence[str]) -> Card:
    run = found.run
    beside = [c for c in results.contrasts_of.get(run, []) if c.a.group != c.b.group]
    return Card(
        task=run.task,
        about=about(results, run.task),
        label_budget=run.label_budget,
        best=found.best,
        use=_use(results, found.best),
        sure=_sure(found),
        runs=_among_runs(run, beside),
        against={CLASSICAL: _against_baseline(found)}
        | {name: _against_run(results, run, name, beside) for name in references(results)[1:]},
        otherwise=otherwise(results, found, methods),
        takes=takes(results, found.best),
        chip=_chip(found),
        cheapest=cheapest(results, found, methods),
    )


def about(results: Results, task: str) -> str:
    """A task in words: those of params.yaml or, without any, its kind."""
    kind = results.tasks[task]["kind"].replace("_", " ")
    return results.params.about.tasks.get(task, f"{task}: {kind}").removesuffix(".")


def _use(results: Results, best: Cell) -> str:
    score = f"{shown_mean(best)} {metric_name(best.metric)}"
    if ends := interval(best.mean, best.metric):
        score += f" ({ends})"
    if scale_of(best.metric).lower_is_better:
        score += ", lower is better"
    return f"{name_of(results, best)}: {score}."


def _sure(found: BestRun) -> str:
    if not found.run_is_ahead:
        return BASELINE
    if not _is_tested(found):
        return UNTESTED
    return LEADS if found.significant else OPEN


def _is_tested(found: BestRun) -> bool:
    """Whether the best run against the best baseline has a verdict."""
    is_known = found.strongest is not None and found.effect.variance is not None
    return is_known and not found.run.has_one_pretraining_seed


def _chip(found: BestRun) -> str:
    sure = _sure(found)
    if sure != BASELINE:
        return sure
    if not _is_tested(found):
        return f"{sure}, not tested"
    if found.significant:
        return f"{sure}, clearly"
    # As ``choice.cheapest`` has it: what may be as good has a difference that may be none.
    behind = found.effect.excludes_zero
    return f"{sure}, {BEFORE_CORRECTION if behind else 'a model may be as good'}"


def _against_baseline(found: BestRun) -> str:
    run, strongest = found.run, found.strongest
    if strongest is None:
        return "No classical baseline was fitted to this task."
    size = size_of(found.effect, run.metric)
    reached = f"{shown_mean(run)} against {shown_mean(strongest)}"
    if found.run_is_ahead:
        return f"Against `{strongest.group}`, the best classical baseline: {size}, {found.verdict}."
    return (
        f"The best model, `{run.group}` with `{run.method}`, reaches {reached}: {size}, "
        f"{found.verdict}."
    )


def _against_run(results: Results, run: Cell, name: str, beside: list[Contrast]) -> str:
    """The best run against another one."""
    if name == run.group:
        return f"`{name}` is the best run here."
    for contrast in beside:
        if name in (contrast.a.group, contrast.b.group):
            return sentence_of(contrast, run)
    other = results.cell(name, run.task, run.method, run.label_budget)
    if other is None:
        return f"`{name}` has no trials with `{run.method}` on this task."
    return (
        f"`{run.group}` reaches {shown_mean(run)} and `{name}` {shown_mean(other)}; they "
        "differ in more than one thing, so no contrast is made."
    )


def _among_runs(run: Cell, beside: list[Contrast]) -> str:
    """What the contrasts of the best run say: which models it is ahead of, and which may be as
    good because the interval of the difference includes 0."""
    if not beside:
        return f"No model differs from `{run.group}` in one thing alone."
    ahead = [c for c in beside if c.significant and better(c) is run]
    before = [
        c for c in beside if c.significant_before_correction and c not in ahead and better(c) is run
    ]
    open_ = [c for c in beside if not c.significant_before_correction]
    of = "the one model that differs" if len(beside) == 1 else f"the {len(beside)} that differ"
    parts = [f"ahead of {_others(run, ahead) if ahead else 'none'} after Holm correction"]
    if before:
        parts.append(f"of {_others(run, before)} before correction only")
    if open_:
        parts.append(f"{_others(run, open_)} could be as good")
    return f"Of {of} from `{run.group}` in one thing alone, it is {'; '.join(parts)}."


def _others(run: Cell, contrasts: Sequence[Contrast]) -> str:
    """The other sides, by name if they are few."""
    if len(contrasts) > FEW:
        return str(len(contrasts))
    return ", ".join(f"`{(c.b if c.a is run else c.a).group}`" for c in contrasts)


def better(contrast: Contrast) -> Cell:
    """The side with the better mean."""
    return max(contrast.a, contrast.b, key=lambda cell: cell.merit)
