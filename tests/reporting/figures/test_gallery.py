import re
from dataclasses import replace
from pathlib import Path

import pytest

from stages.findings.results import Results
from stages.reporting.figures import gallery, score_dots, style
from tests.synthetic_study import METRICS, RUNS, raw_params


def drawn(results: Results, name: str, folder: Path) -> str:
    picture = gallery.pictures(results)[name]
    return gallery.draw(picture, svg=folder / "x.svg", png=folder / "x.png")


def test_every_run_baseline_and_task_is_named_in_the_comparison(
    results: Results, tmp_path: Path
) -> None:
    svg = drawn(results, "comparison", tmp_path)
    texts = re.findall(r">([^<>]+)</text>", svg)
    assert {*RUNS, "majority", "tfidf", "window"} <= set(texts)
    assert {f"{task}, 200 labels" for task in METRICS} <= set(texts)


@pytest.mark.slow
def test_pictures_ask_no_other_machine_and_hold_no_nan(results: Results, tmp_path: Path) -> None:
    for name in ("comparison", "curves_tag_full_200"):
        svg = drawn(results, name, tmp_path)
        assert not re.findall(r"(?:href|src)=|url\((?!#)|@import|NaN|undefined", svg)
        assert (tmp_path / "x.svg").read_text() == svg + "\n"
        assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"


def test_a_mark_for_each_cell_and_a_hollow_one_from_scratch(
    results: Results, tmp_path: Path
) -> None:
    svg = drawn(results, "scores_tag_200", tmp_path)
    marks = re.findall(r'<path aria-label="([^"]*)"[^>]*?fill="([^"]*)"', svg)
    points = {
        (run, method): fill
        for label, fill in marks
        if "score" in label
        for run in re.findall(r"run: (\w+)", label)
        for method in re.findall(r"method: (\w+)", label)
    }
    assert len(points) == 7 * 2 + 2
    assert {run for (run, _), fill in points.items() if fill == style.PAPER} == {
        "encoder_scratch",
        "decoder_scratch",
    }


def test_an_architecture_has_one_colour_and_baselines_are_grey(results: Results) -> None:
    colours = style.colours(results.scores)
    assert list(colours) == ["encoder", "decoder", "classical"]
    assert len(set(colours.values())) == 3 and colours["classical"] == style.BASELINE


def test_a_study_without_scratch_runs_has_no_curves_beside_them(results: Results) -> None:
    pretrained = {name: run for name, run in RUNS.items() if "scratch" not in name}
    params = type(results.params)(**raw_params(pretrained))
    trials = [trial for trial in results.trials if "scratch" not in trial.run]
    without = replace(results, params=params, trials=trials)
    assert not any(name.startswith("curves") for name in gallery.pictures(without))
    assert any(name.startswith("curves") for name in gallery.pictures(results))


@pytest.mark.parametrize(("score", "lowest"), [(57.0, 50.0), (0.0, 0.0)])
def test_a_single_score_has_an_axis_with_room(score: float, lowest: float) -> None:
    """Without room, the only tick was rounded to a number far from the score."""
    [room] = score_dots._room([{"low": score, "high": score}])
    low, high = (row["score"] for row in room.to_dict(validate=False)["data"]["values"])
    assert lowest <= low <= score < high


def test_different_scores_need_no_room() -> None:
    assert score_dots._room([{"low": 56.0, "high": 58.0}]) == []
