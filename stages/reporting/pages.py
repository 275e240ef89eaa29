"""The page, the Markdown report and the answer for the terminal, rendered from the same facts."""

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from html import unescape as html_text
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console

from stages.core import paths
from stages.core.artifacts import Json
from stages.core.params import TaskEntry
from stages.evaluation.metrics import scale_of
from stages.findings.facts import Answer, LeadCertainty
from stages.reporting import formats, tables
from stages.reporting.pictures import comparison, cost, curves, effects
from stages.reporting.svg import Picture
from stages.reporting.table import Table
from stages.reporting.view import View
from stages.sources._columns import names_in_data
from stages.tasks._task import TASKS

WIDTH, LINES = 80, 25  # of the answer in a terminal
MAX_CLASSES = 12  # of a confusion matrix
PICTURES = ("comparison", "effects", "cost", "label_budgets", "losses", "epochs")
FORMATS = (
    *("compact", "difference_interval", "interval", "memory", "metric_name", "p_value", "percent"),
    *("seconds", "shown", "signed", "thousands", "unit"),
)


def pictures(view: View) -> dict[str, Picture]:
    """Returns all pictures of the report by name."""
    every = (
        comparison.picture(view),
        effects.picture(view),
        cost.picture(view),
        curves.label_budgets(view),
        curves.losses(view),
        curves.epochs(view),
    )
    return {picture.name: picture for picture in every if picture}


def all_tables(view: View, *, times: bool) -> dict[str, Table]:
    """Returns all tables of the report by name. ``times`` adds measured times."""
    every = [
        *(tables.scores(view, budget, times=times) for budget in view.budgets),
        tables.effects(view),
        tables.interactions(view),
        tables.leads(view),
        tables.alternatives(view),
        tables.contrasts(view),
        tables.answered(view),
        tables.confused(view),
        tables.estimates(view),
        *([tables.costs(view)] if times else []),
    ]
    return {table.name: table for table in every}


def html(view: View, drawn: Mapping[str, Picture]) -> str:
    """Returns reports/index.html."""
    environment = _environment(view, autoescape=True)
    return _rendered(
        environment,
        "page.html.jinja",
        view,
        tables=all_tables(view, times=True),
        pictures={name: drawn.get(name) for name in (*PICTURES, *drawn)},
    )


def markdown(view: View) -> str:
    """Returns reports/comparison.md, which has no measured time."""
    environment = _environment(view, autoescape=True)
    environment.finalize = _escaped
    text = _rendered(environment, "comparison.md.jinja", view, tables=all_tables(view, times=False))
    return re.sub(r"\n{3,}", "\n\n", text)


