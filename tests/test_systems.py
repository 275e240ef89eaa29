"""Every system of the field, each one entry: studies/systems.yaml end to end, on little text."""

import csv
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages.checking.faults import find_faults
from stages.core.artifacts import read_json
from stages.core.study_file import load, read_yaml
from stages.matching.budget import matched
from tests.project import ROOT, Project, clone_of_working_tree

pytestmark = pytest.mark.slow

STUDY = ROOT / "studies" / "systems.yaml"


def small(raw: dict[str, Any]) -> dict[str, Any]:
    """Returns the systems with a few steps, one task, one method and one seed."""
    smoke = read_yaml(ROOT / "studies" / "smoke.yaml")
    pretrain = raw["pretrain"] | {"seeds": [1]}
    pretrain["training"] |= {"num_steps": 3, "batch_rows": 4, "max_tokens": 64}
    pretrain["training"] |= {"num_validations": 1}
    pretrain["runs"] = {k: run for k, run in pretrain["runs"].items() if "_scratch" not in k}
    full = smoke["finetune"]["methods"]["full"]
    full["training"] |= {"num_epochs": 1}
    return raw | {
        "corpora": {"all": smoke["corpora"]["prose"]},
        "tokenizers": {"unigram": {"corpus": "all", "vocab_size": 512, "max_sentences": 2000}},
        "samples": {"num_train": 60, "num_validation": 20, "num_test": 30},
        "tasks": {"tag": smoke["tasks"]["tag"]},
        "pretrain": pretrain,
        "baselines": ["window"],
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
    for key, run in matched(params).runs.items():
        student = key in ("distilbert", "student_scratch")
        bert = {"num_layers": 6 if student else 12, "num_heads": 12, "d_ff": 3072}
        elmo = {"num_layers": 2, "d_cell": 3072}
        sizes = elmo if run.model["name"] == "bilstm" else bert
        assert run.model == {"name": run.model["name"], "d_model": 768} | sizes


def test_run_record_has_all_sizes(study: Project) -> None:
    run = read_json(study.folder / "data" / "pretrained" / "distilbert" / "1" / "run.json")
    model = {"name": "encoder", "d_model": 128, "num_layers": 1, "num_heads": 2, "d_ff": 512}
    assert run["model"] == run["settings"]["model"] == model
    text = (study.folder / "reports" / "comparison.md").read_text().replace("\\_", "_")
    assert "d_model=128, num_layers=1, num_heads=2, d_ff=512" in text


def test_study_pretrains_and_compares_each_system(study: Project) -> None:
    params = load(study.folder / "params.yaml")
    with (study.folder / "reports" / "trials.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {*params.runs, "window"}
    for key in params.runs:
        metrics = read_json(study.folder / "data" / "pretrained" / key / "1" / "metrics.json")
        assert metrics["pretrain_tokens"] == 3 * 4 * 64, "every system sees the same tokens"
        assert metrics["pretrain_flops"] > 0


def test_the_student_depends_on_its_teacher(study: Project) -> None:
    study.edit("pretrain", "runs", "bert", "training", value={"lr": 1e-4})
    again = study.repro("pretrain", "continue_pretraining")
    trained = ["pretrain@bert", "continue_pretraining@distilbert"]
    assert [stage for stage in again if "pretrain" in stage] == trained
