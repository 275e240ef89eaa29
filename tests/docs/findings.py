"""Numbers and verdicts on a page that come from a study, compared with committed tables.

A page marks where such numbers stand by comments, which readers do not see:

    <!-- table: STUDY METHOD LABELS -->              above a table of means, a column for each task;
                                                     ``task, method`` as its head overrides METHOD
    sentence <!-- contrast: STUDY AXIS TASK METHOD LABELS RUN_A RUN_B -->
    sentence <!-- mean: STUDY TASK METHOD LABELS RUN -->
    sentence <!-- count: STUDY VERDICT -->           of contrasts; `contrasts` for all
    sentence <!-- value: FILE; COLUMN + ...; NAME=CELL; ...; AGGREGATE; ...; UNIT -->
                                                     all numbers of the sentence: `tables.Value`
    sentence <!-- measured once -->                  in no committed table; the section has to say
                                                     so. Likewise `earlier state`, `prediction`

A claim reaches from the comment before it, or from the beginning of its paragraph or row. A mark
above a table holds for the table. LABELS may be a list (``200,1000``): then a cell of a table has a
mean for each.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from stages.evaluation.metrics import scale_of
from stages.reporting.comparison import verdicts
from stages.reporting.score_format import cut
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
    text for name, text in vars(verdicts).items() if name.isupper() and isinstance(text, str)
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
        found = methods.get(method) or methods["classical"]
        numbers_of = found[labels]
        interval = ""
        if "low" in numbers_of:
            ends = cut(numbers_of["low"], numbers_of["high"], self.metric_of[task])
            interval = f" ({' to '.join(self.shown(task, end) for end in ends)})"
        return self.shown(task, numbers_of["mean"]) + interval


def mean(study: str, task: str, method: str, labels: str, run: str) -> str:
    """``55.4 (53.1 to 57.6)``, or ``55.4`` without an interval."""
    return Study.load(study).mean(task, method, labels, run)


def _folder(study: str) -> Path:
    return ROOT / ("reports" if study == "default" else f"benchmarks/studies/{study}")


def mistakes(text: str) -> Iterator[str]:
    """What a page says of a study and its tables do not."""
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
        said = re.sub(r"<!--.*?-->", "", section).lower()
        for mark in set(MARK.findall(section)):
            if mark not in " ".join(said.split()):
                yield f"a section is marked '{mark}' and does not say so: {section[:60]}"


def loose(text: str) -> Iterator[str]:
    """Paragraphs and rows with a number as measured, without a claim or a mark of it."""
    bare = re.sub(r"`[^`\n]*`", "", MARKED_TABLE.sub("", TABLE.sub("", FENCE.sub("", text))))
    for paragraph in PARAGRAPH.split(bare):
        rest = " ".join(KNOWN.split(paragraph)[-1].split())
        if found := [number[0] for number in MEASURED.finditer(rest)]:
            yield f"{', '.join(found)} in no claim: {rest}"


def section(text: str, heading: str) -> str:
    """What stands under a heading of a page."""
    (found,) = (each for each in _sections(text) if each.startswith(f"## {heading}\n"))
    return found


def _sections(text: str) -> list[str]:
    return re.split(r"\n(?=##+ )", text)


def _wrong_cells(study: str, method: str, labels: str, table: str) -> Iterator[str]:
    """Cells that differ from the study's means, and bold ones that are not the highest."""
    cells = [[cell.strip() for cell in row.strip()[1:-1].split("|")] for row in table.splitlines()]
    heads = [head.split(", ") for head in cells[0][1:]]
    for names, *given in cells[2:]:
        found = re.findall(r"\w+", names.rpartition(":")[2])
        runs = found * len(heads) if len(found) == 1 else found
        for (task, *own), run, cell in zip(heads, runs, given, strict=True):
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
    """What is wrong with a claim."""
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
    found = [n.replace("\N{MINUS SIGN}", "-").lstrip("+") for n in DECIMAL.findall(sentence)]
    given = [number for number in found if number not in allowed]
    if given or not found:
        yield f"{about}: {given or 'no number'}, where the table has {allowed}: {sentence}"


def _wrong_values(about: str, sentence: str) -> Iterator[str]:
    """Numbers that are none of the values, values that are not given, and other verdicts."""
    value = Value.read(about)
    given = numbers(sentence)
    wrong = [n for n in given if not any(is_written(n, each) for each in value.numbers)]
    if wrong or not (given or value.numbers == [0]):
        yield f"{about}: {wrong or 'no number'}, where the table has {value.numbers}: {sentence}"
    for each in value.aggregated:
        none = not each and re.search(r"\bnone\b|\bno\b", sentence, re.I)
        if not none and not any(is_written(n, each) for n in given):
            yield f"{about}: {each} is not given: {sentence}"
    if _verdicts(sentence) - _verdicts(" ".join([about, *value.found])):
        yield f"{about}: the verdict is another: {sentence}"


def _contrast(study: Study, *key: str) -> dict[str, str]:
    columns = ("axis", "task", "method", "label_budget", "run_a", "run_b")
    wanted = dict(zip(columns, key, strict=True))
    wanted["axis"] = wanted["axis"].replace("_", " ")
    wanted["method"] = wanted["method"].replace("_v._", " v. ")  # of the axis "method"
    found = [row for row in study.contrasts if wanted.items() <= row.items()]
    assert len(found) == 1, f"{key}: {len(found)} contrasts"
    return found[0]


def _shown(study: Study, row: dict[str, str]) -> tuple[list[str], set[tuple[str, str]]]:
    """The numbers of a contrast, and its interval, from either side."""

    def of(column: str, sign: int) -> str:
        return study.shown(row["task"], sign * float(row[column]))

    columns = [c for c in ("effect", "low", "high", "mean_a", "mean_b") if row[c]]
    intervals = {(of("low", 1), of("high", 1)), (of("high", -1), of("low", -1))}
    return [of(column, sign) for column in columns for sign in (1, -1)], intervals


def _verdicts(text: str) -> set[str]:
    """The verdicts that a text names, without one that is part of another."""
    said = [verdict for verdict in VERDICTS if verdict in text]
    return {verdict for verdict in said if not any(verdict in x != verdict for x in said)}


def _wrong_words(row: dict[str, str], sentence: str) -> Iterator[str]:
    """A verdict that is not the contrast's, and a direction that is not that of its effect."""
    if _verdicts(sentence) - {row["verdict"]}:
        yield f"the verdict is '{row['verdict']}': {sentence}"
    sign = float(row["effect"])
    if (re.search(HIGHER, sentence) and sign < 0) or (re.search(LOWER, sentence) and sign > 0):
        yield f"the effect is {row['effect']}: {sentence}"
