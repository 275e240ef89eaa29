"""Pictures of the score against the label budget."""

from pathlib import Path
from typing import Any

import pytest

from stages.findings.results import Results
from stages.reporting.figures import gallery, label_budgets
from stages.reporting.figures.style import PAPER
from tests.study_results import loaded_in
from tests.synthetic_study import METRICS, RUNS, about, raw_params


def study(root: Path, budgets: list[int | str], *, seeds: list[int]) -> Results:
    raw = raw_params()
    raw["finetune"] |= {"label_budgets": budgets, "seeds": seeds}
    return loaded_in(root, raw)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return study(tmp_path_factory.mktemp("study"), [200, 500, "all"], seeds=[1, 2, 3])


def pictures_of(results: Results) -> dict[str, gallery.Picture]:
    return label_budgets.pictures(results.scores, results.num_labels)


def points(results: Results, method: str) -> list[dict[str, Any]]:
    return label_budgets.label_budgets(results.scores, "tag", results.num_labels["tag"])[
        "datasets"
    ][method]


def test_every_mean_stands_at_its_number_of_labels(several: Results) -> None:
    numbers = {"200": 200, "500": 500, "all": about("tag")["num_examples"]["train"]}
    for method in several.scores.methods:
        point_of = {(p["run"], p["x"]): p for p in points(several, method)}
        assert {run for run, _ in point_of} == {*RUNS, "majority", "window"}
        for name in RUNS:
            for budget, number in numbers.items():
                cell = several.scores.cell(name, "tag", method, budget)
                assert cell is not None and cell.mean.low is not None
                point = point_of[name, number]
                assert point["y"] == pytest.approx(100 * cell.mean.value)
                assert point["low"] == pytest.approx(100 * max(cell.mean.low, 0))
                assert point["low"] < point["y"] < point["high"]


def test_from_scratch_is_dashed_and_hollow_and_a_baseline_classical(several: Results) -> None:
    starts = {p["run"]: (p["start"], p["fill"] == PAPER) for p in points(several, "full")}
    assert starts.pop("majority") == starts.pop("window") == ("classical", False)
    for run, start in starts.items():
        assert start == (("from scratch", True) if "scratch" in run else ("pretrained", False))


def test_one_seed_has_no_band(tmp_path: Path) -> None:
    results = study(tmp_path, [200, 500], seeds=[1])
    assert all(p["low"] == p["y"] == p["high"] for p in points(results, "full"))


def test_one_budget_or_two_of_equal_size_are_no_picture(results: Results, tmp_path: Path) -> None:
    assert pictures_of(results) == {}
    same = study(tmp_path, [1200, "all"], seeds=[1, 2])  # a task has 1,200 rows
    assert pictures_of(same) == {}


def test_a_picture_for_each_task_draws(several: Results, tmp_path: Path) -> None:
    pictures = pictures_of(several)
    assert set(pictures) == {f"label_budgets_{task}" for task in METRICS}
    assert pictures.keys() <= gallery.pictures(several).keys()
    svg = gallery.draw(
        pictures["label_budgets_tag"], svg=tmp_path / "x.svg", png=tmp_path / "x.png"
    )
    assert "NaN" not in svg and svg.count(">encoder_deep_learning</text>") == 2  # two methods
    assert "labels (all: 1,200)" in svg
