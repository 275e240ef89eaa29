"""The page in a browser, at three widths and in two themes: what can be read, and reached.

Facts of the layout are compared, not pixels.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.core.study_file import load as read_params
from stages.findings.results import Results
from stages.reporting.figures import gallery
from stages.reporting.page import pages
from tests.browser import SEEN, framed
from tests.project import ROOT
from tests.reporting.page.conftest import probed, with_script
from tests.synthetic_study import RUNS, raw_params

pytestmark = pytest.mark.slow

LONG = "<script>alert(1)</script> \u05d0\u05d1\u05d2 " + "a_long_name" * 5
SMALLEST, CONTRAST = 11, 4.5  # pixels; WCAG 2.2, 1.4.3
SCREENS = 9
PROBE = """
<script>
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const name = each => `${each.tagName}.${each.getAttribute("class") ?? ""}: ${each.textContent.trim().slice(0, 50)}`;
const rgba = text => { const found = text.match(/[\\d.]+/g).map(Number); return found.length > 3 ? found : [...found, 1]; };
const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const behind = each => {
  for (let at = each; at; at = at.parentElement) {
    const found = rgba(getComputedStyle(at).backgroundColor);
    if (found[3] > 0) return found;
  }
  return [255, 255, 255, 1];
};
const ratio = each => {
  const style = getComputedStyle(each), svg = each instanceof SVGElement;
  const [one, other] = [light(rgba(svg ? style.fill : style.color)), light(behind(each))].sort((a, b) => a - b);
  return (other + .05) / (one + .05);
};
const words = () => all("body *").filter(each => each.checkVisibility() && !each.closest("script, .skip, svg.picture")
  && [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()));
