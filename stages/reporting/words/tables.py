"""Tables of scores, ranks, confounds, confusions, tasks and runs, for both pages."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.core.artifacts import Json
from stages.evaluation.records import ScoredTrial, budget_order
from stages.evaluation.screening import ScreenedOut
from stages.findings.axes import Confound
from stages.findings.cells import Cell
from stages.findings.confusions import MOST, Confusion, Line
from stages.findings.contrasts import Contrast
from stages.findings.groups import Group
from stages.findings.ranking import ALL_TASKS, Ranked
from stages.findings.scores import Scores
from stages.reporting.formats import DASH, compact, ends, formatted, percent, shown, thousands
from stages.reporting.words.names import confound, seeds

LEVELS = (0.005, 0.1, 0.3, 0.6)  # shares of a row; a cell gets one shade darker at each


@dataclass(frozen=True)
class Score:
    """A score in a table. ``low`` and ``high``, cut off at the ends of the metric's scale, are None
    without an interval."""

    metric: str
    mean: float
    low: float | None
    high: float | None
    seeds: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table of scores: runs, then baselines. A score is None where a baseline or method does not
    fit the task or run, and a text where the run is screened out."""

    columns: list[str]
    rows: list[tuple[str, str, list[Score | str | None]]]  # kind, name, scores


def by_task(
    scores: Scores, screened_out: Sequence[ScreenedOut], task: str, runs: Sequence[str]
) -> Table:
    """Returns all runs and baselines on a task, with a column for each method and label budget.
    ``runs`` are those of params.yaml, in its order."""
    places = [(method, n) for n in scores.label_budgets for method in scores.methods]
    instead = {
        screened.run: f"screened out by {screened.by} ({formatted(screened.value, '.3f')})"
        for screened in screened_out
    }
    names = [name for name in runs if name in scores.group_of or name in instead]
    cells = {
        name: [scores.cell(name, task, *place) for place in places]
        for name in [*names, *scores.baselines]
    }
    top = [
        max((cell.merit for cell in column if cell), default=0.0)
        for column in zip(*cells.values(), strict=True)
    ]
    return Table(
        [f"{method}, {thousands(n)} labels" for method, n in places],
        [
            (
                "baseline" if name in scores.baselines else "run",
                name,
                [
                    _score(cell, best) if cell else instead.get(name)
                    for cell, best in zip(of_name, top, strict=True)
                ],
            )
            for name, of_name in cells.items()
            if any(of_name) or name in instead
        ],
    )


def _score(cell: Cell, best: float | None = None) -> Score:
    low, high = ends(cell.mean, cell.metric) or (None, None)
    return Score(cell.metric, cell.mean.value, low, high, seeds(cell), cell.merit == best)


def leaderboard(scores: Scores) -> list[Json]:
    """Returns a row for each cell, the best of each task and label budget first."""
    order = {task: place for place, task in enumerate(scores.tasks)}
    cells = sorted(
        scores.cells, key=lambda c: (order[c.task], budget_order(c.label_budget), -c.merit)
    )
    return [
        {
            "run": cell.group,
            "score": _score(cell),
            "task": cell.task,
            "method": cell.method,
            "labels": cell.label_budget,
            "architecture": cell.trials[0].architecture,
            "training set": cell.trials[0].corpus,
            "seeds": seeds(cell),
            "parameters": compact(cell.amounts["num_params"]) if cell.amounts["num_params"] else "",
        }
        for cell in cells
    ]


def ranks(rankings: Sequence[Ranked]) -> list[tuple[str, list[dict[str, str]]]]:
    """Returns a captioned table for each method and label budget, with a column for each ranking
    (on one task, or all). The last ranking orders the rows; if it is on all tasks, a column has its
    means."""
    tables: dict[str, dict[str, dict[str, Ranked]]] = {}  # by caption, scope and run
    for ranked in rankings:
        caption = f"{ranked.method}, {thousands(ranked.label_budget)} labels"
        by_scope = tables.setdefault(caption, {})
        by_scope.setdefault(ranked.scope, {})[ranked.run] = ranked
    return [(caption, _ranks(by_scope)) for caption, by_scope in tables.items()]


def _ranks(by_scope: Mapping[str, Mapping[str, Ranked]]) -> list[dict[str, str]]:
    last_scope, last = [*by_scope.items()][-1]
    names = dict.fromkeys([*last, *(name for ranks in by_scope.values() for name in ranks)])
    table = []
    for name in names:
        row = {"run": name}
        if last_scope == ALL_TASKS:
            row["mean"] = shown(last[name].mean, last[name].metric) if name in last else DASH
        row |= {scope: _rank(ranks.get(name)) for scope, ranks in by_scope.items()}
        table.append(row)
    return table


def _rank(ranked: Ranked | None) -> str:
    """Returns a rank with its interval: ``2 (1 to 4)``."""
    if ranked is None:
        return DASH
    interval = f" ({ranked.lowest_rank} to {ranked.highest_rank})" if ranked.lowest_rank else ""
    return f"{ranked.rank}{interval}"


def rank_note(confidence: float) -> str:
    """Returns a note on how to read ``ranks``."""
    return (
        f"1 is the best mean; in parentheses the {percent(confidence)} interval of the rank. It "
        "begins after the runs and baselines that are significantly better and ends before those "
        "that are significantly worse. The comparisons of each run are Holm-corrected "
        "by themselves, so two rows may disagree about one pair. Contrasts are corrected with more "
        "tests: a pair told apart here may be significant 'before correction only' there."
    )


