"""Faults of runs: their settings, their objectives, their parents."""

from collections.abc import Mapping
from typing import Any

import pytest

from stages.core.params import Params
from stages.core.study_file import typed
from tests.small import with_encoder_decoder
from tests.smoke import faults_of, paths_of, short_smoke_with, smoke_with

MLM, CAUSAL = "pretrain.runs.encoder_mlm", "pretrain.runs.decoder_causal"
CHILD = "pretrain.continued.child"
SIZES = {"d_model": 64, "num_layers": 2, "num_heads": 2}
ENCODER, BILSTM = {"name": "modernbert"} | SIZES, {"name": "bilstm", "d_model": 64}
FEW_POSITIONS = {"name": "bert", "config": {"max_position_embeddings": 32}} | SIZES
TRAINING = "pretrain.training"


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"corpus": "prsoe"}, "corpus", "'prose'"),
        ({"tokenizer": "bpe"}, "tokenizer", "unknown"),
        ({"objective.name": "causal"}, "objective", "not encoder"),
        ({"objective.name": "mml"}, "objective.name", "'mlm'"),
        ({"objective": {}}, "objective.name", "unknown"),
        ({"corpus": "none"}, "corpus", "mlm"),
        ({"architecture.num_heads": 5}, "architecture", "num_heads"),
        ({"architecture.d_f": 256}, "architecture.d_f", "unknown"),
        ({"architecture.num_layers": "low"}, "architecture.num_layers", "integer"),
        ({"objective.next_sentence": "next"}, "objective.next_sentence", "'nsp'"),
        ({"architecture": BILSTM}, "objective", "not bilstm"),
        ({"training.micro_batch_rows": 3}, "training.micro_batch_rows", "batch_rows"),
        ({"training.num_validations": 99}, "training.num_validations", "num_steps"),
        ({"training.optimizer": "muno"}, "training.optimizer.name", "'muon'"),
    ],
)
def test_run_faults_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    study = smoke_with({f"{MLM}.{key}": value for key, value in changes.items()})
    assert any(
        fault.path == f"{MLM}.{path}" and word in fault.message for fault in faults_of(study)
    )


def test_find_faults_accepts_another_architecture() -> None:
    changes = {f"{CAUSAL}.architecture": BILSTM, f"{CAUSAL}.objective.name": "bidirectional_lm"}
    assert faults_of(smoke_with(changes)) == []


def test_repetition_faults_of_a_run_that_repeats_another() -> None:
    again = {"pretrain.runs.again": {"seeds": [1]}}
    [fault] = faults_of(short_smoke_with(again))
    assert fault.path == "pretrain.runs.again" and "`seeds: [1, 2]`" in fault.message
    assert faults_of(short_smoke_with({"pretrain.runs.again": {"seeds": [2]}})) == []


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"pretrain.reference": "encoder"}, ["pretrain.reference"]),
        ({"pretrain.reference": "encoder_scratch"}, ["pretrain.reference"]),
        ({f"{TRAINING}.micro_batch_rows": 3}, [f"{TRAINING}.micro_batch_rows"]),
        ({f"{TRAINING}.num_validations": 99}, [f"{TRAINING}.num_validations"]),
        ({f"{TRAINING}.optimizer": "muno"}, [f"{TRAINING}.optimizer.name"]),
        ({f"{CAUSAL}.training.micro_batch_rows": 3}, [f"{CAUSAL}.training.micro_batch_rows"]),
        # A shared setting that contradicts a setting of the run is a fault of the run.
        (
            {f"{TRAINING}.micro_batch_rows": 8, f"{CAUSAL}.training.batch_rows": 12},
            [f"{CAUSAL}.training.micro_batch_rows"],
        ),
        ({f"{CAUSAL}.training.num_steps": 2}, [f"{CAUSAL}.training.num_validations"]),
        # encoder_scratch takes the architecture over from encoder_mlm, decoder_causal the corpus.
        ({f"{MLM}.architecture.num_heads": 5}, [f"{MLM}.architecture"]),
        ({f"{MLM}.corpus": "prsoe"}, [f"{MLM}.corpus"]),
        ({f"{MLM}.tokenizer": "bpe"}, [f"{MLM}.tokenizer"]),
        (
            {f"{CHILD}": {"parent": "encoder_mlm"}, f"{MLM}.architecture.num_heads": 5},
            [f"{MLM}.architecture"],
        ),
        (
            {"pretrain.runs.own.architecture": ENCODER | {"num_heads": 3}}
            | {f"{MLM}.architecture.num_heads": 5},
            [f"{MLM}.architecture", "pretrain.runs.own.architecture"],
        ),
        (
            {f"{MLM}.architecture": FEW_POSITIONS},
            [f"{TRAINING}.max_tokens", "finetune.max_tokens", "finetune.max_tokens"],
        ),
    ],
)
def test_runs_faults_name_where_a_setting_is_stated(
    changes: dict[str, Any], paths: list[str]
) -> None:
    """A fault of a shared setting is told once."""
    assert paths_of(short_smoke_with(changes)) == paths


@pytest.mark.parametrize(
    ("devices", "micro_batch_rows", "is_refused"),
    [(2, 8, False), (2, 16, True), (16, 1, False), (32, 1, True)],
)
def test_training_faults_of_micro_batches_that_processes_cannot_share(
    devices: int, micro_batch_rows: int, is_refused: bool
) -> None:
    changes = {f"{TRAINING}.micro_batch_rows": micro_batch_rows, "distributed.devices": devices}
    faults = faults_of(short_smoke_with(changes))
    assert [fault.path for fault in faults] == [f"{TRAINING}.micro_batch_rows"] * is_refused
    assert all(str(devices) in fault.message for fault in faults)


# A run and its parent.

