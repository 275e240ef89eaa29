"""The code that a result comes from, compared with the import linter's graph and with what Python
loads; and what changes a hash."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest

from stages.core.artifacts import sha256
from stages.core.code import EXEMPT, code_hash, code_of, hashes, syntax_hash
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


@pytest.mark.slow
def test_code_of_a_component_has_all_that_is_loaded_when_it_is_used() -> None:
    """Python lists the loaded modules, in a separate process."""
    lines = [
        "import sys, stages.finetune, stages.models.modernbert, stages.tasks.tagging",
        "print(*sorted(m for m in sys.modules if m.startswith('stages.')))",
    ]
    output = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    ).stdout
    loaded = {file_of(module) for module in output.split()}
    exempt = {STAGES / f"{module}.py" for module in EXEMPT}
    code = set(code_of("finetune", "models/modernbert", "tasks/tagging"))
    assert {f for f in loaded if f.name != "__init__.py"} - exempt <= code


def test_exempt_modules_exist() -> None:
    assert all((STAGES / f"{module}.py").is_file() for module in EXEMPT)


# What counts --------------------------------------------------------------------------------------

CODE = "def f(x, y):\n    return g(x, [y, 2.0]) + h['a']\n"


@pytest.mark.parametrize(
    "same",
    [
        "# A comment\n\n" + CODE.replace("\n    return", "  # another\n\n    return"),
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
    assert same != CODE and syntax_hash(same) == syntax_hash(CODE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x + 1", "x - 1"),
        ("x < 1", "x <= 1"),
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = (1, 2)", "x = [1, 2]"),
        ("x = {**a, 1: b}", "x = {1: b, **a}"),
        ("a\nb", "b\na"),
        ("x = f'{a}b'", "x = f'{a}' + 'b'"),
        ("x = f'{a:2}'", "x = f'{a:3}'"),
        ("x: int = 1", "x: float = 1"),
        ("def f(a=1): pass", "def f(*, a=1): pass"),
        ("if a:\n  b\n  c", "if a:\n  b\nc"),
        ("if a:\n  pass\nelse:\n  b", "if a:\n  b"),
        ("x = '''a\n b'''", "x = '''a\n  b'''"),
        ("from a import b", "from .a import b"),
    ],
)
def test_syntax_hash_counts_whatever_changes_a_result(one, other) -> None:
    assert syntax_hash(one) != syntax_hash(other)


# Expected hashes, which every version of Python that runs this test must compute.
SNIPPETS = [
    ("f'{x!r:>{w}.{p}}' f'' 'b' f'{y=}{{{z:}}}'", "6f2498010457fc9b"),
    ("x: A[int, 'B'] = {**a, 1: None, ...: -0.0}", "740a9a543215691c"),
    ("x = (1e999j, 0xFF, 123456789012345678901234567890, True)", "d0a38e4798980d55"),
    ("x = b'\\0' + '\\N{EN DASH}\\ud800\U0001fae8'", "3e189ace35d36f75"),
    ("def f(a, /, b=1, *c, d, e: int = 2, **g) -> None: 'No code'", "26b3f41b4290c720"),
    ("@d\nclass A(B, metaclass=C):\n  x = lambda *, a=1: (yield)", "66a88ca6d937c732"),
    ("match x:\n  case None | {'a': 1, **r} | [_, *_] | A(b=2) if y: pass", "97c1f5b61f0ab8b5"),
    (
        "async def f():\n  async with a as b: return [x[1:, *z] async for x in y if not z]",
        "abc255bbb246f689",
    ),
    (
        "try:\n  del x, (y, z)\nexcept* E as e: raise F from e\nelse: a @= (b := c)",
        "2d77f5ac44421996",
    ),
]


@pytest.mark.parametrize(("source", "expected"), SNIPPETS)
def test_syntax_hash_is_the_same_on_every_version_of_python(source, expected) -> None:
    assert syntax_hash(source)[:16] == expected


def test_hashes_have_each_file() -> None:
    """Modules are hashed by their syntax, templates by their bytes."""
    record = hashes("report")
    assert record["report.py"] == syntax_hash((STAGES / "report.py").read_bytes())
    templates = [name for name in record if not name.endswith(".py")]
    assert templates and all(sha256(STAGES / name) == record[name] for name in templates)
    assert code_hash("report") == code_hash("report") != code_hash("evaluate")
