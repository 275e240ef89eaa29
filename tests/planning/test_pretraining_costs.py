"""The cost of pretraining, from params.yaml alone."""

from stages.core.params import Params
from stages.matching.budget import matched, step_flops
from stages.planning.pretraining_costs import (
    Pretraining,
    objective_of,
    pretrainings,
    random_batch,
)
from tests.planning.studies import with_gpt2, with_run


def costs(params: Params, **missing: list[int]) -> dict[str, Pretraining]:
    """Returns the costs of training the seeds ``missing``, by default all seeds of a run."""
    study = matched(params)
    seeds = {name: missing.get(name, run.seeds) for name, run in study.runs.items()}
    return {cost.run: cost for cost in pretrainings(study, seeds)}


def test_pretrainings_count_steps_tokens_and_operations(fresh: Params) -> None:
    runs = costs(fresh)
    assert [*runs] == [*fresh.runs]
    mlm, scratch = runs["encoder_mlm"], runs["encoder_scratch"]
    assert (mlm.objective, mlm.architecture, mlm.d_model, mlm.num_layers) == (
        "mlm",
        "encoder",
        64,
        2,
    )
    assert (mlm.num_steps, mlm.tokens) == (40, 40 * 16 * 64)
    assert mlm.flops == 40 * step_flops(fresh, fresh.runs["encoder_mlm"])
    assert mlm.num_params is not None and mlm.memory_bytes is not None
    assert mlm.disk_bytes == 4 * mlm.num_params
    assert mlm.memory_bytes > 4 * 4 * mlm.num_params  # weights, gradients and two moments
    assert (scratch.num_steps, scratch.tokens, scratch.flops) == (None, None, None)
    assert scratch.disk_bytes == mlm.disk_bytes


def test_pretrainings_count_the_seeds_that_have_to_be_trained(fresh: Params) -> None:
    three = with_run(fresh, "encoder_mlm", seeds=[1, 2, 3])
    one, all_seeds = costs(fresh)["encoder_mlm"], costs(three)["encoder_mlm"]
    some, none = (costs(three, encoder_mlm=seeds)["encoder_mlm"] for seeds in ([2, 3], []))
    for cost, number in ((all_seeds, 3), (some, 2)):
        for name in ("num_steps", "tokens", "flops", "validation_flops", "disk_bytes"):
            assert getattr(cost, name) == number * getattr(one, name)
        assert cost.pending and cost.num_seeds == 3 and cost.num_stored == 3 - number
        assert cost.memory_bytes == one.memory_bytes  # of the training with one seed
    assert not none.pending and none.num_stored == 0 and none.flops == all_seeds.flops


def test_pretrainings_count_every_learning_rate(fresh: Params) -> None:
    training = fresh.runs["encoder_mlm"].training
    tuned = training.model_copy(update={"lr": [1e-3, 3e-3, 1e-2]})
    one, three = (
        costs(params)["encoder_mlm"]
        for params in (fresh, with_run(fresh, "encoder_mlm", training=tuned))
    )
    for name in ("num_steps", "tokens", "flops", "validation_flops"):
        assert getattr(three, name) == 3 * getattr(one, name)
    assert (one.memory_bytes, one.disk_bytes) == (three.memory_bytes, three.disk_bytes)


def test_pretrainings_of_matched_operations_are_alike(fresh: Params) -> None:
    budget = fresh.budget.model_copy(update={"matched": "flops"})
    runs = costs(fresh.model_copy(update={"budget": budget}))
    trained = [runs[key] for key in ("encoder_mlm", "decoder_causal", "encoder_decoder_span")]
    flops = [cost.flops or 0 for cost in trained]
    assert max(flops) < 1.06 * min(flops)  # one step of the largest in about 20
    assert len({cost.num_steps for cost in trained}) > 1


def test_pretrainings_of_a_public_checkpoint_are_unknown_before_its_download(
    fresh: Params,
) -> None:
    gpt2 = costs(with_gpt2(fresh))["gpt2"]
    assert gpt2 == Pretraining("gpt2", "hub", 1, pending=True)


def test_objective_of_a_run_is_for_its_architecture(fresh: Params) -> None:
    run = fresh.runs["encoder_decoder_span"]
    both = run.model_copy(update={"objective": {"name": "multi_task"}})
    assert objective_of(both, fresh.tokenizers).architecture == "encoder_decoder"
    batch = random_batch(objective_of(both, fresh.tokenizers), rows=2, length=32)
    assert batch.decoder_input_ids is not None
