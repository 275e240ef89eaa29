"""Compares numbers and verdicts on a page with the committed tables of studies.

A comment, which readers do not see, says where the numbers of a sentence or a table come from:

    <!-- table: STUDY METHOD LABELS -->              above a table of means, a column for each task;
                                                     the head ``task, method`` overrides METHOD
    sentence <!-- contrast: STUDY AXIS TASK METHOD LABELS RUN_A RUN_B -->
    sentence <!-- mean: STUDY TASK METHOD LABELS RUN -->
    sentence <!-- count: STUDY VERDICT -->           number of contrasts; `contrasts` counts all
    sentence <!-- value: FILE; COLUMN + ...; NAME=CELL; ...; AGGREGATE; ...; UNIT -->
                                                     all numbers of the sentence: `tables.Value`
    sentence <!-- measured once -->                  in no committed table; the section has to say
                                                     so. Likewise `earlier state`, `prediction`

A claim begins after the comment before it, or with its paragraph or row. A mark above a table holds
for the table. LABELS may be a list (``200,1000``): then each cell of a table has several means.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from stages.evaluation.metrics import cut, scale_of
from stages.findings.verdicts import Verdict
from stages.reporting.words.names import ABOUT_CHECKPOINTS, OF_CHECKPOINTS
from tests.docs.pages import FENCE, ROOT
from tests.docs.tables import Value, is_written, numbers

MARKS = ("measured once", "earlier state", "prediction")
TABLE = re.compile(r"<!-- table: (.*?) -->\n\n?((?:\|.*\n)+)")
MARKED_TABLE = re.compile(rf"<!-- (?:{'|'.join(MARKS)}) -->\n\n?((?:\|.*\n)+)")
CLAIM = re.compile(r"<!-- (contrast|mean|count|value): (.*?) -->")
MARK = re.compile(rf"<!-- ({'|'.join(MARKS)}) -->")
KNOWN = re.compile(rf"<!-- (?:(?:table|contrast|mean|count|value): .*?|{'|'.join(MARKS)}) -->")
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=- |\d+\. |\|)")
DECIMAL = re.compile(r"(?<![\d.])[+\N{MINUS SIGN}-]?\d+\.\d+(?![\d.]*\d)")
MEASURED = re.compile(rf"{DECIMAL.pattern}|\d+(?= ?(?:points|nats|minutes|%(?! interval)))")
INTERVAL = re.compile(r"(-?\d+\.\d+) to (-?\d+\.\d+)")
HIGHER, LOWER = r"\b(above|ahead|higher|gains?|leads?)\b", r"\b(below|behind|lower|loses?)\b"
VERDICTS = [
    *(verdict.value for verdict in Verdict if verdict is not Verdict.NO_INTERVAL),
    *(verdict.value + OF_CHECKPOINTS for verdict in ABOUT_CHECKPOINTS),
]


@dataclass(frozen=True)
class Study:
    """The committed tables of a study."""

    contrasts: list[dict[str, str]]
    metrics: dict[str, Any]  # task -> run -> method -> labels -> numbers
    metric_of: dict[str, str]

    @classmethod
    @cache
    def load(cls, name: str) -> "Study":
        folder = _folder(name)
        with (folder / "contrasts.csv").open(encoding="utf-8", newline="") as file:
            contrasts = list(csv.DictReader(file))
        with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
            metric_of = {row["task"]: row["metric"] for row in csv.DictReader(file)}
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        return cls(contrasts, metrics, metric_of)

    def shown(self, task: str, value: float) -> str:
        return scale_of(self.metric_of[task]).shown(value)

    def mean(self, task: str, method: str, labels: str, run: str) -> str:
        methods = self.metrics[task][run]
        numbers_of_cell = (methods.get(method) or methods["classical"])[labels]
        interval = ""
        if "low" in numbers_of_cell:
            ends = cut(numbers_of_cell["low"], numbers_of_cell["high"], self.metric_of[task])
            interval = f" ({' to '.join(self.shown(task, end) for end in ends)})"
        return self.shown(task, numbers_of_cell["mean"]) + interval


def mean(study: str, task: str, method: str, labels: str, run: str) -> str:
    """Returns ``55.4 (53.1 to 57.6)``, or ``55.4`` without an interval."""
    return Study.load(study).mean(task, method, labels, run)


def _folder(study: str) -> Path:
    return ROOT / ("reports" if study == "default" else f"benchmarks/studies/{study}")


def mistakes(text: str) -> Iterator[str]:
    """Yields the claims of a page that differ from the tables."""
    unknown = re.findall(r"<!-- (?!generated: |end ).*?-->", KNOWN.sub("", text))
    yield from (f"no kind of claim: {comment}" for comment in unknown)
    for about, table in TABLE.findall(text):
        study, method, labels = about.split()
        yield from _wrong_cells(study, method, labels, table)
    for section in _sections(text):
        for paragraph in PARAGRAPH.split(TABLE.sub("", section)):
            at = 0
            for claim in CLAIM.finditer(paragraph):
                sentence = " ".join(MARK.split(paragraph[at : claim.start()])[-1].split())
                yield from _wrong(claim[1], claim[2], sentence)
                at = claim.end()
        visible = re.sub(r"<!--.*?-->", "", section).lower()
        for mark in set(MARK.findall(section)):
            if mark not in " ".join(visible.split()):
                yield f"a section is marked '{mark}' and does not say so: {section[:60]}"


def loose(text: str) -> Iterator[str]:
    """Yields paragraphs and rows with a measured number that has neither a claim nor a mark."""
    bare = re.sub(r"`[^`\n]*`", "", MARKED_TABLE.sub("", TABLE.sub("", FENCE.sub("", text))))
    for paragraph in PARAGRAPH.split(bare):
        rest = " ".join(KNOWN.split(paragraph)[-1].split())
        if unclaimed := [number[0] for number in MEASURED.finditer(rest)]:
            yield f"{', '.join(unclaimed)} in no claim: {rest}"


def section(text: str, heading: str) -> str:
    """Returns the text under a heading of a page."""
    (under,) = (part for part in _sections(text) if part.startswith(f"## {heading}\n"))
    return under


def _sections(text: str) -> list[str]:
    return re.split(r"\n(?=##+ )", text)


def _wrong_cells(study: str, method: str, labels: str, table: str) -> Iterator[str]:
    """Yields cells that differ from the study's means, and columns whose bold cell is not the
    highest."""
    cells = [[cell.strip() for cell in row.strip()[1:-1].split("|")] for row in table.splitlines()]
    heads = [head.split(", ") for head in cells[0][1:]]
    for names, *means_of_row in cells[2:]:
        runs = re.findall(r"\w+", names.rpartition(":")[2])
        runs *= len(heads) if len(runs) == 1 else 1
        for (task, *own), run, cell in zip(heads, runs, means_of_row, strict=True):
            if not cell:
                continue
            short = "," in labels or "(" not in cell
            parts = [mean(study, task, (own or [method])[0], n, run) for n in labels.split(",")]
            wanted = ", ".join(part.partition(" ")[0] if short else part for part in parts)
            if cell.replace("*", "") != wanted:
                yield f"{study}: {run} on {task} has {wanted}, not {cell}"
    for head, *column in list(zip(*cells, strict=True))[1:]:
        means = {cell: float(numbers(cell.replace("*", ""))[0]) for cell in column[1:] if cell}
        if "**" in table and any(
            ("**" in cell) != (means[cell] == max(means.values())) for cell in means
        ):
            yield f"{study}: the highest of {head} is bold, and no other: {[*means]}"


def _wrong(kind: str, about: str, sentence: str) -> Iterator[str]:
    """Yields what is wrong with a claim."""
    if kind == "value":
        yield from _wrong_values(about, sentence)
        return
    name, *key = about.split(maxsplit=1 if kind == "count" else -1)
    if kind == "count":
        (verdict,) = key
        number = sum(verdict in ("contrasts", row["verdict"]) for row in Study.load(name).contrasts)
        if str(number) not in re.findall(r"\d+", sentence):
            yield f"{name}: {number} are {verdict}: {sentence}"
        return
    if kind == "mean":
        task, method, labels, run = key
        allowed = DECIMAL.findall(mean(name, task, method, labels, run))
    else:
        row = _contrast(Study.load(name), *key)
        allowed, intervals = _shown(Study.load(name), row)
        yield from _wrong_words(row, sentence)
        if wrong := set(INTERVAL.findall(sentence.replace("\N{MINUS SIGN}", "-"))) - intervals:
            yield f"{about}: {wrong} is not its interval: {sentence}"
    stated = [n.replace("\N{MINUS SIGN}", "-").lstrip("+") for n in DECIMAL.findall(sentence)]
    wrong_numbers = [number for number in stated if number not in allowed]
    if wrong_numbers or not stated:
        yield f"{about}: {wrong_numbers or 'no number'}, where the table has {allowed}: {sentence}"


def _wrong_values(about: str, sentence: str) -> Iterator[str]:
    """Yields numbers that are none of the values, aggregates that are missing, and verdicts that
    are not in the table."""
    value = Value.read(about)
    stated = numbers(sentence)
    wrong = [n for n in stated if not any(is_written(n, number) for number in value.numbers)]
    if wrong or not (stated or value.numbers == [0]):
        yield f"{about}: {wrong or 'no number'}, where the table has {value.numbers}: {sentence}"
    for number in value.aggregated:
        in_words = not number and re.search(r"\bnone\b|\bno\b", sentence, re.I)
        if not in_words and not any(is_written(n, number) for n in stated):
            yield f"{about}: {number} is not given: {sentence}"
    if _verdicts(sentence) - _verdicts(" ".join([about, *value.cells])):
        yield f"{about}: the verdict is another: {sentence}"


def _contrast(study: Study, *key: str) -> dict[str, str]:
    columns = ("axis", "task", "method", "label_budget", "run_a", "run_b")
    wanted = dict(zip(columns, key, strict=True))
    wanted["axis"] = wanted["axis"].replace("_", " ")
    wanted["method"] = wanted["method"].replace("_v._", " v. ")  # of the axis "method"
    rows = [row for row in study.contrasts if wanted.items() <= row.items()]
    assert len(rows) == 1, f"{key}: {len(rows)} contrasts"
    return rows[0]


def _shown(study: Study, row: dict[str, str]) -> tuple[list[str], set[tuple[str, str]]]:
    """Returns the numbers of a contrast and its interval, each for both orders of the runs."""

    def shown(column: str, sign: int) -> str:
        return study.shown(row["task"], sign * float(row[column]))

    columns = [c for c in ("effect", "low", "high", "mean_a", "mean_b") if row[c]]
    intervals = {(shown("low", 1), shown("high", 1)), (shown("high", -1), shown("low", -1))}
    return [shown(column, sign) for column in columns for sign in (1, -1)], intervals


def _verdicts(text: str) -> set[str]:
    """Returns the verdicts that a text names, without any that is part of a longer one."""
    named = [verdict for verdict in VERDICTS if verdict in text]
    return {verdict for verdict in named if not any(verdict in x != verdict for x in named)}


def _wrong_words(row: dict[str, str], sentence: str) -> Iterator[str]:
    """Yields a verdict that is not the contrast's, and a direction that is not its effect's."""
    if _verdicts(sentence) - {row["verdict"]}:
        yield f"the verdict is '{row['verdict']}': {sentence}"
    sign = float(row["effect"])
    if (re.search(HIGHER, sentence) and sign < 0) or (re.search(LOWER, sentence) and sign > 0):
        yield f"the effect is {row['effect']}: {sentence}"
