"""The examples of docs/extending.md, which tests/test_extension.py runs."""

import ast
import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
EXAMPLES = dict(
    re.findall(r"^`(stages/\w+/\w+\.py)`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
FOLDERS = (
    "objectives",
    "models",
    "tasks",
    "methods",
    "sources",
    "baselines",
    "optimizers",
)


def test_extending_has_an_example_for_each_folder_of_components() -> None:
    assert sorted(path.split("/")[1] for path in EXAMPLES) == sorted(FOLDERS)


@pytest.mark.parametrize("path", EXAMPLES)
def test_extending_examples_are_files_with_one_public_class(path: str) -> None:
    """An example that is a file of the project is this file, word for word."""
    if (ROOT / path).exists():
        assert (ROOT / path).read_text(encoding="utf-8") == EXAMPLES[path]
    defined = [node for node in ast.parse(EXAMPLES[path]).body if isinstance(node, ast.ClassDef)]
    assert len([node for node in defined if not node.name.startswith("_")]) == 1
