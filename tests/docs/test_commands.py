"""Blocks of the pages that run or that are settings.

- ```console: its commands run here, in a clone whose params.yaml is the smoke study, and print what
  the page shows. `...` alone on a line matches any lines, within a line any characters.
- ```yaml: it can be part of a params.yaml.

Other blocks are not run.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages.core.params import Params
from stages.core.study_file import read_yaml, typed
from tests.docs.pages import Block, blocks, name, pages
from tests.project import ROOT, Project, clone_of_working_tree
from tests.smoke import SMOKE


def blocks_of(info: str) -> list[Any]:
    """Returns the blocks of this kind in all pages, as parameters of a test."""
    return [
        pytest.param(block, id=f"{name(page)} line {block.line}")
        for page in pages()
        for block in blocks(page)
        if block.info == info
    ]


OF_OTHER_FILES = {"jobqueue"}  # the first keys of blocks that are no part of params.yaml


def merged(study: Any, changes: Any) -> Any:
    if not (isinstance(study, Mapping) and isinstance(changes, Mapping)):
        return changes
    return {**study, **{key: merged(study.get(key), value) for key, value in changes.items()}}


@pytest.mark.parametrize("block", blocks_of("yaml"))
def test_settings_in_pages_are_settings_of_a_study(block: Block) -> None:
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
    for page in (ROOT / "README.md", ROOT / "docs" / "data_formats.md"):
        assert any(block.info == "console" for block in blocks(page)), name(page)
