"""The checkpoints and trials of pending stages that are stored already. tests/test_edits.py has the
pending stages themselves."""

from collections.abc import Iterator

import pytest

from stages import finetune, pretrain
from stages.budgets.budget import matched
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Params
from stages.planning.estimate import made
from stages.planning.stored import Stores
from stages.training import checkpoint_store
from stages.training.device import resolve
from tests.planning.conftest import with_finetune, with_model
from tests.small_study import SCRATCH, finetune_plan, pretrain_plan, write_inputs, write_study

pytestmark = pytest.mark.slow
PRETRAIN, FINETUNE = f"pretrain@{SCRATCH}", "finetune@section"
MLM, CORPUS = "pretrain@encoder_mlm", "encode_corpus@none-unigram"


def stores(params: Params, *stages: str) -> Stores:
    return Stores(matched(params), stages)


def store_checkpoint(params: Params, checkpoint: CheckpointKey) -> None:
    """Puts a checkpoint into the store, where its stage would find it."""
    plan = pretrain_plan(params, checkpoint.model)
    device = resolve(plan.compute, threads=plan.compute.threads)
    address = checkpoint_store.address_of(plan, checkpoint, device)
    with checkpoint_store.new_entry(address) as folder:
        (folder / "weights").write_text("weights")


def test_missing_seeds_are_those_that_the_store_lacks(fresh: Params) -> None:
    """All are missing while another stage may change the inputs, or trains the parent again."""
    for seed in (1, 2):
        store_checkpoint(fresh, CheckpointKey("encoder_mlm", seed))
    params = with_model(fresh, "encoder_mlm", seeds=[2, 3, 1, 4])
    assert stores(params).missing_seeds("encoder_mlm") == []  # the stage is not pending
    for before, missing in (
        ((), [3, 4]),
        (("encode_corpus@prose-bpe",), [3, 4]),
        (("encode_corpus@prose-unigram",), [2, 3, 1, 4]),
        (("train_tokenizer@unigram",), [2, 3, 1, 4]),
    ):
        assert stores(params, MLM, *before).missing_seeds("encoder_mlm") == missing
    other = with_model(params, "encoder_mlm", objective={"name": "span_mlm"})
    assert stores(other, MLM).missing_seeds("encoder_mlm") == [2, 3, 1, 4]
    child = with_model(fresh, "child", "encoder_mlm", parent="encoder_mlm")
    store_checkpoint(child, CheckpointKey("child", 1))
    assert stores(child, "pretrain@child").missing_seeds("child") == []
    assert stores(child, "pretrain@child", MLM).missing_seeds("child") == [1]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Params]:
    """A study of a model with two seeds, of which the probes are stored."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        params = write_study(folder, lr=1e-2)
        params = params.model_copy(update={"models": {SCRATCH: params.models[SCRATCH]}})
        params = with_model(params, SCRATCH, seeds=[1, 2])
        params = with_finetune(params, label_budgets=[16, 32], seeds=[1])
        write_inputs(params)
        pretrain.main(pretrain_plan(params, SCRATCH), SCRATCH)
        probe = {"linear_probe": params.finetune.methods["linear_probe"]}
        probes = with_finetune(params, methods=probe)
        finetune.main(finetune_plan(probes, "section"), "section")
        yield params


PROBES = {
    TrialKey(SCRATCH, pretrain_seed, "section", "linear_probe", str(budget), 1)
    for pretrain_seed in (1, 2)
    for budget in (16, 32)
}


def test_trials_are_those_of_pending_stages_that_the_store_has(study: Params) -> None:
    """They cost nothing."""
    assert stores(study, FINETUNE).trials().keys() == PROBES
    assert stores(study, FINETUNE, PRETRAIN).trials().keys() == PROBES  # the checkpoints stay
    assert not stores(study).trials()
    for again in ("prepare_task@section", CORPUS):
        assert stores(study, FINETUNE, PRETRAIN, again).trials() == {}
    more = with_model(study, SCRATCH, seeds=[1, 2, 3])
    assert stores(more, FINETUNE, PRETRAIN).trials().keys() == PROBES
    costs = made(study, [PRETRAIN, FINETUNE]).costs
    assert [(c.task, c.method, len(c.works)) for c in costs] == [("section", "full", 4)]
    again = made(with_finetune(study, seeds=[1, 2]), [FINETUNE]).costs
    [cost] = [cost for cost in again if cost.method == "linear_probe"]
    assert len(cost.works) == 4 and cost.seconds is not None and cost.seconds > 0
