"""House rules that no linter knows, and the tools of the tests themselves."""

import ast
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import grimp
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, Int
from torch import Tensor

from stages.core.components import STAGES, Components
from stages.reporting.formats import percent
from tests.checker import checked

ROOT = STAGES.parent
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "manager", "engine", "mode", "args"}
FOLDERS = ("sources", "models", "objectives", "optimizers", "tasks", "methods", "baselines")


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


def test_components_never_import_one_another() -> None:
    """import-linter's layers (pyproject.toml) do not cover this."""
    imports = grimp.build_graph("stages", cache_dir=None)
    for folder in FOLDERS:
        components = {f"stages.{folder}.{name}" for name in Components(folder).names()}
        assert components
        for component in components:
            neighbours = imports.find_modules_directly_imported_by(component) & components
            assert not neighbours, f"{component} imports {neighbours}; share it in a _file.py"


def names_in(module: ast.Module) -> set[str]:
    """Returns the names that a module defines, assigns or imports."""
    names = set[str]()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return names


def test_benchmarks_import_what_exists() -> None:
    """Benchmarks are run by hand, so no other test would notice."""
    for file in sorted((ROOT / "benchmarks").glob("*.py")):
        for node in ast.walk(parsed(file)):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            if node.module.partition(".")[0] in ("benchmarks", "stages", "tests"):
                module = ROOT / node.module.replace(".", "/")
                source = module.with_suffix(".py")
                known = names_in(parsed(source)) if source.exists() else set()
                for alias in node.names:
                    is_module = (module / alias.name).with_suffix(".py").exists()
                    assert alias.name in known or is_module, (file, node.module, alias.name)


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
def test_names_and_docstrings_are_plain_english(file: Path) -> None:
    defined = [*file.relative_to(ROOT).with_suffix("").parts]
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            docstring = ast.get_docstring(node) or ""
            assert not docstring.startswith(BEGINNINGS), docstring.splitlines()[0]
        if isinstance(node, ast.FunctionDef):
            assert not vague_locals(node), node.name
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.append(node.name)
    for name in defined:
        words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
        assert not {word.lower() for word in words} & FORBIDDEN, name


# The Makefile

NAMES = ["$(touch RAN).csv", 'a"; touch RAN; ".csv', "a'b $HOME.csv", "-x.csv"]
NEW, PREDICT = ["-m", "stages.commands.new"], ["-m", "stages.commands.predict"]
REPRO = ["-m", "stages.commands.repro", "--jobs", "auto"]


@pytest.mark.slow
def test_make_gives_no_file_name_to_a_shell_and_leaves_out_what_is_not_given(
    tmp_path: Path,
) -> None:
    """The interpreter prints its arguments, one on a line."""
    shutil.copyfile(ROOT / "Makefile", tmp_path / "Makefile")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nif test "$1" = -c; then echo key; else printf "%s\\n" "$@"; fi\n')
    python.chmod(0o755)
    (tmp_path / ".venv/installed").write_text("key\n")

    def printed(*arguments: str) -> list[str]:
        command = ["make", "--no-print-directory", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    for name in NAMES:
        new = printed("new", f"DATA={name}", f"TEXT={name}", "FLAGS=--label a")
        assert new == [*NEW, f"--corpus={name}", "--minutes", "10", "--label", "a", "--", name]
        assert printed("repro", f"STUDY={name}")[:5] == [*REPRO, f"--study={name}"]
        predict = printed("predict", f"DATA={name}", f"MODEL={name}", f"TASK={name}")
        assert predict == [*PREDICT, f"--model={name}", f"--task={name}", "--", name]
    assert not (tmp_path / "RAN").exists()
    assert printed("new") == [*NEW, "--minutes", "10"] and printed("predict") == PREDICT
    assert printed("repro")[:5] == [*REPRO, "-m"]  # then the summary


# Types and shapes that tests check

TWO, THREE, SQUARE = torch.zeros(2), torch.zeros(3), torch.zeros(2, 2)


@checked()
def scaled(rows: Float[Tensor, "B T"], by: "Float[Tensor, ' B']") -> Float[Tensor, "B T"]:
    return rows * by[:, None] if by.any() else rows.sum(0, keepdim=True)


@checked()
@dataclass(frozen=True)
class Pair:
    a: Int[Tensor, " N"]
    b: Int[Tensor, " N"]


def test_checked_functions_and_dataclasses_refuse_other_types_and_shapes() -> None:
    for size in (2, 3):
        assert scaled(torch.zeros(size, 4), torch.ones(size)).shape == (size, 4)
    for rows, by in ((SQUARE, THREE), (TWO, TWO), (SQUARE.long(), TWO), (SQUARE, "two")):
        with pytest.raises(BeartypeCallHintViolation, match="parameter"):
            scaled(rows, by)
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        scaled(SQUARE, TWO)
    with pytest.raises(BeartypeCallHintViolation, match="parameter"):
        Pair(TWO.long(), THREE.long())
    with pytest.raises(BeartypeCallHintViolation):
        percent("1")  # type: ignore[arg-type]
