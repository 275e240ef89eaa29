"""Print the study's comparison as tables in the terminal."""

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stages.commands._console import console
from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.components import Settings
from stages.core.params import PATH, read_yaml
from stages.core.process import exit_on_mistake
from stages.evaluation.metrics import POINTS, merit, scale_of
from stages.evaluation.records import CLASSICAL
from stages.planning.last_report import reported_study
from stages.reporting.comparison.verdicts import ONE_SEED, SIGNIFICANT
from stages.reporting.number_format import DASH, price
from stages.reporting.score_format import cut, shown

PIPED_WIDTH = 200
TABLES = "trials", "contrasts", "answer", "estimates"  # of the report, that are read here


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m stages.commands.summary", description=__doc__)
    parser.parse_args()
    output = console(piped_width=PIPED_WIDTH)
    exit_on_mistake(lambda: show(output))


def show(console: Console) -> None:
    """Raises ValueError if there is no report."""
    for name in ("metrics.json", *(f"{table}.csv" for table in TABLES), "comparison.md"):
        if not (paths.REPORTS / name).exists():
            raise ValueError(f"{paths.REPORTS / name}: no such file; `dvc repro` writes the report")
    metrics = {row["task"]: row["metric"] for row in _rows("trials.csv")}
    console.print(_title())
    out = screened_out()
    for task, runs in read_json(paths.REPORTS / "metrics.json").items():
        console.print(scores(task, runs, metrics[task]))
        if task in out:
            console.print(
                f"Screened out on {task} by an estimate, so not fine-tuned: "
                f"{', '.join(out[task])}. Estimates: {paths.REPORTS / 'estimates.csv'}"
            )
    contrasts = _rows("contrasts.csv")
    console.print(effects(contrasts, metrics))
    if any(contrast["verdict"] == ONE_SEED for contrast in contrasts):
        console.print(
            "Contrasts of a run with one pretraining seed have no verdict: another seed might give "
            "another result."
        )
    for row in _answers():
        console.print(answer(row))
    console.print(
        f"\nThe page: {paths.REPORTS / 'index.html'}"
        f"\nThe same in Markdown: {paths.REPORTS / 'comparison.md'}"
        "\nEvery run's curves, in MLflow: make ui"
    )


def _title() -> str:
    """The study of the report, and whether params.yaml declares another by now."""
    of = reported_study()
    declared = str(read_yaml(PATH).get("study"))
    other = f"; params.yaml is {declared} and has no report yet" if declared != of else ""
    return f"The study {of}{other}\n"