AFTER = {  # objectives that may follow those of the smoke study's runs
    "encoder_mlm": "span_mlm",
    "decoder_causal": "prefix_lm",
    "encoder_decoder_span": "multi_task",
}


def with_child(parent: str, **settings: Any) -> Params:
    """Returns the smoke study and a run ``child`` that differs from its parent in ``settings``."""
    params = with_encoder_decoder(typed(smoke_with({})))
    child = params.runs[parent if parent != "none" else "encoder_mlm"]
    child = child.model_copy(update={"parent": parent} | settings)
    return params.model_copy(update={"runs": params.runs | {"child": child}})


def distilled(parent: str, architecture: Mapping[str, Any], **settings: Any) -> Params:
    objective = {"name": "distillation"} | settings
    return with_child(parent, architecture=ENCODER | {**architecture}, objective=objective)


@pytest.mark.parametrize("parent", AFTER)
def test_parent_faults_accept_every_architecture(parent: str) -> None:
    """The child may have another objective of its architecture, and may write out defaults."""
    child = with_child(parent).runs["child"]
    architecture = child.architecture | {"config": {}}
    for name in (child.objective["name"], AFTER[parent]):
        objective = {"name": name}
        child_of = with_child(parent, objective=objective, architecture=architecture)
        assert faults_of(child_of) == []
    untrained = with_child(parent, objective={"name": "none"}, architecture=architecture)
    assert paths_of(untrained) == [f"{CHILD}.objective"]


@pytest.mark.parametrize(
    ("child", "path", "words"),
    [
        ({"architecture": ENCODER | {"start": "local", "config": {}}}, "", ""),
        (
            {"architecture": ENCODER | {"num_layers": 1, "start": "local"}},
            "parent",
            "num_layers is 2 there and 1 here",
        ),
        ({"architecture": ENCODER | {"d_ff": 128}}, "parent", "d_ff is"),
        ({"parent": "bert"}, "parent", "unknown"),
        ({"parent": "child"}, "parent", "cycle"),
        (
            {"parent": "decoder_causal", "architecture": BILSTM}
            | {"objective": "bidirectional_lm"},
            "parent",
            "name is phi there and bilstm here",
        ),
        ({"seeds": [1, 2, 3]}, "seeds", "2, 3 are not among the seeds of the parent encoder_mlm"),
        ({"seeds": [2]}, "seeds", "2 is not among"),
    ],
)
def test_parent_faults_compare_the_weights(child: dict[str, Any], path: str, words: str) -> None:
    settings = {"parent": "encoder_mlm", "objective": "span_mlm"} | child
    faults = faults_of(short_smoke_with({CHILD: settings}))
    assert {fault.path for fault in faults} == ({f"{CHILD}.{path}"} if path else set())
    assert not path or any(words in fault.message for fault in faults)


@pytest.mark.parametrize("objective", ["span_mlm", "distillation"])
def test_parent_faults_compare_the_tokenizers(objective: str) -> None:
    child = {"parent": "encoder_mlm", "objective": objective, "tokenizer": "other"}
    tokenizer = {"corpus": "prose", "vocab_size": 2048}
    changes = {CHILD: child, "tokenizers.other": tokenizer, f"{MLM}.tokenizer": "unigram"}
    changes |= {f"{CAUSAL}.tokenizer": "unigram"}
    [fault] = faults_of(short_smoke_with(changes))
    assert fault.path == f"{CHILD}.parent" and "unigram" in fault.message


@pytest.mark.parametrize(
    ("architecture", "objective"),
    [
        ({"num_layers": 1}, {}),
        ({"num_layers": 3}, {"student_init": "random"}),
        (
            {"num_layers": 1, "d_model": 32},
            {"student_init": "random", "cosine_weight": 0.0},
        ),
    ],
)
def test_teacher_faults_accept_a_student_of_another_shape(
    architecture: dict[str, Any], objective: dict[str, Any]
) -> None:
    assert faults_of(distilled("encoder_mlm", architecture, **objective)) == []


@pytest.mark.parametrize(
    ("parent", "architecture", "objective", "path", "word"),
    [
        ("none", {}, {}, "pretrain.runs.child.objective", "pretrain.continued"),
        ("child", {}, {}, f"{CHILD}.parent", "cycle"),
        ("encoder_scratch", {}, {}, f"{CHILD}.parent", "trained"),
        ("decoder_causal", {}, {}, f"{CHILD}.parent", "not decoder"),
        ("encoder_mlm", {"num_layers": 2}, {}, f"{CHILD}.parent", "num_layers"),
        (
            "encoder_mlm",
            {"d_model": 32},
            {"student_init": "random"},
            f"{CHILD}.parent",
            "cosine_weight",
        ),
        ("encoder_mlm", {}, {"soft_wieght": 1.0}, f"{CHILD}.objective.soft_wieght", ""),
    ],
)
def test_teacher_faults_have_their_path(
    parent: str, architecture: dict[str, Any], objective: dict[str, Any], path: str, word: str
) -> None:
    params = distilled("encoder_mlm", {"num_layers": 1} | architecture, **objective)
    child = params.runs["child"].model_copy(update={"parent": parent})
    [fault] = faults_of(params.model_copy(update={"runs": params.runs | {"child": child}}))
    assert fault.path == path and word in fault.message


def test_cycle_faults_name_each_run_that_leads_into_a_cycle() -> None:
    runs = {"child": "other", "other": "child", "third": "child"}
    changes = {
        f"pretrain.continued.{name}": {"parent": parent, "objective": "span_mlm"}
        for name, parent in runs.items()
    }
    faults = faults_of(short_smoke_with(changes))
    assert [f.path for f in faults if "cycle" in f.message] == [
        f"pretrain.continued.{name}.parent" for name in runs
    ]
