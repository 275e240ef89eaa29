"""The page, the Markdown report and the answer in the terminal; the page in a browser, at three
widths and in two themes."""

import html
import json
import re
import subprocess
from html.parser import HTMLParser
from typing import Any

import pytest

from stages.evaluation.metrics import scale_of
from stages.findings.results import Results
from stages.reporting import pages, tables
from stages.reporting.view import View
from tests.browser import framed
from tests.synthetic_study import EFFECTS, RUNS, drawn, public, raw_params, repeated

LABEL = "Encoder <i>_1_</i> & more, with a very long name of its own"
VOID = {"meta", "br", "link"}


class Read(HTMLParser):
    """Reads a page: its words before the first picture and after it, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.before, self.after = list[str](), list[str]()
        self.links, self.pictures = list[str](), 0
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.pictures += tag == "svg"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "title" not in self.open:
            (self.after if self.pictures else self.before).extend(data.split())


@pytest.fixture(scope="module")
def view(five_seeds: Results) -> View:
    return View(five_seeds, {"encoder_mlm": LABEL})


@pytest.fixture(scope="module")
def page(view: View) -> str:
    return pages.html(view, pages.pictures(view))


def test_html_is_short_needs_no_network_and_links_to_files_of_the_report(page, view) -> None:
    """A picture follows at most 200 words. Display names are escaped."""
    read = Read(page)
    assert 20 < len(read.before) <= 200 and len(read.before) + len(read.after) <= 3000
    every = {f"tables/{name}" for name in pages.all_tables(view, times=False)}
    for link in read.links:
        folder, _, name = link.rpartition("/")
        assert re.match(r"(figures/(more|measured)|tables)$|$", folder), link
        assert folder != "tables" or link.rpartition(".")[0] in every
    assert "<i>_1_" not in page and "&lt;i&gt;_1_&lt;/i&gt; &amp; more" in page


def test_markdown_and_terminal_are_short_and_tell_the_same_scores(view: View, page: str) -> None:
    markdown, terminal = pages.markdown(view), pages.terminal(view)
    assert len(markdown.splitlines()) <= 120 and r"\<i>\_1\_\</i> & more" in markdown
    assert "\n\n\n" not in markdown and "None" not in markdown
    assert len(terminal.splitlines()) <= 25 and max(map(len, terminal.splitlines())) <= 80
    assert "TF-IDF" in terminal or "Best baseline" in terminal
    for task in view.tasks:
        value = view.models[0].scores[task].estimate.value
        shown = scale_of(view.metrics[task]).shown(value)
        assert shown in page and shown in markdown and shown in terminal


def test_headline_is_about_effects_or_names_the_model_where_a_published_one_is_compared(
    view: View,
) -> None:
    """One bold sentence comes first; the other is on the first screen, too."""
    assert view.about_effects
    bold, other = pages.markdown(view).split("\n\n")[1:3]
    assert "pretraining adds" in bold.lower() and bold.startswith("**")
    assert view.labels["encoder_mlm"].split()[0] in other or "TF-IDF" in other
    models = repeated({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}, 3)
    models |= {"minilm": public("folder/minilm") | {"seeds": [1, 2, 3]}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EFFECTS, "minilm", 0.2)
        published = View(drawn(raw_params(models, seeds=[1, 2, 3])))
    assert not published.about_effects
    bold, other = pages.markdown(published).split("\n\n")[1:3]
    assert bold.startswith("**Use MiniLM") and "clearly ahead" in bold
    assert "retraining adds" in other
    page = pages.html(published, pages.pictures(published))
    wrong, table = page.index("goes wrong"), page.index('id="table"')
    assert wrong < page.index("int &lt;b&gt;") < table  # on the first screen


def test_scores_table_marks_the_best_and_effects_table_has_the_better_level_first(view) -> None:
    table = tables.scores(view, view.budget, times=False)
    for column, task in enumerate(view.tasks, start=2):
        best = max((row.cells[column] for row in table.rows), key=lambda cell: float(cell.text))
        assert best.best, task
    reverse = {name: RUNS[name] for name in ("decoder_causal", "encoder_mlm")}
    other = tables.effects(View(drawn(raw_params(repeated(reverse, 2), seeds=[1]))))
    for row in (*tables.effects(view).rows, *other.rows):
        compared, difference = row.cells[0].text, row.cells[2].text
        ordered = any(word in compared for word in ("pretrained", "M vs. "))
        assert " vs. " in compared and (difference.startswith("+") or ordered)


def test_report_of_one_model_says_that_it_compares_nothing() -> None:
    raw = raw_params({"encoder_mlm": RUNS["encoder_mlm"]}) | {"baselines": {}}
    raw["tasks"] = {"type": raw["tasks"]["type"]}
    raw["finetune"]["methods"] = {"full": raw["finetune"]["methods"]["full"]}
    view = View(drawn(raw))
    assert "No two models are alike" in pages.markdown(view)
    Read(pages.html(view, pages.pictures(view)))
    assert len(pages.terminal(view).splitlines()) <= 25


# In a browser --------------------------------------------------------------------------------

# Letters of 11 pixels, and the contrast of WCAG 2.2, 1.4.3.
PROBE = """
<script>
const SMALLEST = 11, CONTRAST = 4.5;
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


@pytest.mark.slow
@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (900, "light"), (1440, "light")])
def test_page_can_be_read_without_scrolling_sideways(page, tmp_path, browser, width, theme) -> None:
    path = tmp_path / "index.html"
    path.write_text(page.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    options = [
        f"--blink-settings=preferredColorScheme={0 if theme == 'dark' else 1}",
        *("--virtual-time-budget=20000", f"--window-size={width},3000", "--hide-scrollbars"),
        *("--allow-file-access-from-files", "--dump-dom", framed(path, width, 3000).as_uri()),
    ]
    done = subprocess.run(
        [*browser, *options], capture_output=True, text=True, timeout=240, check=True
    )
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert probe, done.stderr
    layout: dict[str, Any] = json.loads(html.unescape(probe[1]))
    for state, seen in layout.items():
        assert seen["wider"] <= 0, (state, seen)
        assert seen["small"] == seen["pale"] == seen["outside"] == [], (state, seen)
    assert width < 1440 or layout["closed"]["first"] <= 500