def _rows(name: str) -> list[dict[str, str]]:
    with (paths.REPORTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def screened_out() -> dict[str, list[str]]:
    """The runs of each task that an estimate kept from being fine-tuned, if there are any."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in _rows("estimates.csv"):
        if row["screened_out"] == "1":
            found[row["task"]][row["run"]] = None
    return {task: [*runs] for task, runs in found.items()}


def _answers() -> list[dict[str, str]]:
    """Of the largest label budget, which comes first."""
    rows = _rows("answer.csv")
    return [row for row in rows if row["label_budget"] == rows[0]["label_budget"]]


def answer(row: Mapping[str, str]) -> Text:
    """What to use for a task, what it is better than, what it takes, and how it is used."""
    text = Text(f"\n{row['task']}, {row['label_budget']} labels: use ", style="bold")
    text.append(f"{row['use']} {row['sure'].capitalize()}.", style="bold")
    costs = [
        cost
        for cost in _rows("costs.csv")
        if cost["run"] in row["members"].split()
        and all(cost[key] == row[key] for key in ("task", "method", "label_budget"))
    ]
    lines = [row["against"], row["otherwise"]]
    if costs:
        lines.append(
            price(
                wall_time_s=fmean(float(cost["wall_time_s"]) for cost in costs),
                peak_memory_bytes=max(float(cost["peak_memory_bytes"]) for cost in costs),
                texts_per_s=[float(c["texts_per_s"]) for c in costs if c["texts_per_s"]],
                hardware=costs[0]["hardware"],
            )
        )
        chosen = (
            f"--run {row['run']} --task {row['task']} --method {row['method']} "
            f"--label-budget {row['label_budget']} --seed {costs[0]['finetune_seed']}"
        )
        lines.append(f"Use it: python -m stages.commands.predict {chosen} FILE")
    for line in lines:
        text.append(f"\n  {line}", style="not bold")
    return text


def scores(task: str, runs: Settings, metric: str) -> Table:
    """A task's means with their intervals; a baseline in every column of its budget."""
    methods = [m for m in dict.fromkeys(m for run in runs.values() for m in run) if m != CLASSICAL]
    budgets = list(dict.fromkeys(n for run in runs.values() for cell in run.values() for n in cell))
    columns = [(method, n) for n in budgets for method in methods]
    found = {
        name: [(run.get(method) or run.get(CLASSICAL, {})).get(n) for method, n in columns]
        for name, run in runs.items()
    }
    top = [
        max((merit(metric, cell["mean"]) for cell in column if cell), default=None)
        for column in zip(*found.values(), strict=True)
    ]
    table = Table(title=task, title_justify="left", title_style="bold")
    table.add_column("run")
    for method, budget in columns:
        table.add_column(f"{method}, {budget} labels", justify="right", no_wrap=True)
    for name, cells in found.items():
        texts = [_score(cell, best, metric) for cell, best in zip(cells, top, strict=True)]
        table.add_row(name, *texts, style="dim" if CLASSICAL in runs[name] else "")
    return table


def _score(cell: Mapping[str, float] | None, best: float | None, metric: str) -> Text:
    if cell is None:
        return Text(DASH)
    is_best = merit(metric, cell["mean"]) == best
    text = Text(shown(cell["mean"], metric), style="bold" if is_best else "")
    if "low" in cell:
        low, high = (shown(end, metric) for end in cut(cell["low"], cell["high"], metric))
        text.append(f" ({low} to {high})", style="not bold dim")
    return text


def effects(contrasts: list[dict[str, str]], metrics: Mapping[str, str]) -> Table:
    """For each axis, how many of its contrasts are significant, before and after Holm correction
    over all contrasts of the study. The largest effect is that of a share, if there is one: effects
    in other units are not comparable with it."""

    def magnitude(contrast: Mapping[str, str]) -> tuple[bool, float]:
        is_share = scale_of(metrics[contrast["task"]]) == POINTS
        return is_share, abs(float(contrast["effect"]))

    by_axis: dict[str, list[dict[str, str]]] = defaultdict(list)
    for contrast in contrasts:
        by_axis[contrast["axis"]].append(contrast)
    table = Table(title="What differs", title_justify="left", title_style="bold")
    table.add_column("axis")
    for column in ("contrasts", "significant", "after Holm correction"):
        table.add_column(column, justify="right")
    table.add_column("largest effect of those")
    for axis, members in by_axis.items():
        alone = [contrast for contrast in members if contrast["resolved"] == "yes"]
        corrected = [contrast for contrast in alone if contrast["verdict"].startswith(SIGNIFICANT)]
        largest = max(corrected or alone, key=magnitude, default=None)
        counts = [str(len(found)) for found in (members, alone, corrected)]
        shown_effect = _effect(largest, metrics) if largest else "none significant"
        table.add_row(axis, *counts, shown_effect)
    return table


def _effect(contrast: Mapping[str, str], metrics: Mapping[str, str]) -> str:
    metric = metrics[contrast["task"]]
    bounds = cut(float(contrast["low"]), float(contrast["high"]), metric, difference=True)
    ends = float(contrast["effect"]), *bounds
    effect, low, high = (scale_of(metric).signed(end) for end in ends)
    runs = contrast["run_a"], contrast["run_b"]
    sides = runs if runs[0] != runs[1] else (contrast["level_a"], contrast["level_b"])
    return f"{contrast['task']}: {sides[0]} against {sides[1]} {effect} ({low} to {high})"


if __name__ == "__main__":
    main()
