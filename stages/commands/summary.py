"""Print the study's comparison as tables in the terminal."""

import re
from collections.abc import Mapping
from statistics import fmean
from textwrap import TextWrapper, fill

from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from stages.commands._console import console
from stages.commands._parser import parser_of
from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.components import Settings
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH, read_yaml
from stages.core.terminal_table import TableRow, print_table
from stages.evaluation.metrics import cut, merit
from stages.evaluation.records import CLASSICAL, read_texts
from stages.planning.last_report import reported_study
from stages.reporting.formats import DASH, shown, thousands
from stages.reporting.words.answer import predict_command, price
from stages.reporting.words.audit import OBJECTIONS

PIPED_WIDTH = 200
# The shown part of comparison.md begins with the first of these that the file has.
SHOWN_PARTS = ("What mattered", "What was not tried", "Believe it?")


def main() -> None:
    parser = parser_of("summary", __doc__)
    parser.parse_args()
    output = console(piped_width=PIPED_WIDTH)
    exit_on_mistake(lambda: show(output))


def show(console: Console) -> None:
    """Prints the scores and the answers of the report. Raises ValueError if there is no report."""
    for name in ("metrics.json", "trials.csv", "answer.csv", "costs.csv", "comparison.md"):
        if not (paths.REPORTS / name).exists():
            raise ValueError(f"{paths.REPORTS / name}: no such file; `dvc repro` writes the report")
    reported, declared = reported_study(), str(read_yaml(PATH).get("study"))
    other = f"; params.yaml is {declared} and has no report yet" if declared != reported else ""
    console.print(f"The study {reported}{other}\n")
    answers = read_texts(paths.REPORTS / "answer.csv")
    metrics = {row["task"]: row["metric"] for row in answers}
    for task, runs in read_json(paths.REPORTS / "metrics.json").items():
        show_scores(console, task, runs, metrics[task])
    with console.capture() as captured:
        console.print(mattered())
    unpadded = re.sub(" +$", "", captured.get(), flags=re.MULTILINE)  # a log is read and copied
    console.out(unpadded, end="", highlight=False)
    for row in answers:
        if row["label_budget"] == answers[0]["label_budget"]:  # the largest, which comes first
            console.print(answer(row, width=console.width), soft_wrap=True)
    console.print(
        f"\nThe page: {paths.REPORTS / 'index.html'}"
        f"\nThe same in Markdown: {paths.REPORTS / 'comparison.md'}"
        "\nEvery run's curves, in MLflow: make ui"
    )


def mattered() -> Markdown:
    """Returns the parts of comparison.md on what mattered and why to believe it. The line that
    lists the audit's objections is left out, since their details are only in the report."""
    text = (paths.REPORTS / "comparison.md").read_text(encoding="utf-8")
    begin = min(text.index(part) for part in SHOWN_PARTS if part in text)
    lines = text[begin : text.index("\n![")].splitlines()
    return Markdown("\n".join(line for line in lines if not line.startswith(f"- {OBJECTIONS}")))


def answer(row: Mapping[str, str], *, width: int) -> Text:
    """Returns a task's answer in lines of at most ``width`` characters: what to use, what it is
    better than, what it costs and how to use it. The command is one line of any length, which can
    be copied."""
    costs = [
        cost
        for cost in read_texts(paths.REPORTS / "costs.csv")
        if all(cost[key] == row[key] for key in ("run", "task", "method", "label_budget"))
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
    indented = TextWrapper(
        width,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    parts = [*map(indented.fill, filter(None, lines))]
    if not _is_external(row["run"]):
        method, seed = (row["method"], costs[0]["finetune_seed"]) if costs else (None, "")
        command = predict_command(row["run"], row["task"], row["label_budget"], method, seed)
        parts.append(f"  Use it: {command}")
    use = f"use {row['use']} {row['sure'].capitalize()}."
    first = f"{row['task']}, {thousands(row['label_budget'])} labels: {use}"
    text = Text(f"\n{fill(first, width, break_long_words=False)}", style="bold")
    text.append("\n".join(["", *parts]), style="not bold")
    return text


def _is_external(name: str) -> bool:
    """Whether a baseline is an external system, which the study cannot run."""
    return any(
        (trial["run"], trial["method"], trial["num_tries"]) == (name, CLASSICAL, "0")
        for trial in read_texts(paths.REPORTS / "trials.csv")
    )


def show_scores(console: Console, task: str, runs: Settings, metric: str) -> None:
    """Prints a task's means with their intervals. A baseline has its mean in every column of its
    label budget."""
    methods = [m for m in dict.fromkeys(m for run in runs.values() for m in run) if m != CLASSICAL]
    budgets = list(dict.fromkeys(n for run in runs.values() for cell in run.values() for n in cell))
    columns = [(method, n) for n in budgets for method in methods]
    cells_of = {
        name: [(run.get(method) or run.get(CLASSICAL, {})).get(n) for method, n in columns]
        for name, run in runs.items()
    }
    top = [
        max((merit(metric, cell["mean"]) for cell in column if cell), default=None)
        for column in zip(*cells_of.values(), strict=True)
    ]
    numbers = [f"{method}\n{thousands(budget)} labels" for method, budget in columns]
    rows = list[TableRow]()
    for name, cells in cells_of.items():
        texts = [_score(cell, best, metric) for cell, best in zip(cells, top, strict=True)]
        rows.append(TableRow([name], texts, "dim" if CLASSICAL in runs[name] else ""))
    print_table(console, task, ["run"], numbers, rows)


def _score(cell: Mapping[str, float] | None, best: float | None, metric: str) -> Text:
    if cell is None:
        return Text(DASH)
    is_best = merit(metric, cell["mean"]) == best
    text = Text(shown(cell["mean"], metric), style="bold" if is_best else "")
    if "low" in cell:
        low, high = (shown(end, metric) for end in cut(cell["low"], cell["high"], metric))
        text.append(f" ({low} to {high})", style="not bold dim")
    return text


if __name__ == "__main__":
    main()
