"""The code that a result comes from: a stage's module, the modules it imports, and their imports.

The root stage writes the hashes of each stage's modules into its plan, and DVC reruns a stage when
its plan changes. Imports are read from the source, so no stage declares its code.

A module's hash covers its syntax tree, not its bytes. Comments, docstrings, blank lines and
formatting (line breaks, quotes, parentheses, trailing commas) change no hash. Type annotations
count: pydantic and the schemas of components read them.
"""

import ast
import hashlib
import json
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import Json, read_json, replacing, sha256, write_json
from stages.core.components import STAGES

# A cache: the hash and the imports of each module, in a file named by the hash of its source.
# Parsing all sources takes two seconds, and every stage and every trial needs some of the hashes.
PARSED = STAGES.parent / paths.SCRATCH / "parsed"

# Modules that belong to no stage's code, and why editing them changes no result.
EXEMPT = {
    "resolve": "rejects invalid params and writes the plans of the other stages",
    "core/code": "computes these hashes",
    "core/components": "builds components from settings that are already validated",
    "core/ending": "ends processes with their parents and by signals",
    "core/inheritance": "fills in settings, which stages get in their plans",
    "core/keys": "names what results belong to",
    "core/params": "validates values; stages get the same values in their plans",
    "core/study_file": "reads and validates params.yaml; stages get its values in their plans",
    "core/plans": "validates the plans, which hold the settings",
    "core/process": "parses the command line and sets the exit status",
    "tracking/records": "describes finished results for MLflow",
    "tracking/store": "connects to MLflow",
    "tracking/tracker": "mirrors the curves of a pretraining to MLflow",
    "tracking/view": "copies finished results to MLflow",
    "trials/store": "keeps finished trials and computes none",
}


def code_of(*modules: str) -> list[Path]:
    """Returns the files below ``stages/`` that ``modules`` (``pretrain``, ``models/encoder``) run.

    Components are looked up by name and not imported, so the caller lists them. The templates of a
    folder belong to each of its modules.
    """
    reached, waiting = set[str](), {*modules}
    while waiting:
        reached |= waiting
        imported = {name for module in waiting for name in _parsed(STAGES / f"{module}.py")[1]}
        waiting = imported - reached - EXEMPT.keys()
    files = {STAGES / f"{module}.py" for module in reached}
    templates = {path for file in files for path in file.parent.glob("*.jinja")}
    return sorted(files | templates)


def hashes(*modules: str) -> dict[str, str]:
    """Returns the hash of each file of ``code_of``, by its path below ``stages/``."""
    return {
        file.relative_to(STAGES).as_posix(): (
            _parsed(file)[0] if file.suffix == ".py" else sha256(file)
        )
        for file in code_of(*modules)
    }


def code_hash(*modules: str) -> str:
    """Returns one hash of all files of ``code_of``."""
    return hashlib.sha256(json.dumps(hashes(*modules)).encode()).hexdigest()


@cache
def _parsed(file: Path) -> tuple[str, list[str]]:
    """Returns the hash of a module and the modules below ``stages/`` that it imports, at its top or
    inside functions. Both are stored under the hash of the source, this file and Python's version.
    """
    source = file.read_bytes()
    own = sys.version.encode() + Path(__file__).read_bytes()
    stored = PARSED / f"{hashlib.sha256(own + source).hexdigest()}.json"
    try:
        parsed = read_json(stored)
    except (OSError, ValueError):  # the file is missing or damaged
        tree = effective(source)
        names = {name for node in ast.walk(tree) for name in _imported(node)}
        parsed = Json(hash=syntax_hash(tree), names=sorted(names))
        with suppress(OSError), replacing(stored) as new:  # without the file, only time is lost
            write_json(new, parsed)
    modules = (name.replace(".", "/") for name in parsed["names"])
    return parsed["hash"], [name for name in modules if (STAGES / f"{name}.py").is_file()]


def effective(source: str | bytes) -> ast.Module:
    """Returns the syntax tree of Python source without what has no effect: docstrings, other
    constants (``...``), ``pass``, and what is for type checkers alone."""
    return _Effective().visit(ast.parse(source))


def syntax_hash(tree: ast.Module) -> str:
    """Returns a hash of a tree. ``ast.unparse`` writes equal trees as equal text."""
    return hashlib.sha256(ast.unparse(tree).encode("utf-8", "backslashreplace")).hexdigest()


class _Effective(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_unseen = ast.unparse(node.test) == "TYPE_CHECKING"
        return None if is_unseen else self.generic_visit(node)


def _imported(node: ast.AST) -> list[str]:
    """Returns the names below ``stages`` that a statement imports, which may be modules: in ``from
    stages.text import batch``, both ``text`` and ``text.batch``."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name.removeprefix("stages.") for name in names if name.startswith("stages.")]
