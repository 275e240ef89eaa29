"""Every system of the field, each one entry: studies/systems.yaml end to end, on little text."""

import csv
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages.artifacts import read_json
from stages.params import load, read_yaml
from tests.project import ROOT, Project, clone_of_working_tree

STUDY = ROOT / "studies" / "systems.yaml"


def small(raw: dict[str, Any]) -> dict[str, Any]:
    """The systems with a few steps, one task, one method and one seed."""
    smoke = read_yaml(ROOT / "studies" / "smoke.yaml")
    sizes = {"d_model": 32, "num_heads": 2, "d_ff": 64, "d_cell": 32}
    training = {"num_steps": 3, "batch_rows": 4, "micro_batch_rows": 4, "max_tokens": 64}
    runs = {}
    for key, run in raw["pretrain"].items():
        if key.endswith("_scratch"):
            continue
        model = run["model"] | {k: v for k, v in sizes.items() if k in run["model"]}
        settings = run["training"] | training | {"num_validations": 1}
        runs[key] = run | {"model": model, "training": settings}
    methods = {"full": smoke["finetune"]["methods"]["full"]}
    return raw | {
        "corpora": {"all": smoke["corpora"]["prose"]},
        "tokenizers": {"unigram": smoke["tokenizers"]["unigram"] | {"corpus": "all"}},
        "tasks": {"tag": smoke["tasks"]["tag"]},
        "pretrain": runs,
        "baselines": {"window": {"name": "window"}},
        "finetune": smoke["finetune"] | {"methods": methods, "seeds": [1]},
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Project:
    project = clone_of_working_tree(tmp_path_factory.mktemp("systems") / "project")
    with (project.folder / "params.yaml").open("w") as file:
        YAML().dump(small(read_yaml(STUDY)), file)
    assert project.repro()
    return project


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
    again = study.repro()
    assert again.index("pretrain@bert") < again.index("pretrain@distilbert")
    trained = {stage for stage in again if stage.startswith("pretrain@")}
    assert trained == {"pretrain@bert", "pretrain@distilbert"}
