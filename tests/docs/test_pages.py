"""The Markdown files that people read: links, names of files, examples, settings and commands.

- ```console: its commands run here, in a clone whose params.yaml is the smoke study, and print what
  the page shows. `...` alone on a line matches any lines, within a line any characters.
- ```yaml: it can be part of a params.yaml.

Other blocks are not run; those of docs/extending.md are files that tests/test_extension.py uses.
"""

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
from ruamel.yaml import YAML

from stages import resolve
from stages.core.params import Params
from stages.core.study_file import read_yaml, typed
from tests.project import ROOT, Project, clone_of_working_tree
from tests.smoke import SMOKE

FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
# A file of the repository that is named in the text: `stages/objectives/mlm.py`.
NAMED = re.compile(r"(?:stages|studies|tests|benchmarks|docs)/[\w/.-]*[\w/]")
MADE = re.compile(r"^`((?:stages|tests)/[\w/.-]+)`:$", re.M)  # files that a reader makes
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PAGES = sorted(chain((ROOT / name for name in TOP), *map(ROOT.glob, ("docs/*.md", "bench*/*.md"))))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """Returns the text without fenced blocks."""
    return FENCE.sub("", text_of(page))


class Block(NamedTuple):
    """A fenced block of a page."""

    info: str
    body: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = text_of(page)
    for fenced in FENCE.finditer(text):
        line = text.count("\n", 0, fenced.start()) + 1
        yield Block(fenced["info"].strip(), fenced["body"], line)


# Links and files


def links_of(page: Path) -> list[str]:
    """Returns the links to the project's own files; no network is used."""
    links = LINK.findall(CODE.sub("", prose(page)))
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ +(.*)$", prose(page), re.M)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_names_of_files_lead_to_a_file_and_a_heading(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() and (not anchor or anchor in anchors(target)), link
    if page.parent.name != "benchmarks":
        made = {file for each in PAGES for file in MADE.findall(text_of(each))}
        named = {word for code in CODE.findall(prose(page)) for word in NAMED.findall(code)}
        files = [path for path in named - made if not re.search("[A-Z]{2}", path)]  # NAME.yaml
        assert not [path for path in files if not (ROOT / path).exists()]


def test_pages_of_the_site_link_to_one_another_and_are_in_its_contents() -> None:
    """The generator knows no file outside docs/."""
    site = [*ROOT.glob("docs/*.md")]
    for page in site:
        assert not [link for link in links_of(page) if "/" in link], name(page)
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert {page.name for page in site} == set(re.findall(r"[\w-]+\.md", contents))
    assert len(text_of(ROOT / "README.md").splitlines()) <= 80


def test_tables_and_numbers_are_those_of_the_files() -> None:
    command = [sys.executable, "benchmarks/results.py", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


# Examples and settings

FILE = re.compile(r"^`(stages/\w+/\w+\.py)`:\n\n```python\n(.*?)^```$", re.M | re.S)
EXAMPLES = dict(FILE.findall(text_of(ROOT / "docs/extending.md")))
FOLDERS = ("baselines", "methods", "models", "objectives", "optimizers", "sources", "tasks")
OF_OTHER_FILES = {"jobqueue"}  # the first keys of blocks that are no part of params.yaml


def test_extending_has_a_file_with_one_public_class_for_each_folder() -> None:
    """An example that is a file of the project is this file, word for word."""
    assert sorted(path.split("/")[1] for path in EXAMPLES) == sorted(FOLDERS)
    for path, text in EXAMPLES.items():
        assert not (ROOT / path).exists() or text_of(ROOT / path) == text
        classes = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        assert len([name for name in classes if not name.startswith("_")]) == 1


def blocks_of(info: str) -> list[Any]:
    """Returns the blocks of this kind in all pages, as parameters of a test."""
    return [
        pytest.param(block, id=f"{name(page)} line {block.line}")
        for page in PAGES
        for block in blocks(page)
        if block.info == info
    ]


def merged(study: Any, changes: Any) -> Any:
    if not (isinstance(study, Mapping) and isinstance(changes, Mapping)):
        return changes
    return {**study, **{key: merged(study.get(key), value) for key, value in changes.items()}}


@pytest.mark.parametrize("block", blocks_of("yaml"))
def test_settings_in_pages_are_settings_of_a_study(block: Block) -> None:
    settings = YAML(typ="safe").load(block.body)
    if not settings.keys() <= OF_OTHER_FILES:
        fields = {field.alias or name for name, field in Params.model_fields.items()}
        assert settings.keys() <= fields
        typed(merged(read_yaml(SMOKE), settings))


@pytest.mark.slow
def test_resolve_accepts_the_study_of_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = next(b.body for b in blocks(ROOT / "docs/tutorial.md") if b.info == "yaml")
    Path("params.yaml").write_text(study)
    Path("requirements.lock").write_bytes((ROOT / "requirements.lock").read_bytes())
    rows = [f"text {i},{('negative', 'positive')[i % 2]}" for i in range(600)]
    Path("reviews.csv").write_text("\n".join(["text,label", *rows]))
    Path("mytext").mkdir()
    Path("mytext/reviews.txt").write_text("A text.\n\nAnother one.\n")
    resolve.main()


# Commands


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return clone_of_working_tree(tmp_path_factory.mktemp("docs") / "clone")


def commands(block: Block) -> list[tuple[str, str]]:
    """Returns each command with what the page shows as its output."""
    pairs: list[tuple[str, str]] = []
    for line in block.body.splitlines(keepends=True):
        if line.startswith("$ "):
            pairs.append((line[2:], ""))
        elif pairs[-1][0].endswith("\\\n"):
            pairs[-1] = (pairs[-1][0] + line, "")
        else:
            pairs[-1] = (pairs[-1][0], pairs[-1][1] + line)
    return pairs


def matches(shown: str, printed: str) -> bool:
    """Returns whether the output is what the page shows; blanks at the ends of lines do not
    count."""
    lines = [line.rstrip() for line in shown.strip().splitlines()]
    escaped = ["[^\n]*".join(map(re.escape, line.split("..."))) + "\n" for line in lines]
    parts = ["(?:.*\n)*?" if line == "..." else e for line, e in zip(lines, escaped, strict=True)]
    output = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return re.fullmatch("".join(parts), output) is not None


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks_of("console"))
def test_commands_print_what_the_page_shows(block: Block, project: Project) -> None:
    project.run("git", "checkout", "--quiet", "--", ".")
    for command, shown in commands(block):
        printed = project.run("bash", "-c", command, check="error: " not in shown)
        assert matches(shown, printed), f"{shlex.quote(command)} prints\n{printed}"


def test_readme_and_data_formats_have_commands_that_run() -> None:
    for page in (ROOT / "README.md", ROOT / "docs/data_formats.md"):
        assert any(block.info == "console" for block in blocks(page)), name(page)
