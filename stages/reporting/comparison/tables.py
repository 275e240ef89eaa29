"""Tables: the rows of trials.csv and metrics.json, and of the tables on the pages."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.evaluation.precision import SOURCES
from stages.evaluation.records import budget_order
from stages.reporting.comparison import screening
from stages.reporting.comparison.axes import Axis
from stages.reporting.comparison.cells import AMOUNTS, Cell, seeds
from stages.reporting.comparison.contrasts import Contrast
from stages.reporting.comparison.groups import Group
from stages.reporting.comparison.results import Results
from stages.reporting.number_format import DASH, compact, six_decimals
from stages.reporting.score_format import ends

KEYS = [
    *("study", "run", "architecture", "objective", "method", "task", "corpus", "pretrain_seed"),
    *("finetune_seed", "label_budget"),
]
TRIALS = [
    *KEYS,
    *("num_params", "num_trained_params", "pretrain_tokens", "pretrain_flops"),
    *("lineage_tokens", "lineage_flops", "finetune_flops", "lr"),
    *("num_pretrained_params", "used_architecture", "lineage_bytes"),
    *("best_epoch", "num_epochs", "num_steps", "last_train_loss", "best_is_last"),
    *("chosen_in_warmup", "still_improving", "converged", "C", "num_tries", "at_edge"),
    *("metric", "value"),
    "calibration_error",
]
CONTRASTS = [
    *("axis", "task", "method", "label_budget", "run_a", "run_b", "level_a", "level_b"),
    *("mean_a", "mean_b", "effect", "low", "high", "p_value", "p_holm", "test"),
    *("df", "df_other_cells", "basis", "seeds", "resolved", "verdict", "seeds_needed"),
    *(f"{amount}_{side}" for amount in AMOUNTS for side in "ab"),
    "confounds",
    *(f"{about}_{source}" for about in ("share", "narrower") for source in SOURCES.values()),
]
MEANS: tuple[Axis, ...] = (
    *("architecture", "objective", "size", "training set", "amount of text", "checkpoint"),
)


def trials(results: Results) -> list[Json]:
    """reports/trials.csv: a row for each trial."""
    return [
        {"study": results.params.study, **asdict(trial), "value": six_decimals(trial.value)}
        | {"calibration_error": six_decimals(trial.calibration_error)}
        for trial in results.trials
    ]


def metrics(results: Results) -> Json:
    """reports/metrics.json: task -> run -> method -> label budget -> numbers."""
    nested: Json = {}
    for cell in results.cells:
        mean = cell.mean
        numbers = {"mean": mean.value, "low": mean.low, "high": mean.high}
        place = nested.setdefault(cell.task, {}).setdefault(cell.group, {})
        place.setdefault(cell.method, {})[cell.label_budget] = {
            **{key: six_decimals(value) for key, value in numbers.items() if value is not None},
            "num_pretrain_seeds": cell.num_pretrain_seeds,
            "num_finetune_seeds": cell.num_finetune_seeds,
        }
    return nested


@dataclass(frozen=True)
class Score:
    """A cell of a table; ``low`` and ``high``, cut off at the ends of the scale, are None where
    there is no interval."""

    metric: str
    mean: float
    low: float | None
    high: float | None
    seeds: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows are runs, then baselines; a score is None where a baseline or a method is incompatible
    with the task or the run, and words where the run is screened out."""

    columns: list[str]
    rows: list[
        tuple[str, str, list[Score | str | None]]
    ]  # kind ("run" or "baseline"), name, scores
    described: str  # "pretrained", "from scratch" or "all runs"


def by_task(results: Results, task: str) -> Table:
    """All runs and baselines on a task; a column for each method and label budget."""
    keys = [(task, method, n) for n in results.label_budgets for method in results.methods]
    columns = [f"{method}, {n} labels" for _, method, n in keys]
    trained = {group.name for group in results.groups}
    screened = {each.runs[0] for each in results.screened_out[task]}
    names = [name for name in results.params.pretrain if name in trained | screened]
    return _table(results, names, columns, keys)


def by_axis(results: Results, axis: Axis, method: str) -> list[Table]:
    """One table for each family of runs that differ only in this axis."""
    keys = [(task, method, n) for task in results.params.tasks for n in results.label_budgets]
    columns = [f"{task}, {n} labels" for task, _, n in keys]
    return [
        _table(results, family, columns, keys)
        for family in _families(results, [c for c in results.contrasts if c.axis == axis])
    ]


def _families(results: Results, contrasts: Iterable[Contrast]) -> list[list[str]]:
    """The groups that contrasts connect, each in the order of params.yaml."""
    family = {group.name: {group.name} for group in results.groups}
    for contrast in contrasts:
        joined = family[contrast.a.group] | family[contrast.b.group]
        for name in joined:
            family[name] = joined
    names = [group.name for group in results.groups]
    found = [sorted(members, key=names.index) for members in family.values() if len(members) > 1]
    return [members for i, members in enumerate(found) if members not in found[:i]]


