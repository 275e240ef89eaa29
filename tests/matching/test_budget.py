"""Matched budgets give runs equal tokens, operations or parameters."""

from typing import Any

import pytest
import torch

from stages.core.params import Params, Run
from stages.core.study_file import load
from stages.matching.budget import matched, step_flops
from stages.models._backbone import outline
from stages.text.batch import Batch
from stages.text.tokenizer import Vocabulary
from stages.training.flops import of_outline
from tests.small import with_encoder_decoder
from tests.smoke import SMOKE

WRITING = {"name": "seq2seq", "max_target_tokens": 8}
DEEP = {"name": "encoder_decoder", "d_model": 64, "num_layers": 8, "num_heads": 2}


def study(budget: str, **training: Any) -> Params:
    """Returns the smoke study with a third architecture, another matched budget and other settings
    of the decoder's training."""
    params = with_encoder_decoder(load(SMOKE))
    decoder = params.runs["decoder_causal"]
    changed = decoder.training.model_copy(update=training)
    runs = params.runs | {"decoder_causal": decoder.model_copy(update={"training": changed})}
    update = {"runs": runs, "budget": params.budget.model_copy(update={"matched": budget})}
    return params.model_copy(update=update)


def num_steps(params: Params, run: str = "decoder_causal") -> int:
    return matched(params).runs[run].training.num_steps


def matched_run(budget: str, model: dict[str, Any], *tasks: dict[str, Any]) -> Run:
    """Returns a run with this model under the budget, in a study of these tasks or, without any, of
    two with a head. The run trains nothing, because no objective suits every model."""
    params = study(budget)
    if tasks:
        section = params.tasks["section"]
        entries = {t["name"]: section.model_copy(update={"task": t}) for t in tasks}
        params = params.model_copy(update={"tasks": entries})
    run = params.runs["encoder_mlm"].model_copy(
        update={"model": model, "objective": {"name": "none"}}
    )
    return matched(params.model_copy(update={"runs": params.runs | {"run": run}})).runs["run"]


def count(model: dict[str, Any], *, with_head: bool = False) -> int:
    """Returns the number of weights, or of the weights that a task with a head uses."""
    backbone = outline(model, Vocabulary(2048).vocab_size, where="model")
    if with_head:
        backbone.drop_output_layers()
    return sum(weight.numel() for weight in backbone.parameters())


def test_matched_none_keeps_what_each_entry_says() -> None:
    params = study("none", num_steps=7)
    assert num_steps(params) == 7 and num_steps(params, "encoder_mlm") == 40


def test_matched_tokens_are_those_of_the_reference_whatever_a_step_holds() -> None:
    params = study("tokens", num_steps=7, batch_rows=8, micro_batch_rows=8, max_tokens=32)
    assert num_steps(params) * 8 * 32 == 40 * 16 * 64


def test_matched_flops_are_those_of_the_reference_to_half_a_step() -> None:
    params = study("flops")
    whole = 40 * step_flops(params, params.runs["encoder_mlm"])
    for key in ("decoder_causal", "encoder_decoder_span"):
        of_step, steps = step_flops(params, params.runs[key]), num_steps(params, key)
        assert abs(steps * of_step - whole) <= of_step / 2
        assert steps != 40


@pytest.mark.parametrize("budget", ["tokens", "flops", "parameters"])
def test_matched_keeps_the_reference_and_runs_that_train_nothing(budget: str) -> None:
    params = study(budget)
    after = matched(params).runs
    for key in ("encoder_mlm", "encoder_scratch"):
        before, run = params.runs[key], after[key]
        assert run == before.model_copy(update={"model": run.model})
        assert run.model.items() >= before.model.items() and count(run.model) == count(before.model)


def test_matched_counts_every_learning_rate_in_flops_and_none_in_tokens() -> None:
    """All tries together take the reference's operations; the kept model alone, its tokens."""
    single, tuned = study("flops"), study("flops", lr=[1e-3, 2e-3, 3e-3, 4e-3])
    assert abs(4 * num_steps(tuned) - num_steps(single)) <= 2
    of_steps = [step_flops(params, params.runs["decoder_causal"]) for params in (single, tuned)]
    assert of_steps[0] == of_steps[1]
    assert num_steps(study("tokens", lr=[1e-3, 2e-3])) == 40


def test_step_flops_of_a_student_have_a_forward_pass_of_its_teacher() -> None:
    params = study("flops")
    teacher = params.runs["encoder_mlm"]
    alone = teacher.model_copy(update={"model": teacher.model | {"num_layers": 1}})
    student = alone.model_copy(
        update={"parent": "encoder_mlm", "objective": {"name": "distillation"}}
    )
    of_teacher = step_flops(params, student) - step_flops(params, alone)
    assert 3 * of_teacher == step_flops(params, teacher)


