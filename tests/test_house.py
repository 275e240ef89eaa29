"""House rules that no linter knows."""

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from stages.core.components import STAGES

ROOT = STAGES.parent
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "manager", "engine", "mode", "args"}


def python_files() -> list[Path]:
    return sorted(chain(STAGES.rglob("*.py"), (ROOT / "tests").rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_packages_run_no_code_of_their_own() -> None:
    """No stage depends on an ``__init__.py`` but that of ``stages``, which starts a stage."""
    for file in sorted({*STAGES.rglob("__init__.py")} - {STAGES / "__init__.py"}):
        assert all(isinstance(node, ast.Expr) for node in parsed(file).body), file


def test_benchmarks_import_what_is_there() -> None:
    """Benchmarks are run by hand, so no other test would notice."""
    for file in sorted((ROOT / "benchmarks").glob("*.py")):
        for node in ast.walk(parsed(file)):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            top = node.module.partition(".")[0]
            if top in ("benchmarks", "stages", "tests"):
                module = ROOT / node.module.replace(".", "/")
                assert module.with_suffix(".py").exists() or module.is_dir(), (file, node.module)


# Docstrings with these beginnings need two readings.
BEGINNINGS = ("Of ", "By ", "Those ", "The same ", "As ", "So that ", "Which ")
VAGUE = {"found", "told", "asked", "there", "each"}  # names of locals that say nothing


def vague_locals(function: ast.FunctionDef) -> set[str]:
    """Returns the ``VAGUE`` names that statements of a function assign. A comprehension, which is
    read at one glance, may use them."""
    targets: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr):
            targets.append(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars:
            targets.append(node.optional_vars)
    names = (node for target in targets for node in ast.walk(target))
    return {node.id for node in names if isinstance(node, ast.Name)} & VAGUE


@pytest.mark.parametrize("file", python_files(), ids=relative)
def test_docstrings_and_locals_are_plain_english(file: Path) -> None:
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            docstring = ast.get_docstring(node) or ""
            assert not docstring.startswith(BEGINNINGS), docstring.splitlines()[0]
        if isinstance(node, ast.FunctionDef):
            assert not vague_locals(node), node.name


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)}


@pytest.mark.slow
def test_names_say_what_things_are() -> None:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for file in python_files():
        defined = [node.name for node in ast.walk(parsed(file)) if isinstance(node, definitions)]
        for name in [*file.relative_to(ROOT).with_suffix("").parts, *defined]:
            assert not words(name) & FORBIDDEN, f"{relative(file)}: {name}"
