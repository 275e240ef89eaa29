"""What README and docs say of a study is what its committed tables say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.findings import CLAIM, DECIMAL, SECTION, TABLE, Study, mistakes
from tests.docs.pages import ROOT, name, text_of

PAGES = [ROOT / "README.md", ROOT / "docs/results.md"]
KEY = "default pretrained tag full 200 encoder_mlm encoder_scratch"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_numbers_and_verdicts_are_those_of_the_tables(page: Path) -> None:
    assert not [*mistakes(text_of(page))]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_have_tables_of_a_study(page: Path) -> None:
    assert TABLE.search(text_of(page))


@pytest.mark.parametrize(("page", "fewest"), [("README.md", 4), ("docs/results.md", 15)])
def test_what_is_said_of_the_default_study_are_claims(page: str, fewest: int) -> None:
    sections = [text for study, text in SECTION.findall(text_of(ROOT / page)) if study == "default"]
    assert sum(len(CLAIM.findall(text)) for text in sections) >= fewest


@pytest.fixture
def contrast() -> dict[str, str]:
    axis, task, method, labels, a, b = KEY.split()[1:]
    wanted = dict(axis=axis, task=task, method=method, label_budget=labels, run_a=a, run_b=b)
    (row,) = (r for r in Study.load("default").contrasts if wanted.items() <= r.items())
    return row


def claims(row: dict[str, str], text: str) -> list[str]:
    points = {key: f"{100 * float(row[key]):.1f}" for key in ("effect", "low", "high")}
    return [
        *mistakes(text.format(**points, verdict=row["verdict"]) + f" <!-- contrast: {KEY} -->.")
    ]


def test_a_right_claim_passes(contrast: dict[str, str]) -> None:
    where = "above" if float(contrast["effect"]) > 0 else "below"
    assert not claims(contrast, "It is {effect} points " + where + " ({low} to {high}), {verdict}")


def wrong() -> Iterator[str]:
    yield "It is 99.9 points above"
    yield "It is {effect} points ({low} to 98.7)"
    yield "It is ahead"  # without a number
    yield "It is {effect}, " + "significant after Holm correction, not significant"


@pytest.mark.parametrize("text", [*wrong()])
def test_a_wrong_number_or_none_is_seen(text: str, contrast: dict[str, str]) -> None:
    assert claims(contrast, text)


def test_a_wrong_direction_is_seen(contrast: dict[str, str]) -> None:
    where = "below" if float(contrast["effect"]) > 0 else "above"
    assert claims(contrast, "It is {effect} points " + where)


def test_a_wrong_verdict_is_seen(contrast: dict[str, str]) -> None:
    other = "not significant"
    if contrast["verdict"] == other:
        other = "significant after Holm correction"
    assert claims(contrast, "It differs by {effect}, " + other)


def test_a_number_without_a_claim_is_seen() -> None:
    section = "<!-- findings: default -->\nIt gains 3.4 points.\n\n- Or 200 labels.\n<!-- end -->"
    assert [DECIMAL.findall(each) for each in mistakes(section)] == [["3.4"]]


def test_a_wrong_cell_of_a_table_is_seen() -> None:
    study = Study.load("default")
    cell = study.mean("tag", "full", "200", "encoder_mlm")
    table = "<!-- table: default full 200 -->\n| run | tag |\n|---|---|\n| `encoder_mlm` | {} |\n"
    assert not [*mistakes(table.format(f"**{cell}**"))]
    assert [*mistakes(table.format("12.3 (1.0 to 2.0)"))]


def test_a_wrong_count_is_seen() -> None:
    number = len(Study.load("default").contrasts)
    text = "Of {} contrasts <!-- count: default contrasts -->"
    assert not [*mistakes(text.format(number))]
    assert [*mistakes(text.format(number + 1))]
