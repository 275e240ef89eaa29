"""Matched budgets give models equal tokens, operations or parameters."""

from typing import Any

import pytest

from stages.budgets.budget import matched, step_flops
from stages.core.params import Params
from stages.core.study_file import load
from stages.models._backbone import outline
from stages.text.tokenizer import Vocabulary
from tests.small import with_encoder_decoder
from tests.smoke import SMOKE

WRITING = {"name": "seq2seq", "max_target_tokens": 8}
DEEP = {"name": "t5", "d_model": 64, "num_layers": 8, "num_heads": 2}
REFERENCE = {"name": "modernbert", "d_model": 64, "num_layers": 2, "num_heads": 2}


def study(budget: str, **training: Any) -> Params:
    """Returns the smoke study with a third architecture, another matched budget and other settings
    of the decoder's training."""
    params = with_encoder_decoder(load(SMOKE))
    decoder = params.models["decoder_causal"]
    changed = decoder.training.model_copy(update=training)
    models = params.models | {"decoder_causal": decoder.model_copy(update={"training": changed})}
    update = {"models": models, "pretrain": params.pretrain.model_copy(update={"matched": budget})}
    return params.model_copy(update=update)


def num_steps(params: Params, model: str = "decoder_causal") -> int:
    return matched(params).models[model].training.num_steps


def test_matched_tokens_are_those_of_the_reference_whatever_a_step_holds() -> None:
    steps = {"num_steps": 7, "batch_rows": 8, "micro_batch_rows": 8, "max_tokens": 32}
    assert num_steps(study("tokens", **steps)) * 8 * 32 == 40 * 16 * 64
    assert num_steps(study("tokens", lr=[1e-3, 2e-3])) == 40, "those of the kept model alone"
    assert num_steps(study("none", **steps)) == 7


def test_matched_flops_are_those_of_the_reference_to_half_a_step() -> None:
    """All learning rates together take the reference's operations."""
    params, tuned = study("flops"), study("flops", lr=[1e-3, 2e-3, 3e-3, 4e-3])
    whole = 40 * step_flops(params, params.models["encoder_mlm"])
    for key in ("decoder_causal", "encoder_decoder_span"):
        of_step, steps = step_flops(params, params.models[key]), num_steps(params, key)
        assert abs(steps * of_step - whole) <= of_step / 2
        assert steps != 40
    assert step_flops(tuned, tuned.models["decoder_causal"]) == step_flops(
        params, params.models["decoder_causal"]
    )
    assert abs(4 * num_steps(tuned) - num_steps(params)) <= 2


def test_step_flops_of_a_student_include_its_teacher_s_and_no_other_parent_s() -> None:
    params = study("flops")
    reference = params.models["encoder_mlm"]
    more = reference.model_copy(update={"parent": "encoder_mlm"})
    student = more.model_copy(update={"objective": {"name": "distillation"}})
    student = student.model_copy(
        update={"architecture": reference.architecture | {"num_layers": 1}}
    )
    alone = student.model_copy(update={"objective": reference.objective})
    assert step_flops(params, more) == step_flops(params, reference)
    assert step_flops(params, student) > 1.2 * step_flops(params, alone)


@pytest.mark.parametrize("budget", ["flops", "parameters"])
def test_matched_keeps_the_reference_and_models_that_train_nothing(budget: str) -> None:
    params = study(budget)
    after = matched(params).models
    for key in ("encoder_mlm", "encoder_scratch"):
        before, model = params.models[key], after[key]
        assert model == before.model_copy(update={"architecture": model.architecture})
        assert model.architecture.items() >= before.architecture.items()


@pytest.mark.parametrize(
    ("model", "setting", "task"),
    [
        (DEEP, "num_layers", WRITING),  # uses the decoder, too, so each half has fewer layers
        (DEEP, "num_layers", None),  # a task with a head uses the encoder alone
        ({"name": "bilstm", "d_model": 64}, "d_cell", None),
    ],
)
def test_matched_parameters_are_nearest_to_those_of_the_reference(
    model: dict[str, Any], setting: str, task: dict[str, Any] | None
) -> None:
    """The model trains nothing, because no objective suits every model."""
    params = study("parameters")
    if task:
        section = params.tasks["section"].model_copy(update={"task": task})
        params = params.model_copy(update={"tasks": {"section": section}})
    update = {"architecture": model, "objective": {"name": "none"}}
    models = params.models | {"own": params.models["encoder_mlm"].model_copy(update=update)}
    chosen = matched(params.model_copy(update={"models": models})).models["own"].architecture

    def count(entry: dict[str, Any]) -> int:
        backbone = outline(entry, Vocabulary(2048).vocab_size, where="model")
        if task is None:
            backbone.drop_output_layers()
        return sum(weight.numel() for weight in backbone.parameters())

    best = chosen[setting]
    differences = [
        abs(count(chosen | {setting: value}) - count(REFERENCE))
        for value in (best, best - 1, best + 1)
    ]
    assert differences[0] == min(differences)