const scrolls = each => each.closest(".scroll, .picture, pre, nav ul");
// As it is seen: an SVG may be drawn smaller than it is written.
const drawnSize = text => { const {b, d} = text.getScreenCTM(); return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(b, d); };
const look = () => ({
  wider: document.documentElement.scrollWidth - innerWidth,
  tall: document.querySelector("footer").getBoundingClientRect().bottom + scrollY,
  answered: Math.max(0, ...all(".answer .mattered div").filter(each => each.checkVisibility()
    && each.querySelector("dt").textContent === "architecture").map(each => each.getBoundingClientRect().bottom + scrollY)),
  outside: words().filter(each => !scrolls(each)).filter(each => {
    const box = each.getBoundingClientRect();
    return box.left < -1 || box.right > innerWidth + 1;
  }).map(name),
  small: words().filter(each => parseFloat(getComputedStyle(each).fontSize) < SMALLEST).map(name),
  pale: words().filter(each => each.textContent.trim() && ratio(each) < CONTRAST).map(each => `${name(each)} ${ratio(each)}`),
  uncued: all(".scroll, .picture, nav ul").filter(box => box.checkVisibility() && box.scrollWidth > box.clientWidth + 1
    && !box.classList.contains("more")).map(name),
  letters: all("svg text").filter(text => text.checkVisibility() && text.textContent.trim()
    && drawnSize(text) < SMALLEST - .05).map(text => `${name(text)} ${drawnSize(text)}`),
  unfilled: all("figure svg").filter(svg => svg.checkVisibility()).filter(svg => svg.getBoundingClientRect().width
    < svg.closest("figure").clientWidth - 4).map(svg => `${svg.ariaLabel} ${svg.getBoundingClientRect().width}`),
  unreached: all(".scroll, .picture, pre").filter(box => box.scrollWidth > box.clientWidth + 1 && box.tabIndex < 0).map(name),
});
const overlapping = () => all(".drawn .role-axis-label").flatMap(axis => {
  const boxes = all("text", axis).filter(text => text.textContent && getComputedStyle(text).opacity !== "0").map(text => text.getBoundingClientRect());
  return boxes.slice(1).filter((box, i) => box.left < boxes[i].right - 1 && box.right > boxes[i].left + 1
    && box.top < boxes[i].bottom - 3 && box.bottom > boxes[i].top + 3).map(() => axis.textContent.slice(0, 60));
});
const cut = () => all(".drawn text").filter(text => {
  const box = text.getBoundingClientRect(), figure = text.closest("figure").getBoundingClientRect();
  return text.textContent && (box.left < figure.left - 2 || box.right > figure.right + 2);
}).map(name);
const wait = async () => {
  const undrawn = () => all("figure.live .chart").filter(box => box.checkVisibility() && !box.dataset.form);
  for (let i = 0; i < 200 && undrawn().length; i++) await new Promise(done => setTimeout(done, 50));
  await new Promise(done => setTimeout(done, 200));
  const unnamed = all(".drawn [role=graphics-symbol]").filter(mark => !mark.ariaLabel && !mark.closest("[aria-hidden=true]"));
  const found = {undrawn: undrawn().length, overlapping: overlapping(), cut: cut(), unnamed: unnamed.length, closed: look()};
  for (const each of all("details")) each.open = true;
  await new Promise(done => setTimeout(done, 200));
  found.open = look();
  parent.postMessage(JSON.stringify(found), "*");
};
wait();
</script>
"""  # noqa: E501


@pytest.fixture(scope="module")
def page(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    renamed = described(results, f"Which? {LONG}", {"tag": LONG})
    return written(renamed, tmp_path_factory.mktemp("page"))


def described(results: Results, title: str | None, tasks: Mapping[str, str | None]) -> Results:
    """The results of a study with another title and other words about tasks."""
    params = results.params
    changed = {
        name: params.tasks[name].model_copy(update={"about": about})
        for name, about in tasks.items()
        if name in params.tasks
    }
    update = {"title": title, "tasks": params.tasks | changed}
    return replace(results, params=params.model_copy(update=update))


def written(results: Results, folder: Path) -> Path:
    names = gallery.pictures(results)
    svg = gallery.draw(names["forest"], svg=folder / "x.svg", png=folder / "x.png")
    html = pages.html(results, dict.fromkeys(names, svg))
    html = html.replace("</head>", f"{SEEN}</head>", 1)
    sizes = f"<script>const SMALLEST = {SMALLEST}, CONTRAST = {CONTRAST};</script>"
    file = folder / "index.html"
    file.write_text(with_script(html, sizes + PROBE), encoding="utf-8")
    return file


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_all_text_can_be_read(page: Path, browser: list[str], width: int, theme: str) -> None:
    layout = legible(page, browser, width, theme)
    if width == 1280:
        assert layout["closed"]["tall"] <= SCREENS * 800


def test_the_first_screens_say_what_to_use_and_whether_the_architecture_mattered(
    results: Results, browser: list[str], tmp_path: Path
) -> None:
    """Two screens suffice for the words of the default study, and 2.25 on a phone."""
    default = read_params(ROOT / "studies/default.yaml")
    about = {name: default.about("tasks", name) for name in default.tasks}
    page = written(described(results, default.title, about), tmp_path)
    for width, most in ((390, 2.25 * 844), (1280, 2 * 800)):
        answered = looked_at(page, browser, width, "light")["closed"]["answered"]
        assert 0 < answered <= most, width


def test_a_study_of_one_run_can_be_read(browser: list[str], tmp_path: Path, study_of) -> None:
    """The study has one task, one method, no baseline and a very long name."""
    raw = raw_params({"encoder_" + "a_long_name" * 6: RUNS["encoder_mlm"]}) | {"baselines": {}}
    raw["tasks"] = {"type": raw["tasks"]["type"]}
    raw["finetune"]["methods"] = {"full": raw["finetune"]["methods"]["full"]}
    results = study_of(raw=raw)
    page = written(results, tmp_path)
    assert 'id="forest"' not in page.read_text(encoding="utf-8")
    for width in (390, 1280):
        legible(page, browser, width, "dark")


def legible(page: Path, browser: list[str], width: int, theme: str) -> dict[str, Any]:
    layout = looked_at(page, browser, width, theme)
    assert layout["undrawn"] == 0 and layout["unnamed"] == 0
    assert layout["cut"] == [] and layout["overlapping"] == []
    for state in ("closed", "open"):
        seen = layout[state]
        for fault in ("outside", "small", "letters", "unfilled", "pale", "uncued", "unreached"):
            assert seen[fault] == [], (state, fault)
        assert seen["wider"] <= 0, state
    return layout


def looked_at(page: Path, browser: list[str], width: int, theme: str) -> dict[str, Any]:
    dark = f"--blink-settings=preferredColorScheme={0 if theme == 'dark' else 1}"
    options = (dark, "--virtual-time-budget=60000", f"--window-size={width},8000")
    return probed(browser, framed(page, width, 8000), *options, "--hide-scrollbars").found
