"""Links between the project's pages lead to files and headings; no network is used."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import ROOT, name, pages, prose, text_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
# A file of the repository that is named in the text: `stages/objectives/mlm.py`.
NAMED = re.compile(r"(?:stages|studies|tests|benchmarks|docs)/[\w/.-]*[\w/]")
EXAMPLES = re.compile(r"^`((?:stages|tests)/[\w/.-]+)`:$", re.M)  # files that a reader makes
README_LINES = 80


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ +(.*)$", prose(page), re.M)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}


def broken(page: Path) -> list[str]:
    """Returns the relative links of a page that lead to no file or to no heading."""
    links = []
    for link in LINK.findall(CODE.sub("", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            links.append(link)
    return links


@pytest.mark.parametrize("page", pages(), ids=name)
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    assert not broken(page)


@pytest.mark.parametrize("page", [p for p in pages() if p.parent.name != "benchmarks"], ids=name)
def test_pages_name_files_that_exist(page: Path) -> None:
    made = {file for each in pages() for file in EXAMPLES.findall(text_of(each))}
    named = {word for code in CODE.findall(prose(page)) for word in NAMED.findall(code)}
    files = (path for path in named - made if not re.search(r"[A-Z]{2}", path))  # studies/NAME.yaml
    assert not [path for path in files if not (ROOT / path).exists()]


def test_pages_of_the_site_link_to_pages_of_the_site_and_are_in_its_contents() -> None:
    """The generator knows no file outside docs/."""
    site = [*ROOT.glob("docs/*.md")]
    for page in site:
        links = [link for link in LINK.findall(CODE.sub("", prose(page))) if "/" in link]
        assert not [link for link in links if not re.match(r"[a-z]+:", link)], name(page)
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert {page.name for page in site} == set(re.findall(r"[\w-]+\.md", contents))


def test_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= README_LINES
