import re
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from stages.core.keys import RunKey
from stages.findings.pretraining_progress import Progress, passages
from stages.findings.results import Results
from stages.reporting.figures import gallery
from stages.reporting.page import pages
from stages.reporting.words.names import verdict
from tests.reporting.page.conftest import probed, with_script
from tests.study_results import loaded_in, undrawn
from tests.synthetic_study import METRICS, RUNS, raw_params

pytestmark = pytest.mark.slow

HOSTILE = '</td><script>alert("1")</script> | `x` & *y*'
VOID = {"meta", "link", "br", "input", "img", "path", "circle", "line", "rect"}
PROBE = """
<script>
const table = document.querySelector("#trials table"), body = table.tBodies[0];
const shown = () => [...body.rows].filter(row => !row.hidden);
const points = () => shown().map(row => Number(row.cells[1].textContent));
const before = shown().length, buttons = table.tHead.querySelectorAll("button");
buttons[1].click();
const up = points();
buttons[1].click();
const down = points();
const input = document.querySelector("#trials .filter input");
input.value = "decoder_causal tag full";
input.dispatchEvent(new Event("input"));
const means = document.querySelector("#means");
const chips = [...means.querySelectorAll(".chips button")];
const press = value => chips.find(chip => chip.textContent.startsWith(value)).click();
const left = () => [...means.querySelectorAll("tbody tr")].filter(row => !row.hidden);
const counts = () => chips.map(chip => chip.textContent);
const unpressed = counts();
press("linear_probe");
press("tag");
press("type");
const chipped = left().map(row => row.cells[2].textContent + " " + row.cells[3].textContent);
const pressed = counts();
means.open = true;
const card = getComputedStyle(left()[0]).display;
const pinned = getComputedStyle(left()[0].cells[0]).position;
const described = [...left()[0].cells].map(cell => cell.dataset.label);
means.open = false;
const choose = (key, value) => {
  const select = document.querySelector(`#choose-${key}`);
  select.value = value;
  select.dispatchEvent(new Event("change"));
};
const all = [...document.querySelectorAll("#answer article .use")];
const said = () => all.filter(p => p.checkVisibility()).map(p => p.textContent);
const first = said();
choose("method", "linear_probe");
const probed = said();
const probe = document.createElement("pre");
probe.id = "probe";
probe.textContent = JSON.stringify({
  before, up, down, filtered: shown().map(row => row.textContent.includes("decoder_causal")),
  first, probed, unpressed, chipped, pressed, card, pinned, described,
  requests: performance.getEntriesByType("resource").map(entry => entry.name),
  wider: document.documentElement.scrollWidth - innerWidth,
});
document.body.append(probe);
</script>
"""