def _table(
    results: Results,
    names: Sequence[str],
    columns: list[str],
    keys: Sequence[tuple[str, str, str]],
) -> Table:
    cells = {
        name: [results.cell(name, *key) for key in keys] for name in [*names, *results.baselines]
    }
    screened = {name: [screening.shown(results, name, task) for task, *_ in keys] for name in cells}
    top = [
        max((c.merit for c in column if c), default=0.0)
        for column in zip(*cells.values(), strict=True)
    ]
    rows = [
        (
            "baseline" if name in results.baselines else "run",
            name,
            [
                _score(cell, best) if cell else words
                for cell, best, words in zip(row, top, screened[name], strict=True)
            ],
        )
        for name, row in cells.items()
        if any(row) or any(screened[name])
    ]
    pretrained = [group.pretrained for group in results.groups if group.name in names]
    described = (
        "pretrained" if all(pretrained) else "all runs" if any(pretrained) else "from scratch"
    )
    return Table(columns, rows, described)


def _score(cell: Cell, best: float | None = None) -> Score:
    low, high = ends(cell.mean, cell.metric) or (None, None)
    return Score(cell.metric, cell.mean.value, low, high, seeds(cell), cell.merit == best)


def leaderboard(results: Results) -> list[Json]:
    """A row for each cell, the best of each task and label budget first."""
    tasks = list(results.params.tasks)
    ordered = sorted(
        results.cells, key=lambda c: (tasks.index(c.task), budget_order(c.label_budget), -c.merit)
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
        for cell in ordered
    ]


def confound_rows(results: Results) -> list[dict[str, str]]:
    """A row for each pair and axis, with the confounds of all its contrasts. One that only some of
    them have says in how many."""
    members: dict[tuple[str, str, str], list[list[str]]] = defaultdict(list)
    for contrast in results.contrasts:
        pair = _pair(contrast.a.group, contrast.b.group, contrast.level_a, contrast.level_b)
        members[contrast.axis, *pair].append(contrast.confounds)
    return [
        {"axis": axis, "first": one, "second": other, "also differs": _also(lists)}
        for (axis, one, other), lists in members.items()
    ]


def _pair(one: str, other: str, level: str, other_level: str) -> tuple[str, str]:
    """The runs; of one run the two levels, alike for all runs."""
    return (one, other) if one != other else (level, other_level)


def _also(lists: list[list[str]]) -> str:
    """Each confound once: with its amounts if they are the same everywhere, and else without."""
    texts: dict[str, list[str]] = defaultdict(list)
    for confounds in lists:
        for text in confounds:
            name, _, amounts = text.partition(": ")
            texts[name].append(amounts)
    found = []
    for name, amounts in texts.items():
        same = f": {amounts[0]}" if len(set(amounts)) == 1 and amounts[0] else ""
        some = f" (in {len(amounts)} of {len(lists)})" if len(amounts) < len(lists) else ""
        found.append(f"{name}{same}{some}")
    return "; ".join(found) or "nothing that is counted"


def run_rows(results: Results) -> list[dict[str, str]]:
    """The settings of each group, from params.yaml; nothing here depends on the machine."""
    return [
        {
            "run": group.name,
            "architecture": group.architecture,
            "objective": group.objective if group.pretrained else "from scratch",
            "training set": group.corpus,
            "model": _settings(group.entry.model),
            "parameters": _sizes(results, group),
            "pretraining seeds": str(len(group.runs)),
        }
        for group in results.groups
    ]


def _sizes(results: Results, group: Group) -> str:
    """The parameters of the checkpoint and, where tasks use a part of it alone, those of the part
    (with the largest of the tasks' heads)."""
    parts: dict[str, dict[str, int]] = {}
    for trial in results.trials_of[group.runs[0]]:
        if trial.used_architecture != group.architecture:
            largest = parts.setdefault(trial.used_architecture, {})
            largest[trial.task] = max(largest.get(trial.task, 0), trial.num_params)
    used = [
        f"; its {part} on {', '.join(sizes)}: {compact(max(sizes.values()))}"
        for part, sizes in parts.items()
    ]
    return compact(group.num_params) + "".join(used)


def task_rows(results: Results) -> list[dict[str, str]]:
    """The size of each task. The duplicates are rows that were removed because validation or test
    has the same input; where rows are left that have one text of a pair in common with a row of
    these, they are counted."""
    shared = {key: task.get("share_a_text", {}) for key, task in results.tasks.items()}
    counted = any(any(numbers.values()) for numbers in shared.values())
    return [
        {
            "task": key,
            "kind": task["kind"],
            **{split: f"{number:,}" for split, number in task["num_examples"].items()},
            "classes": str(len(task["labels"])) if task["labels"] else DASH,
            "duplicates removed": ", ".join(
                f"{split} {number:,}" for split, number in task["duplicates_removed"].items()
            ),
        }
        | (
            {
                "rows that share a text": ", ".join(
                    f"{split} {number:,}" for split, number in shared[key].items()
                )
            }
            if counted
            else {}
        )
        for key, task in results.tasks.items()
    ]


def _settings(component: Settings) -> str:
    return ", ".join(f"{key}={value}" for key, value in component.items() if key != "name")
