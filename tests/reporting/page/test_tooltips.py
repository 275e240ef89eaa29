"""Terms of the glossary have a tooltip where they are first read, in the words of the docs."""

import re

from stages.findings.results import Results
from stages.reporting.page import pages
from stages.reporting.page.tooltips import with_tooltips
from stages.reporting.words.glossary import TERMS
from tests.project import ROOT
from tests.study_results import undrawn


def test_with_tooltips_marks_the_first_use_that_is_read() -> None:
    text = (
        "<p hidden>A contrast <b>of one</b>.</p><p><code>contrast</code> and <i>Contrasts</i> "
        "with a pretraining contrast</p>"
    )
    marked = with_tooltips(text, {"contrast": 'says "what"'})
    mark = '<i><abbr title="says &quot;what&quot;">Contrasts</abbr></i>'
    assert marked == text.replace("<i>Contrasts</i>", mark)


def test_terms_stand_in_the_glossary_of_the_docs() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    for term, meaning in TERMS.items():
        assert f"| {term} | {meaning} |" in glossary


def test_each_term_has_at_most_one_tooltip_on_the_page(results: Results) -> None:
    html = pages.html(results, undrawn(results))
    marked = re.findall(r'<abbr title="[^"]+">([^<]+)</abbr>', html)
    names = {name.lower().removesuffix("s") for name in marked}
    assert len(names) == len(marked) > 5
    assert {"trial", "contrast", "holm correction", "classical baseline"} <= names
