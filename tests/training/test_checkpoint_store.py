"""The store of checkpoints: seeds that did not change are not trained again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stages import pretrain
from stages.core import paths
from stages.core.keys import CheckpointKey
from stages.core.params import Params
from stages.core.plans import PretrainPlan
from stages.core.study_file import load
from stages.planning.stage_plans import write_plans
from stages.training import checkpoint_store as store
from stages.training.device import resolve
from tests.small_study import files_of, pretrain_plan, pretrain_run, write_corpus, write_inputs
from tests.smoke import ROOT, with_values

MODEL, CHILD, SCRATCH = "decoder_causal", "child", "encoder_scratch"
SIZES = {"max_tokens": 16, "batch_rows": 4, "micro_batch_rows": 4, "num_steps": 3}
SMALL = {
    "compute": {"threads": 1, "device": "cpu", "precision": "float32"},
    "tokenizers.unigram.vocab_size": 600,
    "pretrain.matched": "none",
    "pretrain.reference": MODEL,
    "pretrain.seeds": [1, 2],
    **{f"models.{name}.seeds": [1, 2] for name in (MODEL, SCRATCH)},
    **{f"models.{MODEL}.training.{key}": value for key, value in SIZES.items()},
    f"models.{MODEL}.architecture": {"name": "phi", "d_model": 32, "num_layers": 1, "num_heads": 2},
}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A study with a model, its child, and one from scratch, with two seeds each."""
    path = with_values(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path)
    write_corpus()
    for nothing in ("encoded/none/none", "tokenizers/none"):
        Path("data", nothing).parent.mkdir(exist_ok=True)
        Path("data", nothing).write_text("nothing\n")
    params = load(path)
    model, scratch = (params.models[name] for name in (MODEL, SCRATCH))
    models = {MODEL: model, CHILD: model.model_copy(update={"parent": MODEL}), SCRATCH: scratch}
    params = params.model_copy(update={"models": models})
    write_inputs(params)
    return params


def address(plan: PretrainPlan, model: str = MODEL, seed: int = 1) -> str:
    return store.address_of(plan, CheckpointKey(model, seed), resolve(plan.compute, threads=1))


def missing(plan: PretrainPlan, model: str = MODEL) -> list[int]:
    return store.missing_seeds(plan, model, resolve(plan.compute, threads=1))


def edited(plan: PretrainPlan, part: str = "entry", **changes: Any) -> PretrainPlan:
    return plan.model_copy(update={part: getattr(plan, part).model_copy(update=changes)})


def with_training(plan: PretrainPlan, **changes: Any) -> PretrainPlan:
    return edited(plan, training=plan.entry.training.model_copy(update=changes))


def test_address_covers_all_that_weights_depend_on(params: Params) -> None:
    plan = pretrain_plan(params, MODEL)
    before = address(plan)
    assert len({before, address(plan, seed=2), address(plan, SCRATCH)}) == 3
    for same in (
        edited(plan, "compute", trial_threads=2),
        edited(plan, seeds=[1, 5]),
        plan.model_copy(update={"study": "other"}),
    ):
        assert address(same) == before
    others = [
        with_training(plan, lr=0.5),
        edited(plan, objective={"name": "mlm"}),
        plan.model_copy(update={"code": {}}),
        edited(plan, "distributed", devices=2),
        edited(plan, "compute", precision="bfloat16"),
        edited(plan, "compute", threads=2),
    ]
    assert len({before, *map(address, others)}) == 1 + len(others)
    corpus = paths.INPUTS / "models" / f"{MODEL}.json"
    corpus.write_text(corpus.read_text().replace("a", "b"))
    assert address(plan) != before


def outputs(model: str = MODEL) -> dict[str, bytes]:
    """Returns the contents of all files that the stage of a model writes, its times included."""
    return {
        name: content for name, content in files_of(Path("data")).items() if f"/{model}/" in name
    }


def of_seed(files: dict[str, bytes], seed: int) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if f"/{seed}" in name}


@pytest.mark.slow
def test_pretrain_trains_only_the_seeds_that_the_store_lacks(params: Params) -> None:
    plan = pretrain_plan(params, MODEL)
    assert missing(plan) == [1, 2]
    pretrain.main(plan, MODEL)
    before = outputs()
    assert len(before) == 2 * len(of_seed(before, 1)) and missing(plan) == []
    shutil.rmtree(paths.PRETRAINED)
    pretrain.main(plan, MODEL)
    assert outputs() == before, "even the times are those of the first training"

    more = edited(plan, seeds=[2, 3])
    assert missing(more) == [3]
    pretrain.main(more, MODEL)
    after = outputs()
    assert of_seed(after, 2) == of_seed(before, 2)
    assert of_seed(after, 3) and not of_seed(after, 1)
    weights = [after[f"pretrained/{MODEL}/{seed}/model.safetensors"] for seed in (2, 3)]
    assert weights[0] != weights[1]

    entry = store.find(address(more, seed=2))
    assert entry is not None
    (entry / "pretrained/model.safetensors").write_bytes(b"damaged")
    pretrain.main(more, MODEL)
    trained = {name for name, content in outputs().items() if content != after[name]}
    assert trained == {f"timings/pretrain/{MODEL}/2.json"}, "equal but for the time"


@pytest.mark.slow
def test_pretrain_trains_a_parent_whose_stage_has_not_run(params: Params) -> None:
    """The parent's stage then finds its checkpoint in the store, and the child's result is that of
    a child that is trained after its parent's stage."""
    pretrain_run(params, CHILD)
    first = outputs(CHILD)
    assert not outputs(MODEL) and missing(pretrain_plan(params, MODEL)) == []
    shutil.rmtree(store.ROOT)
    pretrain_run(params, SCRATCH)
    assert not [*store.ROOT.glob("*")], "random weights are quickly drawn again"
    for model in (MODEL, CHILD):
        pretrain_run(params, model)
    changed = {name for name, content in outputs(CHILD).items() if content != first[name]}
    assert changed <= {f"timings/pretrain/{CHILD}/{seed}.json" for seed in (1, 2)}


@pytest.mark.slow
def test_pretrain_by_two_processes_has_the_losses_of_one(params: Params) -> None:
    plan = edited(with_training(pretrain_plan(params, MODEL), micro_batch_rows=2), seeds=[1])
    pretrain.main(plan, MODEL)
    history = paths.PROGRESS / "history" / MODEL / "1.csv"
    alone = pd.read_csv(history).loss
    write_plans({("pretrain", MODEL): edited(plan, "distributed", devices=2)}, paths.PLANS)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DVC_STAGE": "pretrain"}
    subprocess.run([sys.executable, "-m", "stages.pretrain", MODEL], env=environment, check=True)
    np.testing.assert_allclose(pd.read_csv(history).loss, alone, rtol=1e-5)
    assert len(alone) == 3
