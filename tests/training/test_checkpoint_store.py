"""The store of checkpoints: seeds that did not change are not trained again."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
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
from tests.small_study import pretrain_plan, write_corpus, write_inputs
from tests.smoke import with_values

ROOT = Path(__file__).parents[2]
RUN, CHILD, SCRATCH = "decoder_causal", "child", "encoder_scratch"
SIZES = {
    "training.num_steps": 3,
    "training.max_tokens": 16,
    "training.batch_rows": 4,
    "training.micro_batch_rows": 4,
    "architecture.d_model": 32,
    "architecture.num_layers": 1,
}
SMALL = {
    "compute.threads": 1,
    "compute.device": "cpu",
    "compute.precision": "float32",
    "tokenizers.unigram.vocab_size": 600,
    "pretrain.matched": "none",
    "pretrain.reference": RUN,
    "pretrain.seeds": [1, 2],
    **{f"models.{run}.seeds": [1, 2] for run in (RUN, SCRATCH)},
    **{f"models.{RUN}.{key}": value for key, value in SIZES.items()},
}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A study with a run, a run that continues it, and one from scratch, with two seeds each."""
    path = with_values(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path)
    write_corpus()
    for nothing in ("encoded/none/none", "tokenizers/none"):
        Path("data", nothing).parent.mkdir(exist_ok=True)
        Path("data", nothing).write_text("nothing\n")
    params = load(path)
    run = params.models[RUN]
    runs = {
        RUN: run,
        CHILD: run.model_copy(update={"parent": RUN}),
        SCRATCH: params.models[SCRATCH],
    }
    params = params.model_copy(update={"models": runs})
    write_inputs(params)
    return params


def address(plan: PretrainPlan, run: str = RUN, seed: int = 1) -> str:
    return store.address_of(plan, CheckpointKey(run, seed), resolve(plan.compute, threads=1))


def missing(plan: PretrainPlan, run: str = RUN) -> list[int]:
    return store.missing_seeds(plan, run, resolve(plan.compute, threads=1))


def edited(plan: PretrainPlan, part: str = "entry", **changes: Any) -> PretrainPlan:
    return plan.model_copy(update={part: getattr(plan, part).model_copy(update=changes)})


def with_rate(plan: PretrainPlan) -> PretrainPlan:
    return edited(plan, training=plan.entry.training.model_copy(update={"lr": 0.5}))


def with_other_inputs(plan: PretrainPlan) -> PretrainPlan:
    path = paths.INPUTS / "models" / f"{RUN}.json"
    path.write_text(path.read_text().replace("a", "b"))
    return plan


@pytest.mark.parametrize(
    ("edit", "is_other"),
    [
        pytest.param(with_rate, True, id="a setting"),
        pytest.param(lambda p: edited(p, objective={"name": "mlm"}), True, id="objective"),
        pytest.param(lambda p: p.model_copy(update={"code": {}}), True, id="code"),
        pytest.param(with_other_inputs, True, id="the corpus"),
        pytest.param(lambda p: edited(p, "distributed", devices=2), True, id="processes"),
        pytest.param(lambda p: edited(p, "compute", precision="bfloat16"), True, id="precision"),
        pytest.param(lambda p: edited(p, "compute", threads=2), True, id="threads"),
        pytest.param(lambda p: edited(p, "compute", trial_threads=2), False, id="trials' threads"),
        pytest.param(lambda p: edited(p, seeds=[1, 5]), False, id="other seeds"),
        pytest.param(lambda p: p.model_copy(update={"study": "other"}), False, id="a study"),
    ],
)
def test_address_covers_all_that_weights_depend_on(
    params: Params, edit: Callable[[PretrainPlan], PretrainPlan], is_other: bool
) -> None:
    plan = pretrain_plan(params, RUN)
    before = address(plan)
    assert len({before, address(plan, seed=2), address(plan, run=SCRATCH)}) == 3
    assert (address(edit(plan)) != before) == is_other


def outputs(run: str = RUN) -> dict[Path, bytes]:
    """Returns the contents of all files that the stage of a run writes, its times included."""
    folders = [paths.PRETRAINED / run, paths.TIMINGS / "pretrain" / run]
    folders += [paths.PROGRESS / kind / run for kind in store.PROGRESS]
    return {f: f.read_bytes() for folder in folders for f in folder.rglob("*") if f.is_file()}


def of_seed(files: dict[Path, bytes], seed: int) -> dict[Path, bytes]:
    return {f: content for f, content in files.items() if str(seed) in (f.parent.name, f.stem)}


@pytest.mark.slow
def test_pretrain_trains_only_the_seeds_that_the_store_lacks(params: Params) -> None:
    plan = pretrain_plan(params, RUN)
    assert missing(plan) == [1, 2]
    pretrain.main(plan, RUN)
    before = outputs()
    assert len(before) == 2 * len(of_seed(before, 1)) and missing(plan) == []
    shutil.rmtree(paths.PRETRAINED)
    pretrain.main(plan, RUN)
    assert outputs() == before, "even the times are those of the first training"

    more = edited(plan, seeds=[2, 3])
    assert missing(more) == [3]
    pretrain.main(more, RUN)
    after = outputs()
    assert of_seed(after, 2) == of_seed(before, 2)
    assert of_seed(after, 3) and not of_seed(after, 1)
    weights = (after[paths.pretrained(CheckpointKey(RUN, s)) / "model.safetensors"] for s in (2, 3))
    assert len({*weights}) == 2

    entry = store.find(address(more, seed=2))
    assert entry is not None
    (entry / "pretrained/model.safetensors").write_bytes(b"damaged")
    pretrain.main(more, RUN)
    trained = {path for path in after if outputs()[path] != after[path]}
    assert trained == {paths.pretraining_time(CheckpointKey(RUN, 2))}, "equal but for the time"


@pytest.mark.slow
def test_pretrain_trains_a_parent_whose_stage_has_not_run(params: Params) -> None:
    """The parent's stage then finds its checkpoint in the store, and the child's result is that of
    a child that is trained after its parent's stage."""
    plan = pretrain_plan(params, CHILD)
    pretrain.main(plan, CHILD)
    first = outputs(CHILD)
    assert not (paths.PRETRAINED / RUN).exists() and missing(pretrain_plan(params, RUN)) == []
    shutil.rmtree(store.ROOT)
    pretrain.main(pretrain_plan(params, SCRATCH), SCRATCH)
    assert not [*store.ROOT.glob("*")], "random weights are quickly drawn again"
    for run in (RUN, CHILD):
        pretrain.main(pretrain_plan(params, run), run)
    times = {paths.pretraining_time(CheckpointKey(CHILD, seed)) for seed in (1, 2)}
    assert {path for path, content in outputs(CHILD).items() if content != first[path]} <= times


@pytest.mark.slow
def test_pretrain_by_two_processes_has_the_losses_of_one(params: Params) -> None:
    plan = pretrain_plan(params, RUN)
    training = plan.entry.training.model_copy(update={"micro_batch_rows": 2})
    plan = edited(plan, training=training, seeds=[1])
    pretrain.main(plan, RUN)
    history = paths.PROGRESS / "history" / RUN / "1.csv"
    alone = pd.read_csv(history).loss
    write_plans({("pretrain", RUN): edited(plan, "distributed", devices=2)}, paths.PLANS)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DVC_STAGE": "pretrain"}
    subprocess.run([sys.executable, "-m", "stages.pretrain", RUN], env=environment, check=True)
    np.testing.assert_allclose(pd.read_csv(history).loss, alone, rtol=1e-5)
    assert len(alone) == 3
