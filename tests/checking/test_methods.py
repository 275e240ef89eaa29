"""Faults of methods with runs and tasks, and of texts that are too long for a run."""

from typing import Any

import pytest

from stages.core.artifacts import Json
from stages.core.study_file import typed
from tests.checking.test_models import BILSTM
from tests.small import with_encoder_decoder
from tests.smoke import DELETED, faults_of, paths_of, smoke_with

FULL = "finetune.methods.full.method"
OPTIMIZER = "finetune.methods.full.training.optimizer"
RUNS = "finetune.methods.full.models"
PROBE = "finetune.methods.linear_probe.method"
ONLY = "finetune.methods.linear_probe.only"
ENTRY = "finetune.methods.full"
SHOTS: Json = {"method": {"name": "in_context", "num_shots": 4}}
SMOKE = typed(smoke_with({}))
SECTION = smoke_with({})["tasks"]["section"]
SIZES = {"d_model": 64, "num_layers": 2, "num_heads": 2}
LENGTH, DECODER = "tasks.write.task.max_target_tokens", "models.decoder_causal.architecture"
TRAINED_ON = "models.decoder_causal.training.max_tokens"
WRITERS = ["decoder_causal", "encoder_decoder_span"]


@pytest.mark.parametrize(
    "changes",
    [
        {  # A method need not fit every run.
            FULL: {"name": "lora", "rank": 2},
            "models.decoder_causal.architecture": BILSTM,
            "models.decoder_causal.objective.name": "bidirectional_lm",
        },
        {f"{ONLY}": ["decoder_causal"]},
        {ENTRY: {"method": {"name": "none"}, "text_to_text": True}},
        {  # The first state of a prefix model has read the whole input.
            "tasks.section.task": {"name": "classification", "pooling": "first"},
            "models.decoder_causal.objective": {"name": "prefix_lm"},
        },
    ],
)
def test_fit_faults_accept(changes: dict[str, Any]) -> None:
    assert faults_of(smoke_with(changes)) == []


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        (
            {"tasks.section.task": {"name": "classification", "pooling": "first"}},
            "tasks.section.task.pooling",
            "decoder_causal",
        ),
        ({"finetune.methods.full.training": DELETED}, "finetune.methods.full.training", "trains"),
        ({FULL: {"name": "linear_probe"}}, "finetune.methods.full.training", "solved"),
        ({ENTRY: {"method": SHOTS["method"] | {"num_shots": 60}}}, f"{FULL}.num_shots", "50"),
        ({f"{OPTIMIZER}": "muno"}, f"{OPTIMIZER}.name", "'muon'"),
        ({f"{RUNS}.encoder_mlm": {"optimizer": "x"}}, f"{RUNS}.encoder_mlm.optimizer.name", "muon"),
        ({f"{RUNS}.encoder_mmm": {"lr": 1}}, RUNS, "'encoder_mlm'"),
        ({ONLY: ["encoder_mmm"]}, ONLY, "'encoder_mlm'"),
        (
            {
                "finetune.methods.full.only": [*SMOKE.models][1:],
                f"{RUNS}.encoder_mlm": {"lr": 1e-3},
            },
            f"{RUNS}.encoder_mlm",
            "`only` does not list encoder_mlm",
        ),
    ],
)
def test_fit_faults_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    [fault] = faults_of(smoke_with(changes))
    assert fault.path == path and word in fault.message


def test_unused_faults_of_runs_that_all_methods_leave_out() -> None:
    runs = ["encoder_mlm", "decoder_causal"]
    changes = {f"finetune.methods.{name}.only": runs for name in SMOKE.finetune.methods}
    [fault] = faults_of(smoke_with(changes))
    assert fault.path == "models.encoder_scratch.architecture" and "`only`" in fault.message


@pytest.mark.parametrize("positions", [68, 69])
def test_added_tokens_faults_of_a_prompt_without_positions(positions: int) -> None:
    short = {"name": "gpt2", "config": {"n_positions": positions}} | SIZES
    changes = {FULL: {"name": "prompt", "num_prompt_tokens": 5}, DECODER: short}
    assert paths_of(smoke_with(changes)) == [FULL] * (positions < 69)


def test_baseline_faults() -> None:
    """A baseline fits a task and has no run's name; no method is named ``classical``."""
    only_tag = SMOKE.model_copy(update={"tasks": {"tag": SMOKE.tasks["tag"]}})
    assert paths_of(only_tag) == ["baselines.tfidf"]
    changes = {
        "baselines.encoder_mlm": {"name": "majority"},
        "finetune.methods.classical": {"method": "linear_probe"},
    }
    assert {*paths_of(smoke_with(changes))} == {*changes}


@pytest.mark.parametrize(
    ("runs", "methods", "settings", "paths"),
    [
        (WRITERS, ["full"], {}, []),
        (["encoder_mlm", *WRITERS], ["full"], {}, ["models.encoder_mlm.architecture"]),
        (WRITERS, ["full", "linear_probe"], {}, ["finetune.methods.linear_probe.method"]),
        (WRITERS, ["full"], {"num_beams": 0}, ["tasks.write.task"]),
    ],
)
def test_fit_faults_of_a_task_of_writing(
    runs: list[str], methods: list[str], settings: dict[str, Any], paths: list[str]
) -> None:
    params = with_encoder_decoder(SMOKE)
    entry = {"name": "seq2seq", "max_target_tokens": 32} | settings
    chosen = {name: params.finetune.methods[name] for name in methods}
    update = {
        "tasks": {"write": params.tasks["tag"].model_copy(update={"task": entry})},
        "models": {name: params.models[name] for name in runs},
        "pretrain": params.pretrain.model_copy(update={"matched": "none", "reference": runs[-1]}),
        "baselines": {"copy": {"name": "copy"}},
        "finetune": params.finetune.model_copy(update={"methods": chosen}),
    }
    assert paths_of(params.model_copy(update=update)) == paths


def test_length_faults_count_what_a_decoder_writes() -> None:
    """A decoder reads 64 tokens and writes 32 in one row; the last token is not read."""
    task = SECTION | {"task": {"name": "seq2seq", "max_target_tokens": 32}}
    for positions, expected in ((63, "finetune.max_tokens"), (94, LENGTH), (95, "")):
        short = {"name": "gpt2", "config": {"n_positions": positions}} | SIZES
        faults = faults_of(smoke_with({DECODER: short, "tasks.write": task, TRAINED_ON: 32}))
        too_long = [f.path for f in faults if DECODER in f.message and "max_t" in f.path]
        assert too_long == ([expected] if expected else [])
