"""The commands of the pages. A block is one of

- ```console: it runs here, in a clone whose params.yaml is the smoke study, and prints what the
  page shows. `...` on a line stands for any lines, within a line for any characters.
- any other block with a command (a line that begins with `$ `, or the language sh): the paragraph
  before or behind it says `Not run in the tests.`
"""

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.pages import NOT_RUN, Block, blocks, name, pages
from tests.project import ROOT, Project, clone_of_working_tree

pytestmark = pytest.mark.slow

CONSOLE = [(page, block) for page in pages() for block in blocks(page) if block.info == "console"]


def has_commands(block: Block) -> bool:
    return block.info in ("sh", "bash", "shell") or bool(re.search(r"^\$ ", block.body, re.M))


@pytest.mark.parametrize("page", pages(), ids=name)
def test_commands_run_here_or_are_marked(page: Path) -> None:
    unmarked = [
        f"line {block.line}"
        for block in blocks(page)
        if has_commands(block)
        and (block.info == "console") == (NOT_RUN in block.before + block.after)
    ]
    assert not unmarked


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return clone_of_working_tree(tmp_path_factory.mktemp("docs") / "clone")


def commands(block: Block) -> list[tuple[str, str]]:
    """(command, what it prints), in their order."""
    found: list[tuple[str, str]] = []
    for line in block.body.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found[-1][0].endswith("\\\n"):
            found[-1] = (found[-1][0] + line, "")
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def matches(shown: str, printed: str) -> bool:
    """Blanks at the ends of lines do not count."""
    lines = [line.rstrip() for line in shown.strip().splitlines()]
    parts = ["(?:.*\n)*?" if line == "..." else _line(line) + "\n" for line in lines]
    output = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return re.fullmatch("".join(parts), output) is not None


def _line(line: str) -> str:
    return "[^\n]*".join(re.escape(part) for part in line.split("..."))


def ids(value: object) -> str | None:
    if isinstance(value, Path):
        return name(value)
    return f"line {value.line}" if isinstance(value, Block) else None


@pytest.mark.parametrize(("page", "block"), CONSOLE, ids=ids)
def test_commands_print_what_the_page_shows(page: Path, block: Block, project: Project) -> None:
    project.run("git", "checkout", "--quiet", "--", ".")
    for command, shown in commands(block):
        printed = project.run("bash", "-c", command, check="error: " not in shown)
        assert matches(shown, printed), f"{shlex.quote(command)} prints\n{printed}"


def test_the_comparison_of_outputs() -> None:
    assert matches("a\n...\nd", "a\nb\nc\nd\n") and matches("a ... c", "a b c")
    assert not matches("a\n...\nd", "a\nb\n") and not matches("a", "a\nb\n")


def test_there_are_commands_that_run() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "data_formats.md"} <= {page for page, _ in CONSOLE}
