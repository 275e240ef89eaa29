"""Budgets that runs share."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stages.components import build
from stages.params import Params, read_yaml
from stages.text.batch import Batch
from stages.text.tokenizer import Vocabulary
from stages.training.budget import plans, step_flops
from tests.small import with_encoder_decoder

SMOKE = read_yaml(Path(__file__).parents[2] / "studies/smoke.yaml")


def study(matched: str, **training: Any) -> Params:
    """The smoke study with other settings of the decoder's training."""
    runs = SMOKE["pretrain"]
    decoder = runs["decoder_causal"]
    changed = runs | {"decoder_causal": decoder | {"training": decoder["training"] | training}}
    budget = {"matched": matched, "reference": "encoder_mlm"}
    return with_encoder_decoder(Params(**SMOKE | {"pretrain": changed, "budget": budget}))


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
        model = build("models", run.model, Vocabulary(2048).vocab_size, where="model")
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
    params = study("parameters")
    run = params.pretrain["encoder_decoder_span"]
    deep = run.model | {"num_layers": 8}
    runs = params.pretrain | {"encoder_decoder_span": run.model_copy(update={"model": deep})}
    plan = plans(params.model_copy(update={"pretrain": runs}))["encoder_decoder_span"]
    vocab_size = Vocabulary(2048).vocab_size

    def count(name: str, layers: int) -> int:
        entry = deep | {"name": name, "num_layers": layers}
        model = build("models", entry, vocab_size, where="model")
        return sum(p.numel() for p in model.parameters())

    encoder = count("encoder", 8)
    nearest = abs(count("encoder_decoder", plan.num_layers) - encoder)
    assert plan.num_layers == 3
    assert all(nearest <= abs(count("encoder_decoder", n) - encoder) for n in range(1, 9))


def test_a_run_that_trains_nothing_keeps_its_entry() -> None:
    assert plans(study("flops"))["encoder_scratch"].num_steps == 40


@pytest.mark.parametrize("matched", ["tokens", "flops", "parameters"])
def test_the_reference_is_as_its_entry_says(matched: str) -> None:
    plan = plans(study(matched))["encoder_mlm"]
    assert (plan.num_steps, plan.num_layers) == (40, 2)