def confound_rows(contrasts: Sequence[Contrast]) -> list[dict[str, str]]:
    """Returns a row for each axis and pair, with the confounds of all its contrasts. If only some
    contrasts have a confound, the row says how many."""
    members: dict[tuple[str, str, str], list[list[Confound]]] = defaultdict(list)
    for contrast in contrasts:
        pair = contrast.level_a, contrast.level_b  # levels within one run, equal for all runs
        if contrast.is_between_runs:
            pair = contrast.a.group, contrast.b.group
        members[contrast.axis, *pair].append(contrast.confounds)
    return [
        {"axis": axis, "first": one, "second": other, "also differs": _also(lists)}
        for (axis, one, other), lists in members.items()
    ]


def _also(lists: Sequence[Sequence[Confound]]) -> str:
    """Returns each confound once: with its amounts if these are equal in all contrasts, and with
    the number of contrasts that have it unless all do."""
    numbers = Counter(name for found in lists for name in dict.fromkeys(c.name for c in found))
    texts = []
    for name, number in numbers.items():
        amounts = {confound(each) for found in lists for each in found if each.name == name}
        text = amounts.pop() if len(amounts) == 1 else name
        texts.append(text if number == len(lists) else f"{text} (in {number} of {len(lists)})")
    return "; ".join(texts) or "nothing that is counted"


def most_confused(confusion: Confusion, baselines: Sequence[str]) -> str:
    """Returns a sentence on the class that is found least often and what it is mostly taken for."""
    cell, number, worst = confusion.cell, confusion.num_classes, confusion.worst
    named = f"`{cell.group}`" + ("" if cell.group in baselines else f" with `{cell.method}`")
    few = f"; the {MOST} of {number} classes with the most errors" if number > MOST else ""
    if worst is None:
        return f"{named}: every class is always found{few}"
    share_found, mistaken = (percent(round(share, 2)) for share in (worst.found, worst.mistaken))
    return (
        f"{named}: `{worst.name}` is found least often ({share_found}) and most often taken for "
        f"`{worst.taken_for}` ({mistaken}){few}"
    )


def shades(line: Line) -> list[int]:
    """Returns how dark each cell in a row of a confusion matrix is shaded: 0 (not at all) to 4."""
    return [sum(share >= level for level in LEVELS) for share in line.shares]


def run_rows(groups: Sequence[Group], trials: Sequence[ScoredTrial]) -> list[dict[str, str]]:
    """Returns the settings of each group, from params.yaml; none depends on the machine."""
    return [
        {
            "run": group.name,
            "architecture": group.architecture,
            "objective": group.objective if group.pretrained else "from scratch",
            "training set": group.corpus,
            "model": ", ".join(f"{k}={v}" for k, v in group.entry.model.items() if k != "name"),
            "parameters": _sizes(group, trials),
            "pretraining seeds": str(len(group.seeds)),
        }
        for group in groups
    ]


def _sizes(group: Group, trials: Sequence[ScoredTrial]) -> str:
    """Returns the checkpoint's number of parameters and, if tasks use only a part of it, that
    of this part with the largest head of these tasks."""
    used = [
        f"; its {part} on {', '.join(sizes)}: {compact(max(sizes.values()))}"
        for part, sizes in used_parts(group, trials).items()
    ]
    return compact(group.num_params) + "".join(used)


def used_parts(group: Group, trials: Sequence[ScoredTrial]) -> dict[str, dict[str, int]]:
    """Returns the parts of a group's model that tasks use alone, such as an encoder-decoder's
    encoder: by part and task, the number of parameters with the task's largest head."""
    parts: dict[str, dict[str, int]] = {}
    for trial in trials:
        if trial.run == group.name and trial.used_architecture != group.architecture:
            largest = parts.setdefault(trial.used_architecture, {})
            largest[trial.task] = max(largest.get(trial.task, 0), trial.num_params)
    return parts


def task_rows(tasks: Mapping[str, Json]) -> list[dict[str, str]]:
    """Returns the size of each task. Duplicates are rows that were removed because validation or
    test has the same input. Two columns appear only if a task needs them: the number of kept rows
    that share one text of a pair with a row of a later split, and the periods of splits by time."""
    shared = {key: task.get("share_a_text", {}) for key, task in tasks.items()}
    counted = any(any(numbers.values()) for numbers in shared.values())
    timed = any("times" in task for task in tasks.values())
    return [
        {
            "task": key,
            "kind": task["kind"],
            **{split: f"{number:,}" for split, number in task["num_examples"].items()},
            "classes": str(len(task["labels"])) if task["labels"] else DASH,
            "duplicates removed": _by_split(task["duplicates_removed"]),
        }
        | ({"rows that share a text": _by_split(shared[key])} if counted else {})
        | ({"splits by time": _by_time(task)} if timed else {})
        for key, task in tasks.items()
    ]


def _by_split(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{split} {number:,}" for split, number in numbers.items())


def _by_time(task: Json) -> str:
    times = task.get("times", {})
    return "; ".join(f"{split} {' to '.join(ends)}" for split, ends in times.items()) or DASH
