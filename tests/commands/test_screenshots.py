"""A screenshot shows the chart that Vega draws, not the picture that it replaces."""

import re
import subprocess
from pathlib import Path

import pytest

from stages.commands import screenshots
from stages.commands.screenshots import DRAWN_MS, SIZES, alone, take
from stages.findings.results import Results, load
from stages.reporting.figures import gallery
from stages.reporting.page import pages
from tests.synthetic_study import RUNS, raw_params, write_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    raw = raw_params({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        results: Results = load(write_study(root, raw))
    picture = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    file = root / "index.html"
    file.write_text(pages.html(results, dict.fromkeys(gallery.pictures(results), picture)))
    return file


@pytest.mark.parametrize("width", [390, 1280])
def test_alone_shows_the_chart_and_not_its_picture(
    page: Path, browser: list[str], width: int
) -> None:
    part = page.with_name(f"{width}.html")
    part.write_text(alone(page.read_text(), "contrasts"))
    size = f"--window-size={width},{SIZES[width]}"
    command = [*browser, f"--virtual-time-budget={DRAWN_MS}", size, "--dump-dom", part.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    [forest] = re.findall(r'<figure class="live" id="forest">.*?</figure>', done.stdout, re.DOTALL)
    form = "narrow" if width == 390 else "wide"
    assert f'data-form="{form}"' in forest
    assert 'class="picture"' not in forest and 'class="drawn' in forest


def test_take_writes_a_picture_of_each_width_and_theme(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screenshots, "PLACES", ("contrasts",))
    monkeypatch.setattr(screenshots, "SIZES", {390: 300})
    take(page, tmp_path / "pictures")
    names = {file.name for file in (tmp_path / "pictures").iterdir()}
    assert names == {"contrasts_390_dark.png", "contrasts_390_light.png"}


def test_take_refuses_a_missing_page(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dvc repro"):
        take(tmp_path / "index.html", tmp_path)
