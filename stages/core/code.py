"""The code that a result comes from: a stage's file, all that it imports, and what those import.

``check_params`` writes the hashes of each stage's files into ``data/code/``, and DVC runs a stage
again when its own record changes. So that which code a stage depends on is derived and not
declared, and dvc.lock holds one line of it per stage rather than twenty.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from stages.core.artifacts import sha256
from stages.core.components import STAGES
from stages.core.params import Params

# Their edit must run nothing again.
EXEMPT = {
    "check_params": "refuses what is wrong, and else changes no result",
    "core/code": "says what results come from and makes none",
    "core/components": "builds what is named from checked values",
    "core/params": "checks values, which stand in the commands, and passes them on",
    "core/process": "parses a stage's command, and ends it",
    "tracking/records": "says what MLflow shows of results",
    "tracking/store": "connects to MLflow",
    "tracking/tracker": "mirrors the curves of a pretraining to MLflow",
    "tracking/view": "shows results and makes none",
}


def code_of(*modules: str) -> list[Path]:
    """The files below ``stages/`` that run when ``modules`` do, such as ``pretrain`` and
    ``models/encoder``: components, being looked up by name, are told. A folder's files that are no
    Python (templates) are of each of its modules."""
    found: set[str] = set()
    waiting = set(modules)
    while waiting:
        found |= waiting
        waiting = {name for module in waiting for name in _imports(module)} - found - EXEMPT.keys()
    files = {_file(module) for module in found}
    templates = {path for file in files for path in file.parent.glob("*.jinja")}
    return sorted(files | templates)


def hashes(*modules: str) -> dict[str, str]:
    """The hash of each of these files, by its path below ``stages/``."""
    return {file.relative_to(STAGES).as_posix(): _hash(file) for file in code_of(*modules)}


def code_by_stage(params: Params) -> dict[str, list[str]]:
    """The components that each stage of dvc.yaml (``stage`` or ``stage/key``) looks up by name.

    A checkpoint and a prepared task hold the hashes of the code of their model and of their task,
    so that fine-tuning, which depends on both, need not name them.
    """
    sources = [f"sources/{corpus.source['name']}" for corpus in params.corpora.values()]
    found = {
        f"prepare_corpus/{key}": [source]
        for key, source in zip(params.corpora, sources, strict=True)
    }
    for key, task in params.tasks.items():
        components = [f"sources/{task.source['name']}", f"tasks/{task.task['name']}"]
        found[f"prepare_task/{key}"] = components
    for key, run in params.pretrain.items():
        components = [f"models/{run.model['name']}", f"objectives/{run.objective['name']}"]
        found[f"pretrain/{key}"] = components
    baselines = {f"baselines/{baseline['name']}" for baseline in params.baselines.values()}
    methods = {f"methods/{entry.method['name']}" for entry in params.finetune.methods.values()}
    alone = ("train_tokenizer", "measure_contamination", "evaluate", "report")
    return (
        found
        | dict.fromkeys(alone, [])
        | {
            "encode_corpus": sorted({*sources}),
            "fit_baseline": sorted(baselines),
            "finetune": sorted(methods),
        }
    )


@cache
def _hash(file: Path) -> str:
    return sha256(file)


def _file(module: str) -> Path:
    return STAGES / f"{module}.py"


@cache
def _imports(module: str) -> frozenset[str]:
    """The modules below ``stages/`` that one imports, wherever in it the import stands."""
    tree = ast.parse(_file(module).read_text(encoding="utf-8"))
    named = {name.removeprefix("stages.").replace(".", "/") for name in _names(tree)}
    return frozenset(name for name in named if _file(name).is_file())


def _names(tree: ast.Module) -> Iterator[str]:
    """``from stages.text import batch`` may name a module or what is in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