CLICK = """
<script>
document.querySelector('a[href="#appendix-names"]').click();
const part = document.getElementById("appendix-names");
const place = part.getBoundingClientRect().top;
const isOpen = part.closest("details").open;
parent.postMessage({isOpen, isSeen: place >= 0 && place < innerHeight}, "*");
</script>
"""
# The frame in which MLflow shows a page of a run.
FRAME = """
<body>
<script>
const write = ({data}) => {
  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = JSON.stringify(data);
  document.body.append(probe);
};
addEventListener("message", write);
const request = new XMLHttpRequest();
request.open("GET", "index.html", false); // the page is loaded when the frame is
request.send();
const frame = document.createElement("iframe");
frame.sandbox = "allow-scripts";
frame.src = URL.createObjectURL(new Blob([request.response], {type: "text/html"}));
document.body.append(frame);
</script>
</body>
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    loaded = loaded_in(tmp_path_factory.mktemp("study"), raw_params())
    for run in loaded.params.runs.values():
        run.model["note"] = HOSTILE
    return loaded


@pytest.fixture(scope="module")
def html(results: Results) -> str:
    return pages.html(results, undrawn(results))


def test_text_is_escaped(html: str) -> None:
    assert html.count("<script") == html.count("</script>")
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(" in html


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for key, value in attrs if key == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, self.getpos()


def test_every_tag_is_closed_and_every_id_is_one_elements(html: str) -> None:
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids)) > 15
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(tags.ids)


def test_the_page_names_no_other_machine(html: str) -> None:
    html = re.sub(r'<script id="runtime">.*?</script>', "", html, flags=re.DOTALL)
    links = re.findall(r"""(?:src|href|action)\s*=\s*["']?([^"'\s>]+)|url\(([^)]+)\)""", html)
    assert all(link.startswith(("#", "data:,")) for pair in links for link in pair if link)


def test_every_table_of_scores_names_the_baselines(html: str) -> None:
    tables = re.findall(r'<table class="means">.*?</table>', html, flags=re.DOTALL)
    assert len(tables) == len(METRICS)
    assert all("majority" in table for table in tables)


def test_markdown_has_as_many_cells_in_each_row_as_in_its_head(results: Results) -> None:
    """Text cannot break out of its cell."""
    text = pages.markdown(results)
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(tables) > 10
    assert len({*tables}) == len(tables)
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table


def test_markdown_and_page_tell_the_same(results: Results, html: str) -> None:
    text = pages.markdown(results)
    for contrast in results.contrasts:
        assert verdict(contrast) in text
        assert verdict(contrast) in html
    for name in (*RUNS, *METRICS, "majority", "window", "tfidf"):
        assert name in html and name in text.replace("\\_", "_")


def test_tasks_are_listed_with_their_sizes_and_what_was_removed(results: Results, html) -> None:
    markdown = pages.markdown(results)
    assert "| tag | tagging | 1,200 | 200 | 1,000 | 2 | train 3, validation 0 |" in markdown
    assert "train 3, validation 0" in html


def test_what_models_write_stands_side_by_side_and_on_the_page_alone(results, html) -> None:
    """Runs of one corpus and tokenizer share a passage; what models wrote is escaped."""
    runs = ("decoder_causal", "encoder_mlm")
    samples = results.progress[RunKey("decoder_causal", 1)].samples
    progress = results.progress | {RunKey(run, 1): Progress([], samples) for run in runs}
    samples_by_text = passages(results.params.runs, progress)
    assert [each.text for each in samples_by_text] == ["", "a list & <i>more</i>"]
    assert [run for run, *_ in samples_by_text[1].rows] == ["encoder_mlm", "decoder_causal"]
    assert '<details id="samples">' in html and "&lt;b&gt;of&lt;/b&gt; …" in html
    assert "of</b> …" not in html and "of</b> …" not in pages.markdown(results)


def test_markdown_says_nothing_that_was_measured_on_a_machine(results: Results) -> None:
    assert not re.search(r"\d+ (?:s|min|MiB|GiB)\b", pages.markdown(results))


def test_links_to_parts_of_the_page_work_in_the_frame_of_mlflow(
    html: str, browser: list[str], tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text(with_script(html, CLICK), encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME, encoding="utf-8")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/frame.html"
        probe = probed(browser, address).found
        server.shutdown()
    assert probe == {"isOpen": True, "isSeen": True}


@pytest.mark.parametrize("width", [1200, 500])
def test_it_works_in_a_browser_without_a_request_or_an_error(
    results: Results, browser: list[str], tmp_path: Path, width: int
) -> None:
    picture = gallery.pictures(results)["curves_tag_full_200"]
    svg = gallery.draw(picture, svg=tmp_path / "x.svg", png=tmp_path / "x.png")
    file = tmp_path / "index.html"
    html = pages.html(results, undrawn(results, svg))
    file.write_text(with_script(html, PROBE), encoding="utf-8")
    offline = ("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr")
    probe, messages = probed(browser, file, *offline, f"--window-size={width},900")
    assert "CONSOLE" not in messages  # refused requests are logged, too
    assert probe["requests"] == []
    assert probe["before"] == len(results.trials)
    assert probe["up"] == sorted(probe["up"]) and probe["down"] == probe["up"][::-1]
    assert probe["filtered"] == [True] * 5
    first, of_probes = (probe[key] for key in ("first", "probed"))
    assert len(first) == len(of_probes) == len(METRICS)
    assert all("with full" not in text for text in of_probes)
    assert sorted(set(probe["chipped"])) == ["tag linear_probe", "type linear_probe"]
    assert len(probe["chipped"]) == 2 * len(RUNS)
    numbers = len(results.scores.cells) // len(METRICS), len(RUNS)
    assert all(
        f"tag ({n})" in probe[key] for key, n in zip(("unpressed", "pressed"), numbers, strict=True)
    )
    assert f"section ({len(RUNS)})" in probe["pressed"]  # would be added
    narrow = width < 700
    assert (probe["card"], probe["pinned"]) == (
        ("grid", "static") if narrow else ("table-row", "sticky")
    )
    assert probe["described"][:3] == ["run", "points", "task"]
    assert probe["wider"] <= 0  # tables scroll within, the page does not
