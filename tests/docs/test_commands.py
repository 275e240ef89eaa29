"""Blocks of the pages that run or that are settings.

- ```console: its commands run here, in a clone whose params.yaml is the smoke study, and print what
  the page shows. `...` alone on a line matches any lines, within a line any characters.
- ```yaml: it can be part of a params.yaml.

Other blocks are not run.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages.core.params import Params
from stages.core.study_file import read_yaml, typed
from tests.docs.pages import Block, blocks, name, pages
from tests.project import ROOT, Project, clone_of_working_tree
from tests.smoke import SMOKE

CONSOLE = [(page, block) for page in pages() for block in blocks(page) if block.info == "console"]
SETTINGS = [(page, block) for page in pages() for block in blocks(page) if block.info == "yaml"]
OF_OTHER_FILES = {"jobqueue"}  # the first keys of blocks that are no part of params.yaml


def ids(value: object) -> str | None:
    if isinstance(value, Path):
        return name(value)
    return f"line {value.line}" if isinstance(value, Block) else None


def merged(study: Any, changes: Any) -> Any:
    if not (isinstance(study, Mapping) and isinstance(changes, Mapping)):
        return changes
    return {**study, **{key: merged(study.get(key), value) for key, value in changes.items()}}


@pytest.mark.parametrize(("page", "block"), SETTINGS, ids=ids)
def test_settings_in_pages_are_settings_of_a_study(page: Path, block: Block) -> None:
    settings = YAML(typ="safe").load(block.body)
    if not settings.keys() <= OF_OTHER_FILES:
        assert settings.keys() <= {
            field.alias or name for name, field in Params.model_fields.items()
        }
        typed(merged(read_yaml(SMOKE), settings))


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
    parts = ["(?:.*\n)*?" if line == "..." else _line(line) + "\n" for line in lines]
    output = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return re.fullmatch("".join(parts), output) is not None


def _line(line: str) -> str:
    return "[^\n]*".join(re.escape(part) for part in line.split("..."))


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), CONSOLE, ids=ids)
def test_commands_print_what_the_page_shows(page: Path, block: Block, project: Project) -> None:
    project.run("git", "checkout", "--quiet", "--", ".")
    for command, shown in commands(block):
        printed = project.run("bash", "-c", command, check="error: " not in shown)
        assert matches(shown, printed), f"{shlex.quote(command)} prints\n{printed}"


def test_readme_and_data_formats_have_commands_that_run() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "data_formats.md"} <= {page for page, _ in CONSOLE}