def test_step_flops_of_tasks_at_once_are_those_of_the_architecture() -> None:
    """Rows have 16 tokens to read, then <eos>, and 48 to write: in the two halves of an
    encoder-decoder, one after the other in a decoder."""
    params = study("none")
    for key, length in (("encoder_decoder_span", 17), ("decoder_causal", 64)):
        run = params.runs[key].model_copy(update={"objective": {"name": "multi_task"}})
        rows = run.training.batch_rows
        model = outline(run.model, Vocabulary(2048).vocab_size, where="model")
        ids = torch.zeros(rows, length, dtype=torch.int64)
        written = torch.zeros(rows, 48, dtype=torch.int64)
        batch = Batch(
            input_ids=ids,
            document_ids=ids + 1,
            decoder_input_ids=written if length == 17 else None,
            decoder_document_ids=written + 1 if length == 17 else None,
            num_targets={},
        )
        states = model.decode if length == 17 else model.forward
        expected = of_outline(lambda s=states, m=model, b=batch: m.unembed(s(b)[:, :48]).sum())
        assert step_flops(params, run) == expected


def test_matched_parameters_of_both_halves_are_those_of_one_encoder() -> None:
    """Each half has 3 of 8 layers, because a decoder's block has cross-attention in addition."""
    model = matched_run("parameters", DEEP, WRITING).model
    encoder = count(DEEP | {"name": "encoder"})
    difference = abs(count(model) - encoder)
    assert model["num_layers"] == 3 and model.items() >= (DEEP | {"num_layers": 3}).items()
    assert all(difference <= abs(count(DEEP | {"num_layers": n}) - encoder) for n in range(1, 9))


def test_matched_parameters_with_a_head_keep_the_layers_of_an_encoder_decoder() -> None:
    """Tasks with a head use its encoder alone, which is a whole encoder."""
    model = matched_run("parameters", DEEP).model
    assert model["num_layers"] == 8
    assert count(model, with_head=True) == count(DEEP | {"name": "encoder"}, with_head=True)


def test_matched_parameters_have_two_meanings_if_some_tasks_have_a_head_and_others_write() -> None:
    tasks = (WRITING, {"name": "classification"})
    with pytest.raises(ValueError, match=r"pretrain\.matched") as error:
        matched_run("parameters", DEEP, *tasks)
    assert "tasks.seq2seq" in str(error.value) and "tasks.classification" in str(error.value)
    assert matched_run("tokens", DEEP, *tasks).model["num_layers"] == 8


def test_matched_parameters_count_the_methods_of_the_run_alone() -> None:
    """A method that writes answers counts only for the runs that it fine-tunes."""
    (entry, *_) = study("parameters").finetune.methods.values()

    def under_budget(only: list[str] | None) -> Params:
        params = study("parameters")
        writing = entry.model_copy(update={"text_to_text": True, "only": only})
        methods = {"full": entry, "written": writing}
        finetune = params.finetune.model_copy(update={"methods": methods})
        return matched(params.model_copy(update={"finetune": finetune}))

    assert under_budget(["encoder_mlm"]).runs.keys() == study("parameters").runs.keys()
    with pytest.raises(ValueError, match=r"pretrain\.matched"):
        under_budget(None)


@pytest.mark.parametrize("options", [{}, {"tied": False, "output_bias": False}], ids=str)
def test_matched_parameters_of_a_bilstm_are_those_of_an_encoder_of_its_width(
    options: dict[str, Any],
) -> None:
    entry = {"name": "bilstm", "d_model": 128, "d_cell": 64} | options
    model = matched_run("parameters", entry).model
    encoder = count({"name": "encoder", "d_model": 128} | options, with_head=True)
    more, fewer = (count(model | {"d_cell": model["d_cell"] + n}, with_head=True) for n in (1, -1))
    assert fewer < encoder < more
    assert abs(count(model, with_head=True) - encoder) <= (more - fewer) / 4


@pytest.mark.parametrize(
    ("budget", "entry", "sizes"),
    [
        (  # too deep for its parameters: the fewest cells
            "parameters",
            {"name": "bilstm", "d_model": 64, "num_layers": 20},
            {"num_layers": 20, "d_cell": 32},
        ),
        (
            "tokens",
            {"name": "encoder", "d_model": 128, "aspect_ratio": 32},
            {"num_layers": 4, "num_heads": 2, "d_ff": 512},
        ),
        ("tokens", {"name": "bilstm", "d_model": 64}, {"num_layers": 2, "d_cell": 256}),
    ],
)
def test_matched_writes_out_the_sizes_that_the_width_gives(
    budget: str, entry: dict[str, Any], sizes: dict[str, Any]
) -> None:
    model = matched_run(budget, entry).model
    assert model == {"name": entry["name"], "d_model": entry["d_model"]} | sizes
    assert budget == "parameters" or count(model) == count(entry)
