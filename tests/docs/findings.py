"""Numbers and verdicts on a page that come from a study, compared with its committed tables.

A page marks where such numbers stand by comments, which readers do not see:

    <!-- findings: STUDY --> ... <!-- end -->        every number with a decimal point in between is
                                                     in a table or in a claim
    <!-- table: STUDY METHOD LABELS -->              above a table of means, a column for each task;
                                                     ``task, method`` as its head overrides METHOD
    sentence <!-- contrast: STUDY AXIS TASK METHOD LABELS RUN_A RUN_B -->
    sentence <!-- mean: STUDY TASK METHOD LABELS RUN -->
    sentence <!-- count: STUDY VERDICT -->           of contrasts; `contrasts` for all

A claim reaches from the comment before it, or from the beginning of its paragraph. LABELS may be a
list (``200,1000``): then a cell of a table has a mean for each.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from stages.evaluation.metrics import scale_of
from stages.reporting.comparison import verdicts
from tests.docs.pages import ROOT

SECTION = re.compile(r"<!-- findings: (\w+) -->(.*?)<!-- end -->", re.S)
TABLE = re.compile(r"<!-- table: (.*?) -->\n\n?((?:\|.*\n)+)")
CLAIM = re.compile(r"<!-- (contrast|mean|count): (.*?) -->")
DECIMAL = re.compile(r"[+\N{MINUS SIGN}-]?\d+\.\d+")
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
        folder = ROOT / ("reports" if name == "default" else f"benchmarks/studies/{name}")
        with (folder / "contrasts.csv").open(encoding="utf-8", newline="") as file:
            contrasts = list(csv.DictReader(file))
        with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
            metric_of = {row["task"]: row["metric"] for row in csv.DictReader(file)}
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        return cls(contrasts, metrics, metric_of)

    def shown(self, task: str, value: float) -> str:
        return scale_of(self.metric_of[task]).shown(value)

    def mean(self, task: str, method: str, labels: str, run: str) -> str:
        """``55.4 (53.1 to 57.6)``, or ``55.4`` without an interval."""
        methods = self.metrics[task][run]
        found = methods.get(method) or methods["classical"]
        numbers = found[labels]
        bounds = [self.shown(task, numbers[key]) for key in ("low", "high") if key in numbers]
        interval = f" ({' to '.join(bounds)})" if bounds else ""
        return self.shown(task, numbers["mean"]) + interval


def mistakes(text: str) -> Iterator[str]:
    """What a page says of a study and its tables do not."""
    for study, section in SECTION.findall(text):
        for paragraph in re.split(r"\n\s*\n|\n(?=- )", TABLE.sub("", section)):
            loose = DECIMAL.findall(CLAIM.split(paragraph)[-1])
            yield from (f"{study}: {number} is in no claim" for number in loose)
    for about, rows in TABLE.findall(text):
        study, method, labels = about.split()
        yield from _wrong_cells(study, method, labels, rows)
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", TABLE.sub("", text)):
        at = 0
        for claim in CLAIM.finditer(paragraph):
            yield from _wrong(claim[1], claim[2], " ".join(paragraph[at : claim.start()].split()))
            at = claim.end()


def _wrong_cells(study: str, method: str, labels: str, rows: str) -> Iterator[str]:
    """Cells that differ from the study's means."""
    table = Study.load(study)
    cells = [[cell.strip() for cell in row.strip()[1:-1].split("|")] for row in rows.splitlines()]
    heads = [head.split(", ") for head in cells[0][1:]]
    for names, *given in cells[2:]:
        found = re.findall(r"\w+", names.rpartition(":")[2])
        runs = found * len(heads) if len(found) == 1 else found
        for (task, *own), run, cell in zip(heads, runs, given, strict=True):
            if not cell:
                continue
            short = "," in labels or "(" not in cell
            parts = [table.mean(task, (own or [method])[0], n, run) for n in labels.split(",")]
            wanted = ", ".join(part.partition(" ")[0] if short else part for part in parts)
            if cell.replace("*", "") != wanted:
                yield f"{study}: {run} on {task} has {wanted}, not {cell}"


def _wrong(kind: str, about: str, sentence: str) -> Iterator[str]:
    """What is wrong with a claim."""
    name, *key = about.split(maxsplit=1 if kind == "count" else -1)
    study = Study.load(name)
    if kind == "count":
        (verdict,) = key
        number = sum(verdict in ("contrasts", row["verdict"]) for row in study.contrasts)
        if str(number) not in re.findall(r"\d+", sentence):
            yield f"{name}: {number} are {verdict}: {sentence}"
        return
    if kind == "mean":
        task, method, labels, run = key
        allowed = DECIMAL.findall(study.mean(task, method, labels, run))
    else:
        allowed, row = _contrast(study, *key)
        yield from _wrong_words(row, sentence)
    found = [n.replace("\N{MINUS SIGN}", "-").lstrip("+") for n in DECIMAL.findall(sentence)]
    given = [number for number in found if number not in allowed]
    if given or not found:
        yield f"{about}: {given or 'no number'}, where the table has {allowed}: {sentence}"


def _contrast(study: Study, *key: str) -> tuple[list[str], dict[str, str]]:
    columns = ("axis", "task", "method", "label_budget", "run_a", "run_b")
    wanted = dict(zip(columns, key, strict=True))
    wanted["axis"] = wanted["axis"].replace("_", " ")
    wanted["method"] = wanted["method"].replace("_v._", " v. ")  # of the axis "method"
    found = [row for row in study.contrasts if wanted.items() <= row.items()]
    assert len(found) == 1, f"{key}: {len(found)} contrasts"
    (row,) = found
    values = [float(row[c]) for c in ("effect", "low", "high", "mean_a", "mean_b") if row[c]]
    return [study.shown(row["task"], sign * v) for v in values for sign in (1, -1)], row


def _wrong_words(row: dict[str, str], sentence: str) -> Iterator[str]:
    """A verdict that is not the contrast's, and a direction that is not that of its effect."""
    said = [text for text in VERDICTS if text in sentence]
    if {text for text in said if not any(text in other != text for other in said)} - {
        row["verdict"]
    }:
        yield f"the verdict is '{row['verdict']}': {sentence}"
    sign = float(row["effect"])
    if (re.search(HIGHER, sentence) and sign < 0) or (re.search(LOWER, sentence) and sign > 0):
        yield f"the effect is {row['effect']}: {sentence}"
