"""What README and docs say of a study is what its committed tables say."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.commands import summary
from tests.docs.findings import TABLE, Study, loose, mistakes, section
from tests.docs.pages import ROOT, blocks, name, pages, text_of
from tests.docs.tables import Value, rows

README, RESULTS = PAGES = [ROOT / "README.md", ROOT / "docs/results.md"]
KEY = "default pretrained tag full 200 encoder_mlm encoder_scratch"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_numbers_and_verdicts_are_those_of_the_tables(page: Path) -> None:
    assert not [*mistakes(text_of(page))]


@pytest.mark.parametrize(
    "text",
    [section(text_of(README), "What the default study measured"), text_of(RESULTS)],
    ids=["README.md", "docs/results.md"],
)
def test_every_number_as_measured_is_in_a_claim_or_marked(text: str) -> None:
    assert not [*loose(text)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_have_tables_of_a_study(page: Path) -> None:
    assert TABLE.search(text_of(page))


def test_what_the_readme_shows_of_make_repro_is_the_answer_of_the_tables(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    (printed,) = (b.body for b in blocks(README) if b.body.startswith("$ make repro"))
    answers = [summary.answer(row).plain.strip() for row in summary._rows("answer.csv")]
    (shown,) = (answer for answer in answers if answer in printed)
    assert printed.strip() == f"$ make repro\n...\n{shown}\n..."


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
    yield "It is {effect} points ({high} to {low})"
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


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("It gains 3.4 points.", "3.4"),
        ("A half <!-- prediction -->.\n\n- Or 3.4.", "3.4"),  # of another paragraph
        ("It is 3.4 <!-- measured once --> or 5.6.", "5.6"),
        ("It is 3.4 <!-- misspelt: a claim -->.", "3.4"),
        ("| run | tag |\n|---|---|\n| mine | 3.4 |\n", "3.4"),
        ("It takes 67 minutes, with 95 % intervals.", "67"),
    ],
)
def test_a_number_without_a_claim_or_a_mark_is_seen(text: str, seen: str) -> None:
    (found,) = loose(text)
    assert found.startswith(f"{seen} in no claim")


@pytest.mark.parametrize(
    "text",
    [
        "It is 3.4 <!-- measured once -->.",
        "It is `3.4`, 200 labels, Python 3.11.7.",
        "<!-- earlier state -->\n\n| run | tag |\n|---|---|\n| mine | 3.4 |\n",
    ],
)
def test_marked_numbers_code_and_settings_need_no_claim(text: str) -> None:
    assert not [*loose(text)]


def test_a_mark_asks_for_its_words_in_the_section() -> None:
    text = "# Page\n\nMeasured once.\n\n## Speed\n\nIt takes 3.4 s <!-- measured once -->{}."
    assert [*mistakes(text.format(""))]
    assert not [*mistakes(text.format(", measured\nonce"))]


def test_a_comment_of_no_known_kind_is_seen() -> None:
    assert [*mistakes("It is 3.4 <!-- vlaue: reports/trials.csv; value; mean -->.")]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables, of which the claims below are made."""
    monkeypatch.setattr("tests.docs.tables.ROOT", tmp_path)
    rows.cache_clear()
    (tmp_path / "t.csv").write_text(
        "run,task,score,seconds,verdict\n"
        "a,x,0.412,60,not significant\n"
        "a,y,0.5,120,not significant\n"
        "b,x,-0.338,240,significant before correction only\n"
    )
    (tmp_path / "t.md").write_text(
        "# Page\n\n## Scores\n\n| run | score (points) |\n|:---|---:|\n"
        "| encoder\\_mlm | **\N{MINUS SIGN}4.25** of 600 |\n\n## Audit\n\nNothing.\n"
    )


