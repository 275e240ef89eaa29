"""Which code a result comes from, against what the import linter's graph and Python itself say."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest
from ruamel.yaml import YAML

from stages.check_params import code_by_stage
from stages.core.code import EXEMPT, code_of, hashes
from stages.core.components import STAGES, Components
from stages.core.params import Params, load

ROOT = STAGES.parent
FOLDERS = ("baselines", "methods", "models", "objectives", "sources", "tasks")


@pytest.fixture(scope="module")
def params() -> Params:
    return load(ROOT / "studies" / "default.yaml")


@cache
def imports() -> grimp.ImportGraph:
    graph = grimp.build_graph("stages", cache_dir=None)
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


@pytest.mark.parametrize("module", [module for module in MODULES if module not in EXEMPT])
def test_the_code_of_a_module_is_all_that_it_imports(module: str) -> None:
    name = f"stages.{module.replace('/', '.')}"
    upstream = {file_of(m) for m in {name} | imports().find_upstream_modules(name)}
    code = {file for file in code_of(module) if file.suffix == ".py"}
    assert code == {file for file in upstream if file.name != "__init__.py"}


def test_what_is_loaded_when_a_component_is_used_is_among_its_code() -> None:
    """By Python's own account, in a process of its own."""
    lines = [
        "import sys, stages.finetune, stages.models.encoder, stages.tasks.tagging",
        "print(*sorted(m for m in sys.modules if m.startswith('stages.')))",
    ]
    output = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    ).stdout
    loaded = {file_of(module) for module in output.split()}
    exempt = {STAGES / f"{module}.py" for module in EXEMPT}
    found = set(code_of("finetune", "models/encoder", "tasks/tagging"))
    assert {f for f in loaded if f.name != "__init__.py"} - exempt <= found


def test_templates_of_the_report_are_among_its_code() -> None:
    assert {path for path in code_of("report") if path.suffix != ".py"} == {
        path for path in (STAGES / "reporting").rglob("*.jinja")
    }


def test_every_exempt_module_exists_and_has_a_reason() -> None:
    assert all((STAGES / f"{module}.py").is_file() and why for module, why in EXEMPT.items())


def test_a_run_depends_on_its_own_components_and_on_no_others(params: Params) -> None:
    modules = code_by_stage(params)["pretrain/decoder_causal"]
    files = hashes("pretrain", *modules)
    components = {file for file in files if file.split("/")[0] in FOLDERS and "/_" not in file}
    assert components == {"models/decoder.py", "objectives/causal.py"}


def test_every_stage_of_dvc_depends_on_the_record_of_its_code(params: Params) -> None:
    """And every record has its stage; check_params writes them and is run by any edit."""
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    records = set()
    for name, stage in stages.items():
        if name == "check_params":
            assert "stages" in stage["deps"]
            continue
        (record,) = [dep for dep in stage.get("do", stage)["deps"] if "data/code/" in dep]
        assert record in (f"data/code/{name}.json", f"data/code/{name}/${{key}}.json")
        records.add(record)
    written = {
        f"data/code/{stage.partition('/')[0]}{'/${key}' * ('/' in stage)}.json"
        for stage in code_by_stage(params)
    }
    assert written == records


def test_components_that_a_stage_looks_up_are_named(params: Params) -> None:
    """Every component of the study is in the record of the stage that first makes use of it."""
    listed = {module for modules in code_by_stage(params).values() for module in modules}
    for folder in FOLDERS:
        used = {module.partition("/")[2] for module in listed if module.startswith(f"{folder}/")}
        assert used and used <= set(Components(folder).names()), folder
