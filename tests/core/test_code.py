"""The code that a result comes from, compared with the import linter's graph; and what changes a
hash."""

from functools import cache
from pathlib import Path

import grimp
import pytest

from stages.core.artifacts import sha256
from stages.core.code import EXEMPT, code_hash, code_of, effective, hashes, syntax_hash
from stages.core.components import STAGES

ROOT = STAGES.parent


@cache
def imports() -> grimp.ImportGraph:
    graph = grimp.build_graph("stages", cache_dir=None, exclude_type_checking_imports=True)
    for module in EXEMPT:
        graph.remove_module(f"stages.{module.replace('/', '.')}")
    return graph


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


MODULES = [
    path.relative_to(STAGES).with_suffix("").as_posix()
    for path in sorted(STAGES.rglob("*.py"))
    if path.stem != "__init__"
]


def test_code_of_a_module_is_all_that_it_imports() -> None:
    for module in MODULES:
        if module in EXEMPT:
            continue
        name = f"stages.{module.replace('/', '.')}"
        upstream = {file_of(m) for m in {name} | imports().find_upstream_modules(name)}
        code = {file for file in code_of(module) if file.suffix == ".py"}
        assert code == {file for file in upstream if file.name != "__init__.py"}, module


def test_exempt_modules_exist() -> None:
    assert all((STAGES / f"{module}.py").is_file() for module in EXEMPT)


# What counts --------------------------------------------------------------------------------------

CODE = "def f(x, y):\n    return g(x, [y, 2.0]) + h['a']\n"


def hash_of(source: str) -> str:
    return syntax_hash(effective(source))


@pytest.mark.parametrize(
    "same",
    [
        "# A comment\n\n" + CODE.replace("\n    return", "  # another\n\n    return"),
        "if TYPE_CHECKING:\n    import a\n" + CODE,
        '"""A module."""\n' + CODE,
        CODE.replace("    return", "    'A function.'\n    return"),
        CODE.replace("    return", "    pass\n    return"),
        CODE.replace("    return", "  return"),
        CODE.replace("\n", "\r\n"),
        CODE.replace("'a'", '"a"').replace("2.0", "2_0e-1"),
        CODE.replace("'a'", "('' 'a')"),
        CODE.replace("[y, 2.0])", "\n  [\n    (y),\n    2.0,\n  ],\n )"),
    ],
)
def test_syntax_hash_does_not_count_comments_docstrings_and_formatting(same) -> None:
    assert same != CODE and hash_of(same) == hash_of(CODE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x + 1", "x - 1"),
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = (1, 2)", "x = [1, 2]"),
        ("x = {**a, 1: b}", "x = {1: b, **a}"),
        ("a\nb", "b\na"),
        ("x = f'{a}b'", "x = f'{a}' + 'b'"),
        ("x: int = 1", "x: float = 1"),
        ("def f(a=1): pass", "def f(*, a=1): pass"),
        ("if a:\n  pass\nelse:\n  b", "if a:\n  b"),
        ("x = '''a\n b'''", "x = '''a\n  b'''"),
        ("from a import b", "from .a import b"),
    ],
)
def test_syntax_hash_counts_whatever_changes_a_result(one, other) -> None:
    assert hash_of(one) != hash_of(other)


def test_hashes_have_each_file() -> None:
    """Modules are hashed by their syntax, templates by their bytes."""
    record = hashes("report")
    assert record["report.py"] == hash_of((STAGES / "report.py").read_text())
    templates = [name for name in record if not name.endswith(".py")]
    assert templates and all(sha256(STAGES / name) == record[name] for name in templates)
    assert code_hash("report") == code_hash("report") != code_hash("evaluate")
