"""The code that a result comes from: a stage's module, the modules it imports, and their imports.

The root stage writes the hashes of each stage's modules into its plan, and DVC reruns a stage when
its plan changes. Imports are read from the source, so no stage declares its code, and dvc.lock
holds one record per stage.

A module's hash covers its syntax tree, not its bytes. Comments, docstrings, blank lines and
formatting (line breaks, quotes, parentheses, trailing commas) change no hash. Type annotations
count: pydantic and the schemas of components read them. The hash is the same on every supported
version of Python.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import groupby
from pathlib import Path

from stages.core import paths
from stages.core.artifacts import read_json, replacing, sha256, write_json
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
        imported = {name for module in waiting for name in _imports(module)}
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


def syntax_hash(source: str | bytes) -> str:
    """Returns a hash of Python source that ignores comments, docstrings and formatting.

    Raises SyntaxError for source that does not parse.
    """
    digest = hashlib.sha256()
    # ast.dump differs between versions of Python. Here empty fields are left out, because fields
    # that a new version adds are empty for source that earlier versions accept.
    for node in ast.walk(_Effective().visit(ast.parse(source))):
        digest.update(type(node).__name__.encode())
        for name, value in ast.iter_fields(node):
            if name == "kind" or (value is None and not isinstance(node, ast.Constant)):
                continue
            # Child nodes are hashed when ast.walk reaches them. The escapes of ascii, unlike
            # those of repr, do not depend on the version's Unicode tables.
            items = [
                "node" if isinstance(item, ast.AST) else (type(item).__name__, ascii(item))
                for item in (value if isinstance(value, list) else [value])
            ]
            if items:
                digest.update(f" {name} {items}".encode())
        digest.update(b"\n")
    return digest.hexdigest()


class _Effective(ast.NodeTransformer):
    """Leaves out statements without effect: docstrings, other constants (``...``) and ``pass``."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Joins the constant parts of an f-string, which versions of Python split differently."""
        values: list[ast.expr] = []
        for text, parts in groupby(node.values, key=lambda value: isinstance(value, ast.Constant)):
            if not text:
                values += parts
            elif joined := "".join(str(ast.literal_eval(part)) for part in parts):
                values.append(ast.Constant(joined))
        node.values = values
        return self.generic_visit(node)


@cache
def _parsed(file: Path) -> tuple[str, list[str]]:
    """Returns the hash of a module and the names of this project that it imports, which may be
    modules. Both are stored under the hash of the source, this file and the version of Python."""
    source = file.read_bytes()
    own = sys.version.encode() + Path(__file__).read_bytes()
    stored = PARSED / f"{hashlib.sha256(own + source).hexdigest()}.json"
    with suppress(OSError, ValueError, KeyError):  # the file is missing or damaged
        known = read_json(stored)
        return known["hash"], known["names"]
    names = sorted({name for name in _names(ast.parse(source)) if name.startswith("stages.")})
    digest = syntax_hash(source)
    with suppress(OSError), replacing(stored) as new:  # without the file, only time is lost
        write_json(new, {"hash": digest, "names": names})
    return digest, names


def _imports(module: str) -> set[str]:
    """Returns the modules below ``stages/`` that a module imports, at its top or inside
    functions."""
    _, names = _parsed(STAGES / f"{module}.py")
    modules = (name.removeprefix("stages.").replace(".", "/") for name in names)
    return {name for name in modules if (STAGES / f"{name}.py").is_file()}


def _names(tree: ast.Module) -> Iterator[str]:
    """Yields all imported names that may be modules: in ``from stages.text import batch``, both
    ``stages.text`` and ``stages.text.batch``. Imports for type checkers alone do not count."""
    hidden = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and node not in hidden:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node not in hidden:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
