"""Budgets that runs share."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stages.core.params import Params, read_yaml
from stages.matching.budget import RunPlan, plans, step_flops
from stages.models._backbone import MODELS, outline
from stages.text.batch import Batch
from stages.text.tokenizer import Vocabulary
from tests.small import with_encoder_decoder

SMOKE = read_yaml(Path(__file__).parents[2] / "studies/smoke.yaml")
TASK = {key: value for key, value in SMOKE["tasks"]["section"].items() if key != "task"}


def study(matched: str, **training: Any) -> Params:
    """The smoke study with other settings of the decoder's training."""
    runs = SMOKE["pretrain"]
    decoder = runs["decoder_causal"]
    changed = runs | {"decoder_causal": decoder | {"training": decoder["training"] | training}}
    budget = {"matched": matched, "reference": "encoder_mlm"}
    return with_encoder_decoder(Params(**SMOKE | {"pretrain": changed, "budget": budget}))


TEXT = {"task": {"name": "seq2seq", "max_target_tokens": 8}, **TASK}


def planned(matched: str, model: dict[str, Any], **tasks: Any) -> RunPlan:
    """Of a run with this model, in a study of these tasks or of two with a head."""
    params = study(matched)
    if tasks:
        params = Params.model_validate(params.model_dump() | {"tasks": tasks})
    run = params.pretrain["encoder_decoder_span"].model_copy(update={"model": model})
    # It trains nothing: not every model goes together with one objective.
    run = run.model_copy(update={"objective": {"name": "none"}})
    runs = params.pretrain | {"run": run}
    return plans(params.model_copy(update={"pretrain": runs}))["run"]


def count(model: dict[str, Any], *, with_head: bool = False) -> int:
    """The number of weights, or of those that a task with a head uses."""
    found = outline(model, Vocabulary(2048).vocab_size, where="model")
    if with_head:
        found.drop_output_layers()
    return sum(weight.numel() for weight in found.parameters())


def test_none_keeps_what_each_entry_says() -> None:
    found = plans(study("none", num_steps=7))
    assert found["decoder_causal"].num_steps == 7
    assert found["encoder_mlm"].num_steps == 40


def test_tokens_are_those_of_the_reference_whatever_a_step_holds() -> None:
    found = plans(study("tokens", num_steps=7, batch_rows=8, micro_batch_rows=8, max_tokens=32))
    assert found["decoder_causal"].num_steps * 8 * 32 == 40 * 16 * 64


def test_flops_are_those_of_the_reference_to_half_a_step() -> None:
    params = study("flops")
    whole = 40 * step_flops(params, params.pretrain["encoder_mlm"])
    for key in ("decoder_causal", "encoder_decoder_span"):
        each = step_flops(params, params.pretrain[key])
        steps = plans(params)[key].num_steps
        assert abs(steps * each - whole) <= each / 2
        assert steps != 40


def test_every_learning_rate_that_is_tried_counts_in_flops_and_none_in_tokens() -> None:
    """All tries together take the operations of the reference; the kept model sees its tokens."""
    single, tuned = study("flops"), study("flops", lr=[1e-3, 2e-3, 3e-3, 4e-3])
    steps = [plans(params)["decoder_causal"].num_steps for params in (single, tuned)]
    assert abs(4 * steps[1] - steps[0]) <= 2
    each = step_flops(tuned, tuned.pretrain["decoder_causal"])
    assert each == step_flops(single, single.pretrain["decoder_causal"])
    tokens = plans(study("tokens", lr=[1e-3, 2e-3]))["decoder_causal"]
    assert tokens.num_steps == 40


def test_a_step_of_a_student_has_a_forward_pass_of_its_teacher_besides() -> None:
    params = study("flops")
    teacher = params.pretrain["encoder_mlm"]
    alone = teacher.model_copy(update={"model": teacher.model | {"num_layers": 1}})
    student = alone.model_copy(
        update={"parent": "encoder_mlm", "objective": {"name": "distillation"}}
    )
    besides = step_flops(params, student) - step_flops(params, alone)
    assert 3 * besides == step_flops(params, teacher)


