import re
from html.parser import HTMLParser

import pytest

from stages.evaluation.metrics import scale_of
from stages.findings.results import Results
from stages.reporting import pages, tables
from stages.reporting.view import View
from tests.synthetic_study import EFFECTS, RUNS, drawn, public, raw_params, repeated

LABEL = "Encoder <i>_1_</i> & more"
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


def test_html_shows_a_picture_after_at_most_200_words_and_has_at_most_3000(page: str) -> None:
    read = Read(page)
    assert 20 < len(read.before) <= 200
    assert len(read.before) + len(read.after) <= 3000


def test_html_needs_no_network_and_links_to_files_of_the_report(page: str, view: View) -> None:
    every = {f"tables/{name}" for name in pages.all_tables(view, times=False)}
    for link in Read(page).links:
        folder, _, name = link.rpartition("/")
        assert re.match(r"(figures/(more|measured)|tables)$|$", folder), link
        if folder == "tables":
            assert link.rpartition(".")[0] in every


def test_html_escapes_display_names(page: str) -> None:
    assert "<i>_1_" not in page and "&lt;i&gt;_1_&lt;/i&gt; &amp; more" in page


def test_markdown_has_at_most_120_lines_and_escapes_display_names(view: View) -> None:
    text = pages.markdown(view)
    assert len(text.splitlines()) <= 120
    assert r"\<i>\_1\_\</i> & more" in text
    assert "\n\n\n" not in text and "None" not in text


def test_terminal_answer_fits_a_terminal(view: View) -> None:
    lines = pages.terminal(view).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "TF-IDF" in text or "Best baseline" in text


def test_pages_tell_the_same_scores(view: View, page: str) -> None:
    markdown, terminal = pages.markdown(view), pages.terminal(view)
    for task in view.tasks:
        value = view.models[0].scores[task].estimate.value
        shown = scale_of(view.metrics[task]).shown(value)
        assert shown in page and shown in markdown and shown in terminal


def test_headline_is_about_effects_where_models_differ_in_axes(view: View) -> None:
    """One bold sentence comes first; the other is on the first screen, too."""
    assert view.about_effects
    bold, other = pages.markdown(view).split("\n\n")[1:3]
    assert "pretraining adds" in bold.lower() and bold.startswith("**")
    assert view.labels["encoder_mlm"].split()[0] in other or "TF-IDF" in other


def test_headline_names_the_model_where_a_published_one_is_compared() -> None:
    runs = repeated({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}, 3)
    runs |= {"minilm": public("folder/minilm") | {"seeds": [1, 2, 3]}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EFFECTS, "minilm", 0.2)
        view = View(drawn(raw_params(runs, seeds=[1, 2, 3])))
    assert not view.about_effects
    bold, other = pages.markdown(view).split("\n\n")[1:3]
    assert bold.startswith("**Fine-tune MiniLM") and "clearly ahead" in bold
    assert "retraining adds" in other
    page = pages.html(view, pages.pictures(view))
    wrong = page.index("goes wrong")
    assert wrong < page.index('id="table"')  # on the first screen


def test_scores_table_marks_the_best_of_each_task(view: View) -> None:
    table = tables.scores(view, view.budget, times=False)
    for column, task in enumerate(view.tasks, start=2):
        best = max((row.cells[column] for row in table.rows), key=lambda cell: float(cell.text))
        assert best.best, task


def test_effects_table_has_the_better_level_first(view: View) -> None:
    for row in tables.effects(view).rows:
        compared, difference = row.cells[0].text, row.cells[2].text
        assert " vs. " in compared
        ordered = any(word in compared for word in ("pretrained", "M vs. "))
        assert difference.startswith("+") or ordered


def test_report_of_one_model_says_that_it_compares_nothing() -> None:
    raw = raw_params({"encoder_mlm": RUNS["encoder_mlm"]}) | {"baselines": {}}
    raw["tasks"] = {"type": raw["tasks"]["type"]}
    raw["finetune"]["methods"] = {"full": raw["finetune"]["methods"]["full"]}
    view = View(drawn(raw))
    assert "No two models are alike" in pages.markdown(view)
    Read(pages.html(view, pages.pictures(view)))
    assert len(pages.terminal(view).splitlines()) <= 25
