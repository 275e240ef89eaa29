"""House rules that no linter knows: names, and which files each DVC stage depends on."""

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

import grimp
import pytest
from ruamel.yaml import YAML

from stages.components import STAGES, names

ROOT = STAGES.parent
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "manager", "engine", "mode", "args"}
FOLDERS = sorted({path.parent.name for path in STAGES.glob("*/_[!_]*.py")})  # of components

# Their edit must not run anything again.
EXEMPT = {
    "stages.params": "checks values, which stand in the commands, and passes them on",
    "stages.components": "builds what is named from checked values",
    "stages.process": "parses a stage's command, and ends it",
    "stages.training.tracking": "shows results and makes none",
}
# Components that a stage builds though dvc.yaml does not name their files to it.
INDIRECT = {
    ("finetune", "models"): "data/pretrained/RUN depends on the model's file and holds its hash",
    ("finetune", "tasks"): "data/tasks/TASK/examples holds the hash of the task's file",
}


def stages_of_dvc() -> dict[str, list[str]]:
    """Stage -> its dependencies that are code."""
    stages = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    bodies = {name: stage.get("do", stage) for name, stage in stages.items()}
    return {
        name: [path for path in body["deps"] if path.startswith("stages/")]
        for name, body in bodies.items()
    }


STAGES_OF_DVC = stages_of_dvc()


def python_files() -> list[Path]:
    return sorted(chain(STAGES.rglob("*.py"), (ROOT / "tests").rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports() -> grimp.ImportGraph:
    graph = grimp.build_graph("stages", cache_dir=None, exclude_type_checking_imports=True)
    for module in EXEMPT:
        graph.remove_module(module)
    return graph


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def with_imports(module: str) -> set[Path]:
    """The files that run when a module does."""
    modules = {module} | imports().find_upstream_modules(module)
    return {file for file in map(file_of, modules) if file.name != "__init__.py"}


def folders_built_from(files: set[Path]) -> set[str]:
    """Folders whose components are looked up by name: ``build("models", ...)`` and the like."""
    nodes = chain.from_iterable(ast.walk(parsed(file)) for file in files)
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    named = {ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) != "Path"}
    return {folder for folder in FOLDERS if repr(folder) in named}


def needed_by(stage: str) -> tuple[set[Path], set[str]]:
    """The files a stage runs, but for components that it looks up by name; and their folders."""
    files = with_imports(f"stages.{stage}")
    folders = folders_built_from(files)
    for folder in folders:
        components = {STAGES / folder / f"{name}.py" for name in names(folder)}
        for name in names(folder):
            files |= with_imports(f"stages.{folder}.{name}") - components
        files |= {path for path in (STAGES / folder).glob("_*.py") if path.name != "__init__.py"}
    return files, folders


@pytest.mark.parametrize("stage", STAGES_OF_DVC)
def test_a_stage_depends_on_the_code_it_runs_and_on_no_other(stage: str) -> None:
    files, folders = needed_by(stage)
    assert not any(stage in key and key[1] not in folders for key in INDIRECT), "INDIRECT is stale"

    single: set[Path] = set()
    whole: set[Path] = set()
    named: set[str] = set()  # folders of components that are named by params.yaml
    for path in STAGES_OF_DVC[stage]:
        if template := re.fullmatch(r"stages/(\w+)/\$\{[\w.]+\.name\}\.py", path):
            named.add(template[1])
        elif (ROOT / path).is_dir():
            whole |= set((ROOT / path).glob("*.py"))
            named.add(Path(path).name)
        else:
            single.add(ROOT / path)

    exempt = {file_of(module) for module in EXEMPT}
    missing = files - single - whole
    assert not missing, f"dvc.yaml: {stage} lacks {sorted(map(relative, missing))}"
    extra = single - files - (exempt if stage == "check_params" else set())
    assert not extra, f"dvc.yaml: {stage} does not use {sorted(map(relative, extra))}"
    unnamed = {folder for folder in folders - named if (stage, folder) not in INDIRECT}
    assert not unnamed, f"dvc.yaml: {stage} lacks the components of {unnamed}"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_packages_run_no_code_of_their_own() -> None:
    """So that no stage depends on an ``__init__.py``."""
    for file in STAGES.rglob("__init__.py"):
        assert all(isinstance(node, ast.Expr) for node in parsed(file).body), file


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)}


def test_names_say_what_things_are() -> None:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for file in python_files():
        defined = [node.name for node in ast.walk(parsed(file)) if isinstance(node, definitions)]
        for name in [*file.relative_to(ROOT).with_suffix("").parts, *defined]:
            assert not words(name) & FORBIDDEN, f"{relative(file)}: {name}"
