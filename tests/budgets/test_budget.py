"""Matched budgets give runs equal tokens, operations or parameters."""

from typing import Any

import pytest

from stages.budgets.budget import matched, step_flops
from stages.core.params import Model, Params
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
    runs = params.models | {"decoder_causal": decoder.model_copy(update={"training": changed})}
    update = {"models": runs, "pretrain": params.pretrain.model_copy(update={"matched": budget})}
    return params.model_copy(update=update)


def num_steps(params: Params, run: str = "decoder_causal") -> int:
    return matched(params).models[run].training.num_steps


def matched_run(model: dict[str, Any], task: dict[str, Any] | None) -> Model:
    """Returns a run of this model with as many parameters as the reference, in a study of this task
    or of two with a head. It trains nothing, because no objective suits every model."""
    params = study("parameters")
    if task:
        section = params.tasks["section"].model_copy(update={"task": task})
        params = params.model_copy(update={"tasks": {"section": section}})
    update = {"architecture": model, "objective": {"name": "none"}}
    run = params.models["encoder_mlm"].model_copy(update=update)
    return matched(params.model_copy(update={"models": params.models | {"run": run}})).models["run"]


def count(model: dict[str, Any], *, with_head: bool = False) -> int:
    """Returns the number of weights, or of the weights that a task with a head uses."""
    backbone = outline(model, Vocabulary(2048).vocab_size, where="model")
    if with_head:
        backbone.drop_output_layers()
    return sum(weight.numel() for weight in backbone.parameters())


def test_matched_tokens_are_those_of_the_reference_whatever_a_step_holds() -> None:
    steps = {"num_steps": 7, "batch_rows": 8, "micro_batch_rows": 8, "max_tokens": 32}
    assert num_steps(study("tokens", **steps)) * 8 * 32 == 40 * 16 * 64
    assert num_steps(study("none", **steps)) == 7


def test_matched_flops_are_those_of_the_reference_to_half_a_step() -> None:
    params = study("flops")
    whole = 40 * step_flops(params, params.models["encoder_mlm"])
    for key in ("decoder_causal", "encoder_decoder_span"):
        of_step, steps = step_flops(params, params.models[key]), num_steps(params, key)
        assert abs(steps * of_step - whole) <= of_step / 2
        assert steps != 40


@pytest.mark.parametrize("budget", ["flops", "parameters"])
def test_matched_keeps_the_reference_and_runs_that_train_nothing(budget: str) -> None:
    params = study(budget)
    after = matched(params).models
    for key in ("encoder_mlm", "encoder_scratch"):
        before, run = params.models[key], after[key]
        assert run == before.model_copy(update={"architecture": run.architecture})
        assert run.architecture.items() >= before.architecture.items()


def test_matched_counts_every_learning_rate_in_flops_and_none_in_tokens() -> None:
    """All tries together take the reference's operations; the kept model alone, its tokens."""
    single, tuned = study("flops"), study("flops", lr=[1e-3, 2e-3, 3e-3, 4e-3])
    assert abs(4 * num_steps(tuned) - num_steps(single)) <= 2
    of_steps = [step_flops(params, params.models["decoder_causal"]) for params in (single, tuned)]
    assert of_steps[0] == of_steps[1]
    assert num_steps(study("tokens", lr=[1e-3, 2e-3])) == 40


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
    chosen = matched_run(model, task).architecture

    def difference(value: int) -> int:
        changed = count(chosen | {setting: value}, with_head=task is None)
        return abs(changed - count(REFERENCE, with_head=task is None))

    best = chosen[setting]
    assert difference(best) <= min(difference(best - 1), difference(best + 1))
