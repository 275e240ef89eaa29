"""An architecture, an objective and a method are each added by one file and one entry."""

import csv
import json
from pathlib import Path

import pytest

from tests.project import Project, clone_of_working_tree

pytestmark = pytest.mark.slow

ARCHITECTURE = '''
"""An encoder whose blocks are applied twice (after Dehghani et al. 2019)."""

from jaxtyping import Float
from torch import Tensor

from stages.models._transformer import TransformerBackbone, stack_flops
from stages.models._blocks import Stack
from stages.models._dimensions import Dimensions
from stages.text.batch import Batch


class RepeatedEncoder(TransformerBackbone):
    architecture = "repeated_encoder"
    trained_like = "encoder"
    pooling = "mean"

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__(vocab_size, dims)
        self.stack = Stack(dims, causal=False)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        x = self.embedding(batch.input_ids, batch.document_ids, batch.segment_ids)
        return self.stack(self.stack(x, batch.document_ids), batch.document_ids)

    def block_flops(self, batch: Batch) -> int:
        return 2 * stack_flops(self.dims, *batch.input_ids.shape)
'''
OBJECTIVE = '''
"""Each token from its own state: an autoencoder without corruption."""

import numpy as np
import torch

from stages.models._heads import ModelWithHead
from stages.objectives._objective import Objective, Terms, cross_entropy
from stages.text.batch import Batch
from stages.text.packing import Row


class Autoencoding(Objective):
    """With ``weight`` for the only term."""

    def __init__(self, *from_code, weight: float = 1.0) -> None:
        super().__init__(*from_code)
        self.weight = weight

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        input_ids = torch.from_numpy(np.stack([row.tokens for row in examples]))
        return Batch(
            input_ids=input_ids,
            document_ids=torch.from_numpy(np.stack([row.document_ids for row in examples])),
            labels=input_ids,
            num_targets={"autoencoding": input_ids.numel()},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        logits = model.backbone.unembed(model.backbone(batch))
        return {"autoencoding": (self.weight, cross_entropy(logits, batch.labels))}

    def flops(self, model: ModelWithHead, batch: Batch) -> int:
        return model.backbone.flops(batch) + model.backbone.unembed_flops(batch.labels.numel())
'''
METHOD = '''
"""The norms of the backbone and the head train, nothing else."""

import torch

from stages.methods._additions import freeze_backbone
from stages.methods._method import TrainedMethod
from stages.models._heads import ModelWithHead


class Norms(TrainedMethod):
    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        for name, weight in model.backbone.named_parameters():
            if "norm" in name:
                weight.requires_grad_(True)
'''
FILES = {
    "models/repeated_encoder.py": ARCHITECTURE,
    "objectives/autoencoding.py": OBJECTIVE,
    "methods/norms.py": METHOD,
}
RUNS, METHODS = ("repeated", "autoencoded"), ("norms", "lora")
MODEL = {"name": "repeated_encoder", "d_model": 32, "num_layers": 1, "num_heads": 2, "d_ff": 64}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A smaller smoke study with the three files, an entry for each, and nothing else edited."""
    project = clone_of_working_tree(tmp_path_factory.mktemp("extended") / "project")
    for name, text in FILES.items():
        (project.folder / "stages" / name).write_text(text.lstrip())
    smoke = project.params()
    run = smoke["pretrain"]["encoder_mlm"]
    training = run["training"] | {"num_steps": 6, "num_validations": 1}
    full = smoke["finetune"]["methods"]["full"]
    adaptation = full["training"] | {"num_epochs": 1}
    task = smoke["tasks"]["section"]
    changed = {
        "tasks": {"section": task | {"num_train": 60, "num_validation": 20, "num_test": 30}},
        "pretrain": {
            "repeated": run | {"model": MODEL, "training": training},
            "autoencoded": run
            | {"model": MODEL, "objective": {"name": "autoencoding"}, "training": training},
        },
        "budget": {"matched": "parameters", "reference": "repeated"},
        "baselines": {"majority": {"name": "majority"}},
    }
    for key, value in changed.items():
        project.edit(key, value=value)
    methods = {name: {"method": {"name": name}, "training": adaptation} for name in METHODS}
    project.edit("finetune", "methods", value=methods)
    return project


def test_the_plan_foresees_them(extended) -> None:
    record = json.loads(extended.run("python", "-m", "stages.commands.plan", "--json"))
    assert {"pretrain@repeated", "finetune@section"} <= {*record["stages"]}
    costs = {(cost["run"], cost["method"]): cost["flops"] for cost in record["finetune"]}
    assert costs.keys() == {(run, name) for run in RUNS for name in METHODS}
    assert all(costs.values())


def test_the_study_runs_and_the_report_shows_them(extended) -> None:
    ran = extended.repro()
    assert {"pretrain@repeated", "pretrain@autoencoded", "report"} <= {*ran}
    with (extended.folder / "reports/trials.csv").open() as file:
        trials = [row for row in csv.DictReader(file) if row["run"] != "majority"]
    assert {row["architecture"] for row in trials} == {MODEL["name"]}
    assert {row["objective"] for row in trials} == {"mlm", "autoencoding"}
    assert {row["method"] for row in trials} == {*METHODS}
    assert all(int(row["finetune_flops"]) > 0 for row in trials)
    page = (extended.folder / "reports/index.html").read_text()
    assert "autoencoded" in page and "norms" in page


def test_a_kept_trial_predicts(extended) -> None:
    texts = Path(extended.folder, "texts.txt")
    texts.write_text("one text\nanother text\n")
    command = ("python", "-m", "stages.commands.predict", "--run", "autoencoded")
    output = extended.run(*command, "--task", "section", "--method", "norms", texts.name)
    assert output.count('"label"') == 2


def test_the_table_lists_what_they_go_with(extended) -> None:
    lines = extended.run("python", "-m", "stages.commands.fits").splitlines()
    head = [cell.strip() for cell in lines[0].split("|")]
    (row,) = [line.split("|") for line in lines if "| classification | repeated_encoder |" in line]
    found = {name: cell.strip() for name, cell in zip(head, row, strict=True)}
    assert found["norms"] == found["lora"] == "yes" and found["in_context"] == "-"
