import re
from pathlib import Path

import pytest

from stages.findings.results import Results
from stages.reporting import pages
from stages.reporting.picture import Picture
from stages.reporting.pictures import comparison, cost, effects
from stages.reporting.view import View


@pytest.fixture
def view(five_seeds: Results) -> View:
    return View(five_seeds, {"encoder_mlm": "Encoder & <MLM>"})


def places(text: str, name: str) -> list[float]:
    """Returns the x of the marks of a class, in percent."""
    texts = re.findall(rf'<g class="{name}[^>]*>.*?cx="([\d.]+)%"', text)
    return [float(x) for x in texts]


def test_comparison_has_a_panel_for_each_task_and_sorted_rows(view: View) -> None:
    picture = comparison.picture(view)
    assert len(picture.panels) == len(view.tasks)
    means = [row.mean or 0.0 for row in view.models]
    assert means == sorted(means, reverse=True)
    assert len(picture.names) == len(view.models)
    drawn = [row for row in picture.rows if row["method"] != "classical"]
    assert len(drawn) == len(view.models) * len(view.tasks)


def test_comparison_has_one_scale_and_a_line_at_the_baseline(view: View) -> None:
    """Equal scores are at equal places in all panels, and a higher score is farther right."""
    picture, seen = comparison.picture(view), dict[float, float]()
    for task, panel in zip(view.tasks, picture.panels, strict=True):
        parts = "".join(panel.plot.parts)
        values = [m.scores[task].estimate.value for m in view.models]
        seen |= dict(zip(values, places(parts, "c"), strict=True))
        answer = next(a for a in view.answers if a.task == task)
        assert answer.baseline
        (line,) = re.findall(r'class="baseline" x1="([\d.]+)%"', parts)
        seen[answer.baseline.score.value] = float(line)
    ordered = sorted(seen)
    assert [seen[value] for value in ordered] == sorted(seen.values())
    slopes = {
        round((seen[b] - seen[a]) / (b - a), 0) for a, b in zip(ordered, ordered[5:], strict=False)
    }
    assert max(slopes) - min(slopes) <= 0.05 * max(slopes)


def test_effects_has_a_mark_for_each_axis_on_the_right_side_of_zero(view: View) -> None:
    picture = effects.picture(view)
    assert picture and len(picture.panels) == len(view.results.effects)
    for panel, row in zip(picture.panels, picture.rows, strict=True):
        parts = "".join(panel.plot.parts)
        (zero,) = re.findall(r'class="zero" x1="([\d.]+)%"', parts)
        (mark,) = places(parts, "(?:un)?sure")
        assert (mark > float(zero)) == (row["effect"] > 0)
        assert row["low"] <= row["effect"] <= row["high"]


def test_cost_is_left_out_where_all_models_take_as_long(view: View) -> None:
    assert cost.picture(view) is None


def test_picture_writes_four_files_that_name_every_model(view: View, tmp_path: Path) -> None:
    picture = comparison.picture(view)
    picture.save(tmp_path)
    svg, png, pdf, csv = (tmp_path / f"comparison.{end}" for end in ("svg", "png", "pdf", "csv"))
    assert "Encoder &amp; &lt;MLM&gt;" in svg.read_text("utf-8")
    assert png.read_bytes()[:4] == b"\x89PNG" and pdf.read_bytes()[:5] == b"%PDF-"
    assert len(csv.read_text("utf-8").splitlines()) == len(picture.rows) + 1


def test_losses_of_unlike_objectives_have_a_panel_each(view: View) -> None:
    picture: Picture = pages.pictures(view)["losses"]
    assert [panel.title for panel in picture.panels] == ["MLM", "causal"]
