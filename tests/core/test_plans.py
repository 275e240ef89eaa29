"""The plan of each stage: what it holds, and which stages an edit runs again."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages.core.code import hashes
from stages.core.components import Components
from stages.core.plans import BaselinePlan, PretrainPlan, path_of, read_plan
from stages.core.study_file import load, typed
from tests.smoke import ROOT, SMOKE, STUDIES, plans, short_smoke_with, write_plans

FOLDERS = ("baselines", "methods", "models", "objectives", "sources", "tasks")


def test_read_plan_returns_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = load(SMOKE)
    write_plans(params)
    for keys, plan in plans(params).items():
        assert read_plan(type(plan), *keys) == plan
    with pytest.raises(ValueError, match="pretrain: unknown 'encoder'; did you mean 'encoder_mlm'"):
        read_plan(PretrainPlan, "pretrain", "encoder")


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_plans_are_those_of_the_stages_of_dvc(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage but the root depends on its own plan, and each plan has its stage."""
    monkeypatch.chdir(ROOT)
    params = load(path)
    keys_of = {
        "corpora": [*params.corpora],
        "tasks": [*params.tasks],
        "checkpoints": [*params.packaged_checkpoints],
        "tokenizers": [*params.tokenizers],
        "models": [*params.models],
    }
    expected = set[str]()
    for name, stage in YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"].items():
        if name == "resolve":
            assert {"params.yaml", "predictions", "requirements.lock", "stages"} == {*stage["deps"]}
            continue
        body = stage.get("do", stage)
        [plan] = [dep for dep in body["deps"] if dep.startswith("data/plans/")]
        module = body["cmd"].split("stages.")[1].split()[0]
        assert plan.startswith(f"data/plans/{module}")
        if "foreach" in stage:
            listed = stage["foreach"]
            keys = [*listed] if isinstance(listed, dict) else keys_of[listed[2:-1]]
            expected |= {plan.replace("${key}", key) for key in keys}
        elif "${item" in plan:
            expected |= {
                plan.replace("${item.corpus}", corpus).replace("${item.tokenizer}", tokenizer)
                for corpus in params.corpora
                for tokenizer in params.tokenizers
            }
        else:
            expected.add(plan)
    assert {path_of(*keys).as_posix() for keys in plans(params)} == expected


def test_plans_have_the_code_of_their_own_components_and_no_others() -> None:
    written = plans(load(ROOT / "studies" / "default.yaml"))
    files = written["pretrain", "decoder"].code
    assert files == hashes("pretrain", "models/llama", "objectives/causal", "optimizers/muon")
    own = {file for file in files if file.split("/")[0] in FOLDERS and "/_" not in file}
    assert own == {"models/llama.py", "objectives/causal.py"}
    listed = {file for plan in written.values() for file in plan.code}
    for folder in FOLDERS:  # every component is in the plan of the stage that uses it first
        names = {Path(file).stem for file in listed if Path(file).parent == Path(folder)}
        used = {name for name in names if not name.startswith("_")}
        assert used and used <= set(Components(folder).names()), folder


EDITS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "what a task is": ({"tasks.tag.about": "Tags."}, {"report"}),
    "a label": ({"models.encoder_mlm.label": "An encoder"}, {"report"}),
    "a limit on the answer": ({"answer": {"max_weights_mb": 50}}, {"report"}),
    "a task": ({"tasks.tag.num_test": 50}, {"prepare_task/tag", "measure", "report"}),
    "a run": (
        {"models.decoder_causal.training": {"lr": 1e-3}},
        {"pretrain/decoder_causal", "finetune", "report"},
    ),
    "a default written out": ({"models.encoder_mlm.training": {"decay": "linear"}}, set()),
    "a seed": (
        {"models.decoder_causal.seeds": [1, 2]},
        {"pretrain/decoder_causal", "finetune", "fit_baseline", "report"},
    ),
    "a baseline": ({"baselines": ["majority"]}, {"fit_baseline", "report"}),
    "the matched budget": (
        {"pretrain.matched": "flops"},
        {"pretrain/decoder_causal", "finetune", "report"},
    ),
    "the name of the study": ({"study": "other"}, {"pretrain", "report"}),
}


@pytest.mark.parametrize("name", EDITS)
def test_plans_change_only_of_the_stages_that_use_a_setting(name: str) -> None:
    changes, expected = EDITS[name]
    before, after = plans(typed(short_smoke_with({}))), plans(typed(short_smoke_with(changes)))
    assert before.keys() == after.keys()
    changed = {"/".join(keys) for keys in before if before[keys] != after[keys]}
    for stage in changed:
        assert any(stage.startswith(name) for name in expected), stage
    for name in expected:
        of_stage = {"/".join(keys) for keys in before if "/".join(keys).startswith(name)}
        assert of_stage and of_stage <= changed, name


def test_plans_of_a_task_hold_the_baselines_that_fit_its_rows() -> None:
    for task, names in (("tag", ["majority", "crf"]), ("section", ["majority", "tfidf"])):
        plan = plans(load(SMOKE))["fit_baseline", task]
        assert isinstance(plan, BaselinePlan) and [*plan.baselines] == names
