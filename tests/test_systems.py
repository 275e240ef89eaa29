"""Every system of the field, each one entry: studies/systems.yaml end to end, on little text."""

import csv
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages.checking.faults import find_faults
from stages.core.artifacts import read_json
from stages.core.params import load, read_yaml
from stages.matching.budget import plans
from tests.project import ROOT, Project, clone_of_working_tree

pytestmark = pytest.mark.slow

STUDY = ROOT / "studies" / "systems.yaml"


def small(raw: dict[str, Any]) -> dict[str, Any]:
    """The systems with a few steps, one task, one method and one seed."""
    smoke = read_yaml(ROOT / "studies" / "smoke.yaml")
    training = {"num_steps": 3, "batch_rows": 4, "micro_batch_rows": 4, "max_tokens": 64}
    runs = {}
    for key, run in raw["pretrain"].items():
        if "_scratch" in key or run["seed"] > 1:
            continue
        runs[key] = run | {"training": run["training"] | training | {"num_validations": 1}}
    full = smoke["finetune"]["methods"]["full"]
    full |= {"training": full["training"] | {"num_epochs": 1}}
    tokenizer = smoke["tokenizers"]["unigram"] | {"vocab_size": 512, "max_sentences": 2000}
    numbers = {"num_train": 60, "num_validation": 20, "num_test": 30}
    return raw | {
        "about": {},
        "corpora": {"all": smoke["corpora"]["prose"]},
        "tokenizers": {"unigram": tokenizer | {"corpus": "all"}},
        "tasks": {"tag": smoke["tasks"]["tag"] | numbers},
        "pretrain": runs,
        "baselines": {"window": {"name": "window"}},
        "finetune": smoke["finetune"] | {"methods": {"full": full}, "seeds": [1]},
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Project:
    project = clone_of_working_tree(tmp_path_factory.mktemp("systems") / "project")
    with (project.folder / "params.yaml").open("w") as file:
        YAML().dump(small(read_yaml(STUDY)), file)
    assert project.repro()
    return project


def test_one_setting_takes_every_system_to_base_scale(tmp_path, monkeypatch) -> None:
    path = tmp_path / "params.yaml"
    text, times = re.subn(r"(d_model: &d_model) 128\b", r"\1 768", STUDY.read_text())
    assert times == 1
    path.write_text(text)
    monkeypatch.chdir(ROOT)
    params = load(path)
    assert list(find_faults(params)) == []
    for key, plan in plans(params).items():
        student = key.startswith(("distilbert", "student_scratch"))
        bert = {"num_layers": 6 if student else 12, "num_heads": 12, "d_ff": 3072}
        elmo = {"num_layers": 2, "d_cell": 3072}
        sizes = elmo if plan.model["name"] == "bilstm" else bert
        assert plan.model == {"name": plan.model["name"], "d_model": 768} | sizes


def test_what_was_trained_says_its_sizes(study: Project) -> None:
    run = read_json(study.folder / "data" / "pretrained" / "distilbert" / "run.json")
    model = {"name": "encoder", "d_model": 128, "num_layers": 1, "num_heads": 2, "d_ff": 512}
    assert run["model"] == run["settings"]["model"] == model
    text = (study.folder / "reports" / "comparison.md").read_text().replace("\\_", "_")
    assert "d_model=128, num_layers=1, num_heads=2, d_ff=512" in text


def test_each_system_is_pretrained_and_compared(study: Project) -> None:
    params = load(study.folder / "params.yaml")
    with (study.folder / "reports" / "trials.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {*params.pretrain, "window"}
    for key in params.pretrain:
        metrics = read_json(study.folder / "data" / "pretrained" / key / "metrics.json")
        assert metrics["pretrain_tokens"] == 3 * 4 * 64, "every system sees the same tokens"
        assert metrics["pretrain_flops"] > 0


def test_the_student_depends_on_its_teacher(study: Project) -> None:
    study.edit("pretrain", "bert", "training", "lr", value=1e-4)
    again = study.repro("pretrain")
    assert again.index("pretrain@bert") < again.index("pretrain@distilbert")
    trained = {stage for stage in again if stage.startswith("pretrain@")}
    assert trained == {"pretrain@bert", "pretrain@distilbert"}
