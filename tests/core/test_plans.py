"""What runs again: the code that a result comes from, what changes its hash, and the plans."""

from pathlib import Path
from typing import Any

import grimp
import pytest
from ruamel.yaml import YAML

from stages.core.artifacts import sha256
from stages.core.code import EXEMPT, code_hash, code_of, effective, hashes, syntax_hash
from stages.core.components import STAGES, Components
from stages.core.plans import BaselinePlan
from stages.core.study_file import load, typed
from tests.smoke import ROOT, SMOKE, plans, short_smoke_with

FOLDERS = ("baselines", "methods", "models", "objectives", "sources", "tasks")


# The code -----------------------------------------------------------------------------------------


def test_code_of_a_module_is_all_that_it_imports() -> None:
    """The import linter's graph is the second way."""
    graph = grimp.build_graph("stages", cache_dir=None, exclude_type_checking_imports=True)
    for module in EXEMPT:
        assert (STAGES / f"{module}.py").is_file()
        graph.remove_module(f"stages.{module.replace('/', '.')}")
    files = {path.relative_to(STAGES) for path in STAGES.rglob("*.py") if path.stem != "__init__"}
    modules = {file.with_suffix("").as_posix(): STAGES / file for file in files}
    for module in modules.keys() - EXEMPT.keys():
        name = f"stages.{module.replace('/', '.')}"
        upstream = {name} | graph.find_upstream_modules(name)
        paths = {each.removeprefix("stages.").replace(".", "/") for each in upstream}
        code = {file for file in code_of(module) if file.suffix == ".py"}
        assert code == {modules[path] for path in paths & modules.keys()}, module


CODE = "def f(x, y):\n    return g(x, [y, 2.0]) + h['a']\n"


def hash_of(source: str) -> str:
    return syntax_hash(effective(source))


def test_syntax_hash_does_not_count_comments_docstrings_and_formatting() -> None:
    for same in (
        "# A comment\n\n" + CODE.replace("\n    return", "  # another\n\n    return"),
        '"""A module."""\nif TYPE_CHECKING:\n    import a\n' + CODE,
        CODE.replace("    return", "    'A function.'\n    pass\n    return"),
        CODE.replace("    return", "  return").replace("\n", "\r\n"),
        CODE.replace("'a'", '("" "a")').replace("2.0", "2_0e-1"),
        CODE.replace("[y, 2.0])", "\n  [\n    (y),\n    2.0,\n  ],\n )"),
    ):
        assert same != CODE and hash_of(same) == hash_of(CODE)


def test_syntax_hash_counts_whatever_changes_a_result() -> None:
    for one, other in (
        ("x = 1", "x = 1.0"),
        ("x = {**a, 1: b}", "x = {1: b, **a}"),
        ("x: int = 1", "x: float = 1"),
        ("if a:\n  pass\nelse:\n  b", "if a:\n  b"),
        ("x = '''a\n b'''", "x = '''a\n  b'''"),
        ("from a import b", "from .a import b"),
    ):
        assert hash_of(one) != hash_of(other)


def test_hashes_have_the_syntax_of_modules_and_the_bytes_of_templates() -> None:
    record = hashes("report")
    for name, value in record.items():
        file = STAGES / name
        assert value == (hash_of(file.read_text()) if file.suffix == ".py" else sha256(file))
    assert {Path(name).suffix for name in record} == {".py", ".jinja"}
    assert code_hash("report") == code_hash("report") != code_hash("evaluate")


# The plans ----------------------------------------------------------------------------------------


def test_each_stage_of_dvc_depends_on_its_own_plan_and_replaces_its_shell() -> None:
    """Else a stage would not run again, or would live on when DVC ends the shell."""
    pipeline = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())
    (torch,) = [var["torch"] for var in pipeline["vars"] if "torch" in var]
    planned = set[str]()
    for name, stage in pipeline["stages"].items():
        body = stage.get("do", stage)
        command, module = body["cmd"], body["cmd"].split("stages.")[1].split()[0]
        assert command.replace("${torch}", torch).startswith("exec ")
        if name == "resolve":
            assert {"params.yaml", "predictions", "requirements.lock", "stages"} == {*body["deps"]}
            continue
        [plan] = [dep for dep in body["deps"] if dep.startswith("data/plans/")]
        assert plan.startswith(f"data/plans/{module}")
        planned.add(module)
    assert planned == {stage for stage, *_ in plans(load(ROOT / "studies" / "default.yaml"))}


def test_plans_have_the_components_that_they_use_and_no_others() -> None:
    written = plans(load(ROOT / "studies" / "default.yaml"))
    files = written["pretrain", "decoder"].code
    assert files == hashes("pretrain", "models/llama", "objectives/causal", "optimizers/muon")
    own = {file for file in files if file.split("/")[0] in FOLDERS and "/_" not in file}
    assert own == {"models/llama.py", "objectives/causal.py"}
    listed = {file for plan in written.values() for file in plan.code}
    for folder in FOLDERS:  # every component is in the plan of the stage that uses it first
        names = {Path(file).stem for file in listed if Path(file).parent == Path(folder)}
        used = {name for name in names if not name.startswith("_")}
        assert used and used <= {*Components(folder).names()}, folder
    for task, baselines in (("tag", ["majority", "crf"]), ("section", ["majority", "tfidf"])):
        plan = plans(load(SMOKE))["fit_baseline", task]
        assert isinstance(plan, BaselinePlan) and [*plan.baselines] == baselines


DECODER = {"pretrain/decoder_causal", "finetune", "report"}
EDITS: list[tuple[str, Any, set[str]]] = [
    ("tasks.tag.about", "Tags.", {"report"}),
    ("models.encoder_mlm.label", "An encoder", {"report"}),
    ("answer", {"max_weights_mb": 50}, {"report"}),
    ("tasks.tag.num_test", 50, {"prepare_task/tag", "measure", "report"}),
    ("models.decoder_causal.training", {"lr": 1e-3}, DECODER),
    ("models.encoder_mlm.training", {"decay": "linear"}, set()),  # the default
    ("models.decoder_causal.seeds", [1, 2], DECODER | {"fit_baseline"}),
    ("baselines", ["majority"], {"fit_baseline", "report"}),
    ("pretrain.matched", "flops", DECODER),
    ("study", "other", {"pretrain", "report"}),
]


@pytest.mark.parametrize(("path", "value", "expected"), EDITS, ids=[edit[0] for edit in EDITS])
def test_plans_change_only_of_the_stages_that_use_a_setting(
    path: str, value: Any, expected
) -> None:
    before, after = (
        plans(typed(short_smoke_with({}))),
        plans(typed(short_smoke_with({path: value}))),
    )
    assert before.keys() == after.keys()
    changed = {"/".join(keys) for keys in before if before[keys] != after[keys]}
    for stage in changed:
        assert any(stage.startswith(name) for name in expected), stage
    for name in expected:
        of_stage = {"/".join(keys) for keys in before if "/".join(keys).startswith(name)}
        assert of_stage and of_stage <= changed, name