def terminal(view: View) -> str:
    """Returns reports/answer.txt: one table and three lines, at most ``LINES`` long."""
    environment = _environment(view, autoescape=False)

    def rendered(table: str) -> str:
        text = _rendered(environment, "answer.txt.jinja", view, table=table, reports=paths.REPORTS)
        return re.sub(r"\n{3,}", "\n\n", text)

    frame = len(rendered("").splitlines()) + 3  # with the table's head and the line of baselines
    most = max(3, LINES - frame - 2)
    table = tables.scores(view, view.budget, times=True, most=most, baselines=False)
    console = Console(width=WIDTH, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(table.terminal(WIDTH))
    return rendered("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _rendered(environment: Environment, name: str, view: View, **values: Any) -> str:
    results = view.results
    context = {
        "view": view,
        "results": results,
        "units": " or ".join(dict.fromkeys(map(formats.unit, view.metrics.values()))),
        "confused": [error for answer in view.answers for error in answer.confused],
        "errors": _errors(view),
        "matrices": _matrices(view),
        "use_it": _command(view),
        "other_budgets": {b: f"scores_{b}" for b in view.budgets[:-1]},
        "machines": " and ".join(sorted(_machines(view))),
        "csvs": ("scores", "effects", "contrasts", "trials", "costs"),
    }
    return environment.get_template(name).render(context | values)


def _machines(view: View) -> set[str]:
    """Returns the hardware that costs were measured on."""
    pretraining, finetuning = view.results.pretraining_costs, view.results.finetuning_costs
    costs = (cost.hardware for cost in finetuning.values())
    return {*costs, *(cost["hardware"] for cost in pretraining.values())}


def _environment(view: View, *, autoescape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        **{name: getattr(formats, name) for name in FORMATS},
        "better": lambda metric: -1 if scale_of(metric).lower_is_better else 1,
        "by_certainty": _by_certainty,
        "is_top": lambda answers: all(a.recommended == a.best_on_test for a in answers),
        "label": lambda name: view.labels[name],
        "oneline": _oneline,
        "unescaped": lambda text: Markup(html_text(text)),  # noqa: S704
        "turned": effects.turned,
        "wrapped": lambda text, indent="": textwrap.fill(
            text, WIDTH - 1, subsequent_indent=indent, break_on_hyphens=False
        ),
    }
    environment.filters |= filters
    return environment


def _oneline(text: str) -> str:
    """Returns a macro's text without line breaks and doubled blanks."""
    joined = re.sub(r"\s+([,;:.])(?=\s|$)", r"\1", " ".join(text.split()))
    return Markup(joined) if isinstance(text, Markup) else joined


def _escaped(value: object) -> object:
    """Returns a value that is put into Markdown, with its special letters escaped."""
    if isinstance(value, Markup):
        return value
    return Markup(re.sub(r"([\\*_`|<\[\]])", r"\\\1", str(value)))  # noqa: S704


def _by_certainty(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    grouped: dict[str, list[Answer]] = {certainty.name: [] for certainty in LeadCertainty}
    for answer in answers:
        grouped[answer.certainty.name].append(answer)
    return grouped


def _command(view: View) -> str:
    """Returns the command that predicts new rows with the recommended choice of most tasks, or an
    empty text if no weights are kept. The task is named if the file would fit another one, too."""
    params = view.results.params
    keeps = params.finetune.keep_weights != "none"
    for answer in (answer for answers in view.by_recommended for answer in answers):
        if (answer.recommended.is_baseline or keeps) and not answer.recommended.is_external:
            others = (
                columns_read(params.tasks[name]) for name in view.tasks if name != answer.task
            )
            read = columns_read(params.tasks[answer.task])
            task = f" TASK={answer.task}" if any(other <= read for other in others) else ""
            return f"make predict DATA=new.csv{task}"
    return ""


def columns_read(task: TaskEntry) -> set[str]:
    """Returns the columns of the data that are inputs of a task."""
    names = (names_in_data(task.source, key)[0] for key in TASKS[str(task.task["name"])].inputs)
    return {one for name in names for one in ([name] if isinstance(name, str) else name)}


def _errors(view: View) -> list[Json]:
    """Returns examples of rows that the recommended choice of their task gets wrong."""
    errors = []
    for answer in view.answers:
        for example in view.results.examples.get(answer.task, ()):
            for vote in example["predictions"]:
                if answer.recommended.model in vote["models"] and not vote["right"]:
                    text = " / ".join(example["input"].values())
                    about = {"prediction": vote["prediction"], "answer": example["answer"]}
                    errors.append({"task": answer.task, "text": text} | about)
    return errors


def _matrices(view: View) -> list[Json]:
    """Returns the confusion matrix of the recommended choice of each task with few classes."""
    matrices = []
    for answer in view.answers:
        shares = {(c.answer, c.prediction): c.share for c in answer.confusion}
        classes = sorted({name for pair in shares for name in pair})
        if 1 < len(classes) <= MAX_CLASSES:
            about = {"task": answer.task, "name": view.name(answer.recommended)}
            matrices.append(about | {"classes": classes, "shares": shares})
    return matrices
