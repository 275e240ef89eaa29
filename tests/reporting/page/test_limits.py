"""A large study's page keeps to what one can read, and says where the rest is."""

import re
from collections.abc import Sequence

import pytest

from stages.findings.contrasts import Contrast
from stages.findings.results import Results
from stages.reporting.figures import score_dots
from stages.reporting.page import limits, pages
from stages.reporting.words.tables import leaderboard
from tests.study_results import PICTURE, undrawn


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in {"TRIALS": 10, "MEANS": 9, "CONTRASTS": 7, "ROWS": 3}.items():
        monkeypatch.setattr(limits, name, number)
    monkeypatch.setattr(limits, "PICTURE", len(PICTURE) - 1)
    monkeypatch.setattr(score_dots, "MOST_ROWS", 4)


def shown(results: Results) -> Sequence[Contrast]:
    best = results.best_runs[None].values()
    return limits.contrasts(results.contrasts, best, results.scores)


def test_a_study_of_this_size_is_whole(five_seeds: Results) -> None:
    assert shown(five_seeds) == five_seeds.contrasts
    rows = leaderboard(five_seeds.scores)
    assert limits.leaderboard(rows) == rows


@pytest.mark.usefixtures("small_limits")
def test_contrasts_of_the_best_runs_come_first(five_seeds: Results) -> None:
    contrasts = shown(five_seeds)
    best = {(each.run.group, each.run.task) for each in five_seeds.best_runs[None].values()}
    assert len(contrasts) == limits.CONTRASTS
    assert all({(c.a.group, c.task), (c.b.group, c.task)} & best for c in contrasts)
    places = [five_seeds.contrasts.index(contrast) for contrast in contrasts]
    assert places == sorted(places)


@pytest.mark.usefixtures("small_limits")
def test_the_leaderboard_keeps_the_best_of_each_task(five_seeds: Results) -> None:
    rows = leaderboard(five_seeds.scores)
    shown_rows = limits.leaderboard(rows)
    for task in five_seeds.params.tasks:
        of_task = [row for row in rows if row["task"] == task]
        assert [row for row in shown_rows if row["task"] == task] == of_task[:3]


@pytest.mark.slow
@pytest.mark.usefixtures("small_limits")
def test_the_page_says_where_the_rest_is(five_seeds: Results) -> None:
    html = pages.html(five_seeds, undrawn(five_seeds))
    text = re.sub(r"<[^>]+>", "", html)
    trials, means = len(five_seeds.trials), len(five_seeds.scores.cells)
    assert f"The {trials:,} trials are in trials.csv" in text
    assert f"all {means} means are in metrics.json" in text
    contrasts = len(five_seeds.contrasts)
    assert f"7 of {contrasts} contrasts" in text and "contrasts.csv" in text
    assert len(re.findall(r'<tr id="contrast-\d+"', html)) == limits.CONTRASTS
    assert "The best 4 are drawn" in text
    assert "too large for this page, in figures/more/curves_tag_full_200.svg" in text
    assert re.search(r"The first 3 of \d+ rows; the rest is in comparison.md", text)