RIGHT = [
    "41.2 points <!-- value: t.csv; score; run=a; task=x; points -->",
    "from \N{MINUS SIGN}34 to 50 <!-- value: t.csv; score; min; max; points -->",
    "Of 3 <!-- value: t.csv; run; count -->, 2 runs <!-- value: t.csv; run; distinct -->",
    "7 minutes <!-- value: t.csv; seconds; sum; minutes -->",
    "SST-2, `3`, BERT3, 1e-3, Python 3.11.7: median 0.41 <!-- value: t.csv; score; median -->",
    "0.46 (standard error 0.04) <!-- value: t.csv; score; run=a; mean; standard error -->",
    "none of them <!-- value: t.csv; run; run=a; task=z; count -->",
    "0.34 below, significant before correction only <!-- value: t.csv; score + verdict; run=b -->",
    "\N{MINUS SIGN}4.2 with 600 rows <!-- value: t.md; score (points); run=encoder_mlm -->",
    "4.25 <!-- value: t.md; score (points); heading=Scores -->",
]
WRONG = [
    "41.3 points <!-- value: t.csv; score; run=a; task=x; points -->",
    "42 points <!-- value: t.csv; score; run=a; task=x; points -->",
    "41.2 of 600 <!-- value: t.csv; score; run=a; task=x; points -->",  # an integer
    "some points <!-- value: t.csv; score; run=a; task=x; points -->",
    "\N{MINUS SIGN}41.2 <!-- value: t.csv; score; run=a; task=x; points -->",
    "at least \N{MINUS SIGN}34 <!-- value: t.csv; score; min; max; points -->",  # no largest one
    "Of 2 <!-- value: t.csv; run; count -->",
    "none of them <!-- value: t.csv; run; run=a; count -->",
    "0.34 below, not significant <!-- value: t.csv; score + verdict; run=b -->",
    "0.34 below, not significant <!-- value: t.csv; score; run=b -->",
    "4.3 with 500 rows <!-- value: t.md; score (points); run=encoder_mlm -->",
]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("text", RIGHT)
def test_a_right_value_passes(text: str) -> None:
    assert not [*mistakes(text)]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_value_or_none_or_another_verdict_is_seen(text: str) -> None:
    assert [*mistakes(text)]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "about",
    [
        "t.csv; score; run=c",  # no row
        "t.csv; score; run=a",  # two
        "t.csv; accuracy; run=b",
        "t.csv; score; model=b",
        "t.csv; score; average",
        "t.md; score (points); heading=Audit",
    ],
)
def test_a_claim_that_means_no_cell_or_several_is_refused(about: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(about)):
        Value.read(about)


def test_a_wrong_cell_of_a_table_is_seen() -> None:
    study = Study.load("default")
    cell = study.mean("tag", "full", "200", "encoder_mlm")
    table = "<!-- table: default full 200 -->\n| run | tag |\n|---|---|\n| `encoder_mlm` | {} |\n"
    assert not [*mistakes(table.format(f"**{cell}**"))]
    assert [*mistakes(table.format("12.3 (1.0 to 2.0)"))]


def test_bold_that_is_not_the_highest_of_its_column_is_seen() -> None:
    study = Study.load("default")
    runs = sorted(
        ("encoder_mlm", "encoder_scratch"),
        key=lambda run: study.metrics["tag"][run]["full"]["200"]["mean"],
    )
    cells = [study.mean("tag", "full", "200", run) for run in runs]
    for bold, wrong_ones in ((1, 0), (0, 1)):
        shown = [f"**{cell}**" if i == bold else cell for i, cell in enumerate(cells)]
        lines = [f"| {run} | {cell} |\n" for run, cell in zip(runs, shown, strict=True)]
        text = "<!-- table: default full 200 -->\n| run | tag |\n|---|---|\n" + "".join(lines)
        assert len([*mistakes(text)]) == wrong_ones


def test_a_wrong_count_is_seen() -> None:
    number = len(Study.load("default").contrasts)
    text = "Of {} contrasts <!-- count: default contrasts -->"
    assert not [*mistakes(text.format(number))]
    assert [*mistakes(text.format(number + 1))]
