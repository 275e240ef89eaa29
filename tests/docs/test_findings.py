"""README and docs say of a study what its committed tables say."""

from pathlib import Path

import pytest

from stages.commands import summary
from stages.core import paths
from stages.evaluation.records import read_texts
from tests.docs.findings import TABLE, Study, loose, mistakes, section
from tests.docs.pages import ROOT, blocks, name, pages, text_of

README, RESULTS = PAGES = [ROOT / "README.md", ROOT / "docs/results.md"]


@pytest.mark.parametrize("page", pages(), ids=name)
def test_pages_have_the_numbers_and_verdicts_of_the_tables(page: Path) -> None:
    assert not [*mistakes(text_of(page))]
    assert page not in PAGES or TABLE.search(text_of(page))


@pytest.mark.parametrize(
    "text",
    [section(text_of(README), "What the default study measured"), text_of(RESULTS)],
    ids=["README.md", "docs/results.md"],
)
def test_pages_have_every_number_as_measured_in_a_claim_or_marked(text: str) -> None:
    assert not [*loose(text)]


def test_readme_shows_the_answer_of_the_tables(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    (printed,) = (b.body for b in blocks(README) if b.body.startswith("$ make repro"))
    rows = read_texts(paths.REPORTS / "answer.csv")
    answers = [summary.answer(row, width=summary.PIPED_WIDTH).plain.strip() for row in rows]
    (shown,) = (answer for answer in answers if answer in printed)
    assert printed.strip() == f"$ make repro\n...\n{shown}\n..."


# A wrong claim is reported: each kind of claim, right and wrong

STUDY = Study.load("default")
CONTRAST = "default pretrained tag full 200 encoder_mlm encoder_scratch"
EFFECTS = [
    100 * float(row["effect"])
    for row in STUDY.contrasts
    if (row["task"], row["method"], row["run_a"], row["run_b"])
    == ("tag", "full", "encoder_mlm", "encoder_scratch")
    and row["label_budget"] == "200"
]
assert EFFECTS, "reports/ has another study than the default one: git checkout reports"
EFFECT = EFFECTS[0]
CELL = STUDY.mean("tag", "full", "200", "encoder_mlm")
NUMBER = len(STUDY.contrasts)
HEAD = "<!-- table: default full 200 -->\n| run | tag |\n|---|---|\n| `encoder_mlm` | "
ROWS = "<!-- value: reports/contrasts.csv; axis; count -->"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (f"It is {EFFECT:.1f} points <!-- contrast: {CONTRAST} -->.", (f"{EFFECT:.1f}", "99.9")),
        (f"It is {EFFECT:.1f} points <!-- contrast: {CONTRAST} -->.", (f"{EFFECT:.1f} ", "")),
        (f"It has {CELL} <!-- mean: default tag full 200 encoder_mlm -->.", (CELL, "12.3")),
        (f"{HEAD}**{CELL}** |\n", (CELL, "12.3 (1.0 to 2.0)")),
        (f"Of {NUMBER} contrasts <!-- count: default contrasts -->.", (str(NUMBER), "1")),
        (f"Of {NUMBER} contrasts {ROWS}.", (str(NUMBER), "1")),
        ("Measured once: 3.4 s <!-- measured once -->.", ("Measured once", "It takes")),
        ("It is 3.4 <!-- prediction -->, a prediction.", ("<!-- prediction", "<!-- pediction")),
    ],
)
def test_mistakes_are_seen_in_a_claim_of_each_kind(right: str, wrong: tuple[str, str]) -> None:
    assert not [*mistakes(right)]
    assert [*mistakes(right.replace(*wrong))]


@pytest.mark.parametrize("text", ["It gains 3.4 points.", "It is 3.4 <!-- prediction --> or 5.6."])
def test_loose_sees_a_number_without_a_claim_or_a_mark(text: str) -> None:
    assert [*loose(text)]