def test_tasks_at_once_are_counted_as_the_architecture_has_them() -> None:
    """Rows of 64 tokens, 16 of which are read: an encoder-decoder has both in its halves, a decoder
    one behind the other. Each adds an <eos> to what is read."""
    params = study("none")
    for key, length in (("encoder_decoder_span", 17), ("decoder_causal", 64)):
        run = params.pretrain[key].model_copy(update={"objective": {"name": "multi_task"}})
        rows = run.training.batch_rows
        model = MODELS.build(run.model, Vocabulary(2048).vocab_size, where="model")
        ids = torch.zeros(rows, length, dtype=torch.int64)
        written = torch.zeros(rows, 48, dtype=torch.int64)
        batch = Batch(
            input_ids=ids,
            document_ids=ids + 1,
            decoder_input_ids=written if length == 17 else None,
            decoder_document_ids=written + 1 if length == 17 else None,
            num_targets={},
        )
        expected = model.flops(batch) + model.unembed_flops(rows * 48)
        assert step_flops(params, run) == 3 * expected


def test_parameters_of_both_halves_are_those_of_one_encoder() -> None:
    """Of 8 layers 3 in each half: a decoder's block has cross-attention besides."""
    model = study("parameters").pretrain["encoder_decoder_span"].model | {"num_layers": 8}
    plan = planned("parameters", model, text=TEXT)
    encoder = count(model | {"name": "encoder"})
    nearest = abs(count(plan.model) - encoder)
    assert plan.model == model | {"num_layers": 3}
    assert all(nearest <= abs(count(model | {"num_layers": n}) - encoder) for n in range(1, 9))


def test_tasks_with_a_head_use_as_much_of_an_encoder_decoder_as_of_an_encoder() -> None:
    """So that its layers stay."""
    model = study("parameters").pretrain["encoder_decoder_span"].model | {"num_layers": 8}
    plan = planned("parameters", model)
    assert plan.model == model
    assert count(plan.model, with_head=True) == count(model | {"name": "encoder"}, with_head=True)


def test_parameters_have_two_meanings_where_some_tasks_have_a_head_and_others_write() -> None:
    model = study("parameters").pretrain["encoder_decoder_span"].model | {"num_layers": 8}
    head = {"task": {"name": "classification"}, **TASK}
    with pytest.raises(ValueError, match=r"budget\.matched") as error:
        planned("parameters", model, text=TEXT, head=head)
    assert {"tasks.text", "tasks.head"} <= {*str(error.value).replace(",", " ").split()}
    assert planned("tokens", model, text=TEXT, head=head).model == model


@pytest.mark.parametrize("options", [{}, {"tied": False, "output_bias": False}], ids=str)
def test_parameters_of_a_bilstm_are_those_of_an_encoder_of_its_width(options) -> None:
    plan = planned("parameters", {"name": "bilstm", "d_model": 128, "d_cell": 64} | options)
    encoder = count({"name": "encoder", "d_model": 128} | options, with_head=True)
    more, fewer = (
        count(plan.model | {"d_cell": plan.model["d_cell"] + n}, with_head=True) for n in (1, -1)
    )
    assert fewer < encoder < more
    assert abs(count(plan.model, with_head=True) - encoder) <= (more - fewer) / 4


def test_a_bilstm_that_is_too_deep_for_its_parameters_has_the_least_cells() -> None:
    entry = {"name": "bilstm", "d_model": 64, "num_layers": 20}
    assert planned("parameters", entry).model == entry | {"d_cell": 32}


@pytest.mark.parametrize(
    ("entry", "sizes"),
    [
        (
            {"name": "encoder", "d_model": 128, "aspect_ratio": 32},
            {"num_layers": 4, "num_heads": 2, "d_ff": 512},
        ),
        ({"name": "bilstm", "d_model": 64}, {"num_layers": 2, "d_cell": 256}),
    ],
)
def test_the_plan_has_the_sizes_that_the_width_gives(entry, sizes) -> None:
    """In place of what stands for them, so that the entry is valid as it was."""
    plan = planned("tokens", entry)
    assert plan.model == {"name": entry["name"], "d_model": entry["d_model"]} | sizes
    assert count(plan.model) == count(entry)


def test_a_run_that_trains_nothing_keeps_its_entry() -> None:
    assert plans(study("flops"))["encoder_scratch"].num_steps == 40


@pytest.mark.parametrize("matched", ["tokens", "flops", "parameters"])
def test_the_reference_is_as_its_entry_says(matched: str) -> None:
    params = study(matched)
    plan = plans(params)["encoder_mlm"]
    assert (plan.num_steps, plan.model) == (40, params.pretrain["encoder_mlm"].model)
