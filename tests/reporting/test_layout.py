"""The page in a browser, at three widths and in two themes."""

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stages.findings.results import Results
from stages.reporting import pages
from stages.reporting.view import View
from tests.browser import framed

pytestmark = pytest.mark.slow

SMALLEST, CONTRAST = 11, 4.5  # pixels of letters; WCAG 2.2, 1.4.3
PROBE = """
<script>
const all = selector => [...document.querySelectorAll(selector)]
  .filter(each => each.checkVisibility());
const rgb = text => text.match(/[\\d.]+/g).map(Number).slice(0, 3);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const paper = light(rgb(getComputedStyle(document.body).backgroundColor));
const ratio = each => {
  const style = getComputedStyle(each);
  const ink = each instanceof SVGElement ? style.fill : style.color;
  const [one, other] = [light(rgb(ink)), paper].sort((a, b) => a - b);
  return (other + .05) / (one + .05);
};
const name = each => `${each.tagName} ${each.textContent.trim().slice(0, 40)}`;
const words = () => all("main *").filter(each => [...each.childNodes].some(
  node => node.nodeType === 3 && node.textContent.trim()) && each.tagName !== "title");
const look = () => ({
  wider: document.documentElement.scrollWidth - innerWidth,
  first: document.querySelector("main svg").getBoundingClientRect().top + scrollY,
  small: words().filter(each => parseFloat(getComputedStyle(each).fontSize) < SMALLEST).map(name),
  pale: words().filter(each => ratio(each) < CONTRAST).map(name),
  outside: words().filter(each => !each.closest(".scroll, pre, .names"))
    .filter(each => each.getBoundingClientRect().right > innerWidth + 1).map(name),
});
addEventListener("load", () => {
  const closed = look();
  document.querySelectorAll("details").forEach(each => each.open = true);
  parent.postMessage(JSON.stringify({closed, open: look()}), "*");
});
</script>
"""


@pytest.fixture(scope="module")
def page(five_seeds: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    view = View(five_seeds, {"encoder_mlm": "An encoder with a very long name of its own, MLM"})
    text = pages.html(view, pages.pictures(view))
    sizes = f"<script>const SMALLEST = {SMALLEST}, CONTRAST = {CONTRAST};</script>"
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(text.replace("</body>", f"{sizes}{PROBE}</body>"), encoding="utf-8")
    return path


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 900, 1440])
def test_page_can_be_read_without_scrolling_sideways(
    page: Path, browser: list[str], width: int, theme: str
) -> None:
    layout = looked_at(page, browser, width, theme)
    for state in ("closed", "open"):
        seen = layout[state]
        assert seen["wider"] <= 0, (state, seen)
        for fault in ("small", "pale", "outside"):
            assert seen[fault] == [], (state, fault)
    if width == 1440:
        assert layout["closed"]["first"] <= 500


def looked_at(page: Path, browser: list[str], width: int, theme: str) -> dict[str, Any]:
    options = [
        f"--blink-settings=preferredColorScheme={0 if theme == 'dark' else 1}",
        *("--virtual-time-budget=20000", f"--window-size={width},3000", "--hide-scrollbars"),
        *("--allow-file-access-from-files", "--dump-dom", framed(page, width, 3000).as_uri()),
    ]
    done = subprocess.run(
        [*browser, *options], capture_output=True, text=True, timeout=240, check=True
    )
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert probe, done.stderr
    return json.loads(html.unescape(probe[1]))
