"""Every system of the field, each one entry of studies/systems.yaml."""

import re
from pathlib import Path

import pytest

from stages import finetune
from stages.budgets.budget import matched
from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import CheckpointKey
from stages.core.params import Params
from stages.core.study_file import load
from stages.evaluation import records
from tests.project import ROOT
from tests.small import VOCAB_SIZE
from tests.small_study import (
    pretrain_run,
    run_stage,
    tuned,
    write_corpus,
    write_inputs,
    write_tasks,
)

STUDY = ROOT / "studies" / "systems.yaml"
BATCH = {"num_steps": 2, "batch_rows": 4, "micro_batch_rows": 4, "max_tokens": 64}


def test_one_setting_takes_every_system_to_base_scale(tmp_path, monkeypatch) -> None:
    path = tmp_path / "params.yaml"
    text, times = re.subn(r"(d_model: &d_model) 128\b", r"\1 768", STUDY.read_text())
    text, students = re.subn(r"num_layers: 1\b", "num_layers: 6", text)
    assert times == students == 1
    path.write_text(text)
    monkeypatch.chdir(ROOT)
    params = load(path)
    assert list(find_faults(params)) == []
    for key, run in matched(params).models.items():
        student = key in ("distilbert", "student_scratch")
        bert = {"num_layers": 6 if student else 12, "num_heads": 12, "d_ff": 3072, "start": "usual"}
        elmo = {"num_layers": 2, "d_cell": 3072}
        sizes = elmo if run.architecture["name"] == "bilstm" else bert
        assert run.architecture == {"name": run.architecture["name"], "d_model": 768} | sizes


def systems() -> Params:
    """Returns the systems with two steps, one task, one method and one seed."""
    params = load(STUDY)
    runs = {
        key: run.model_copy(
            update={
                "corpus": "prose",
                "seeds": [1],
                "training": run.training.model_copy(update=BATCH | {"num_validations": 1}),
            }
        )
        for key, run in params.models.items()
        if "scratch" not in key
    }
    corpus = params.corpora["all"].model_copy(update={"max_tokens": "all"})
    tokenizer = params.tokenizers["unigram"].model_copy(
        update={"corpus": "prose", "vocab_size": VOCAB_SIZE}
    )
    full = params.finetune.methods["full"]
    assert full.training is not None
    training = full.training.model_copy(update={"num_epochs": 1, "min_steps": 1, "lr": 1e-3})
    full = full.model_copy(update={"training": training, "models": {}})
    params = tuned(params, methods={"full": full}, label_budgets=[64], seeds=[1])
    changes = {"models": runs, "corpora": {"prose": corpus}, "tokenizers": {"unigram": tokenizer}}
    return params.model_copy(update=changes)


@pytest.mark.slow
def test_each_system_pretrains_and_is_fine_tuned(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus()
    write_tasks()
    params = systems()
    write_inputs(params)
    for key in params.models:
        pretrain_run(params, key)
        metrics = read_json(paths.pretrained(CheckpointKey(key, 1)) / "metrics.json")
        assert metrics["pretrain_tokens"] == 2 * 4 * 64, "every system sees the same tokens"
        assert metrics["pretrain_flops"] > 0
    run_stage(params, finetune, "tag")
    for key in params.models:
        (trial,) = records.read(Path("data/finetuned/tag", key, "trials.csv"), records.TrialRecord)
        assert trial.num_trained_params > 0 and trial.finetune_flops > 0
