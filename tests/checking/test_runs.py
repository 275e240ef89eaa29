"""Faults of runs: their settings, their objectives, their parents."""

from typing import Any

import pytest

from stages.core.artifacts import Json
from stages.core.study_file import typed
from tests.small import with_encoder_decoder
from tests.smoke import faults_of, paths_of, short_smoke_with, smoke_with

MLM, CAUSAL = "models.encoder_mlm", "models.decoder_causal"
CHILD = "models.child"
SIZES = {"d_model": 64, "num_layers": 2, "num_heads": 2}
ENCODER, BILSTM = {"name": "modernbert"} | SIZES, {"name": "bilstm", "d_model": 64}
FEW_POSITIONS = {"name": "bert", "config": {"max_position_embeddings": 32}} | SIZES
TRAINING = "pretrain.training"
EMPTY: Json = {}


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"corpus": "prsoe"}, "corpus", "'prose'"),
        ({"tokenizer": "bpe"}, "tokenizer", "unknown"),
        ({"objective.name": "causal"}, "objective", "not encoder"),
        ({"objective.name": "mml"}, "objective.name", "'mlm'"),
        ({"corpus": "none"}, "corpus", "mlm"),
        ({"architecture.num_heads": 5}, "architecture", "num_heads"),
        ({"architecture.num_layers": "low"}, "architecture.num_layers", "integer"),
        ({"architecture": BILSTM}, "objective", "not bilstm"),
        ({"training.micro_batch_rows": 3}, "training.micro_batch_rows", "batch_rows"),
        ({"objective": {"name": "distillation"}}, "objective", "needs a teacher"),
    ],
)
def test_run_faults_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    study = smoke_with({f"{MLM}.{key}": value for key, value in changes.items()})
    assert any(
        fault.path == f"{MLM}.{path}" and word in fault.message for fault in faults_of(study)
    )


def test_repetition_faults_of_a_run_that_repeats_another() -> None:
    again = {"models.again": {"seeds": [1]}}
    [fault] = faults_of(short_smoke_with(again))
    assert fault.path == "models.again" and "`seeds: [1, 2]`" in fault.message
    assert faults_of(short_smoke_with({"models.again": {"seeds": [2]}})) == []


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"pretrain.reference": "encoder"}, ["pretrain.reference"]),
        ({"pretrain.reference": "encoder_scratch"}, ["pretrain.reference"]),
        ({f"{TRAINING}.micro_batch_rows": 3}, [f"{TRAINING}.micro_batch_rows"]),
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
        (
            {"models.own.architecture": ENCODER | {"num_heads": 3}}
            | {f"{MLM}.architecture.num_heads": 5},
            [f"{MLM}.architecture", "models.own.architecture"],
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


@pytest.mark.parametrize(("devices", "rows", "is_refused"), [(2, 8, False), (2, 16, True)])
def test_training_faults_of_micro_batches_that_processes_cannot_share(
    devices: int, rows: int, is_refused: bool
) -> None:
    changes = {f"{TRAINING}.micro_batch_rows": rows, "distributed.devices": devices}
    paths = paths_of(short_smoke_with(changes))
    assert paths == [f"{TRAINING}.micro_batch_rows"] * is_refused


# A run and its parent.


@pytest.mark.parametrize(
    ("parent", "objective"),
    [
        ("encoder_mlm", "span_mlm"),
        ("decoder_causal", "prefix_lm"),
        ("encoder_decoder_span", "multi_task"),
    ],
)
def test_parent_faults_accept_every_architecture(parent: str, objective: str) -> None:
    """The child may have another objective of its architecture, and may write out defaults."""
    params = with_encoder_decoder(typed(smoke_with({})))
    run = params.runs[parent]
    update = {"parent": parent, "architecture": run.architecture | {"config": {}}}
    for name, expected in ((objective, []), ("none", [f"{CHILD}.objective"])):
        child = run.model_copy(update=update | {"objective": {"name": name}})
        study = params.model_copy(update={"runs": params.runs | {"child": child}})
        assert paths_of(study) == expected


def student(teacher: str = "encoder_mlm", objective: Json = EMPTY, **architecture: Any) -> Json:
    """Returns an entry of ``models`` that learns from a teacher."""
    sizes = ENCODER | {"num_layers": 1} | architecture
    entry = {"name": "distillation"} | objective
    return {"parent": teacher, "objective": entry, "architecture": sizes}


RANDOM = {"student_init": "random"}


@pytest.mark.parametrize(
    ("child", "path", "words"),
    [
        ({"architecture": ENCODER | {"start": "local", "config": {}}}, "", ""),
        ({"architecture": ENCODER | {"num_layers": 1}}, "parent", "is 2 there and 1 here"),
        ({"parent": "child"}, "parent", "child -> child forms a cycle"),
        ({"tokenizer": "other"}, "parent", "unigram"),
        ({"seeds": [1, 2, 3]}, "seeds", "2, 3 are not among the seeds of the parent encoder_mlm"),
        (
            {"parent": "decoder_causal", "architecture": BILSTM}
            | {"objective": "bidirectional_lm"},
            "parent",
            "name is phi there and bilstm here",
        ),
        (student(), "", ""),
        (student(objective=RANDOM, num_layers=3), "", ""),
        (student(objective=RANDOM | {"cosine_weight": 0.0}, d_model=32), "", ""),
        (student(objective=RANDOM, d_model=32), "parent", "cosine_weight"),
        (student(num_layers=2), "parent", "num_layers"),
        (student("encoder_scratch"), "parent", "not trained"),
        (student("decoder_causal"), "parent", "not decoder"),
    ],
)
def test_parent_faults_compare_a_run_with_its_parent(
    child: dict[str, Any], path: str, words: str
) -> None:
    entry = {"parent": "encoder_mlm", "objective": "span_mlm"} | child
    tokenizer = {"corpus": "prose", "vocab_size": 2048}
    changes = {CHILD: entry, "tokenizers.other": tokenizer, f"{MLM}.tokenizer": "unigram"}
    faults = faults_of(short_smoke_with(changes | {f"{CAUSAL}.tokenizer": "unigram"}))
    assert {fault.path for fault in faults} == ({f"{CHILD}.{path}"} if path else set())
    assert not path or any(words in fault.message for fault in faults)
