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


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"corpus": "prsoe"}, "corpus", "'prose'"),
        ({"objective.name": "causal"}, "objective", "not encoder"),
        ({"corpus": "none"}, "corpus", "mlm"),
        ({"architecture.num_heads": 5}, "architecture", "num_heads"),
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
        ({"pretrain.reference": "encoder_scratch"}, ["pretrain.reference"]),
        ({f"{TRAINING}.optimizer": "muno"}, [f"{TRAINING}.optimizer.name"]),
        ({f"{CAUSAL}.training.micro_batch_rows": 3}, [f"{CAUSAL}.training.micro_batch_rows"]),
        # A shared setting that contradicts a setting of the run is a fault of the run.
        (
            {f"{TRAINING}.micro_batch_rows": 8, f"{CAUSAL}.training.batch_rows": 12},
            [f"{CAUSAL}.training.micro_batch_rows"],
        ),
        # Two processes share the rows of a step.
        (
            {f"{TRAINING}.micro_batch_rows": 16, "distributed.devices": 2},
            [f"{TRAINING}.micro_batch_rows"],
        ),
        ({f"{CAUSAL}.training.num_steps": 2}, [f"{CAUSAL}.training.num_validations"]),
        # encoder_scratch takes the architecture over from encoder_mlm, decoder_causal the corpus.
        ({f"{MLM}.architecture.num_heads": 5}, [f"{MLM}.architecture"]),
        (
            {f"{MLM}.architecture": FEW_POSITIONS},
            [f"{TRAINING}.max_tokens", "finetune.max_tokens", "finetune.max_tokens"],
        ),
    ],
)
def test_models_faults_name_where_a_setting_is_stated(
    changes: dict[str, Any], paths: list[str]
) -> None:
    """A fault of a shared setting is told once."""
    assert paths_of(short_smoke_with(changes)) == paths


# A run and its parent.


@pytest.mark.parametrize(
    ("parent", "objective"),
    [
        ("encoder_mlm", "span_mlm"),
        ("encoder_decoder_span", "multi_task"),
    ],
)
def test_parent_faults_accept_every_architecture(parent: str, objective: str) -> None:
    """The child may have another objective of its architecture, and may write out defaults."""
    params = with_encoder_decoder(typed(smoke_with({})))
    run = params.models[parent]
    update = {"parent": parent, "architecture": run.architecture | {"config": {}}}
    for name, expected in ((objective, []), ("none", [f"{CHILD}.objective"])):
        child = run.model_copy(update=update | {"objective": {"name": name}})
        study = params.model_copy(update={"models": params.models | {"child": child}})
        assert paths_of(study) == expected


def student(teacher: str = "encoder_mlm", **architecture: Any) -> Json:
    """Returns an entry of ``models`` that learns from a teacher."""
    sizes = ENCODER | {"num_layers": 1} | architecture
    return {"parent": teacher, "objective": "distillation", "architecture": sizes}


@pytest.mark.parametrize(
    ("child", "path", "words"),
    [
        ({"architecture": ENCODER | {"start": "local", "config": {}}}, "", ""),
        ({"architecture": ENCODER | {"num_layers": 1}}, "parent", "is 2 there and 1 here"),
        ({"parent": "child"}, "parent", "child -> child forms a cycle"),
        ({"tokenizer": "other"}, "parent", "unigram"),
        ({"seeds": [1, 2, 3]}, "seeds", "[2, 3]"),
        (student(), "", ""),
        (student(d_model=32), "parent", "num_layers"),
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
