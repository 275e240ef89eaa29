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
BILSTM = {"name": "bilstm", "d_model": 64, "num_layers": 2, "d_cell": 128}
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
        ({"model.num_heads": 5}, "model", "num_heads"),
        ({"model.d_f": 256}, "model.d_f", "unknown"),
        ({"model": {"name": "encoder", "d_model": 100, "num_layers": 2}}, "model", "num_heads"),
        ({"model.aspect_ratio": 32}, "model", "aspect_ratio"),
        ({"model.aspect_ratio": "low"}, "model.aspect_ratio", "integer"),
        ({"model.num_layers": 10**6}, "model", "num_layers"),
        ({"model.d_ff": 10**11}, "model", "weights"),
        (
            {"objective.next_sentence": "nsp", "model.num_segments": 1},
            "objective",
            "num_segments",
        ),
        ({"objective.next_sentence": "next"}, "objective.next_sentence", "'nsp'"),
        ({"model": BILSTM | {"positions": "learned"}}, "model.positions", "unknown"),
        ({"model": BILSTM}, "objective", "not bilstm"),
        ({"training.micro_batch_rows": 3}, "training.micro_batch_rows", "batch_rows"),
        ({"training.num_validations": 99}, "training.num_validations", "num_steps"),
        ({"training.optimizer": "muno"}, "training.optimizer.name", "'muon'"),
        ({"training.optimizer": {"name": "muon", "update_rms": 0}}, "training.optimizer", "0"),
    ],
)
def test_run_faults_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    study = smoke_with({f"{MLM}.{key}": value for key, value in changes.items()})
    assert any(
        fault.path == f"{MLM}.{path}" and word in fault.message for fault in faults_of(study)
    )


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"pretrain.reference": "encoder"}, ["pretrain.reference"]),
        ({"pretrain.reference": "encoder_scratch"}, ["pretrain.reference"]),
        (
            {f"{MLM}.model.positions": "learned", f"{MLM}.model.max_positions": 32},
            [f"{MLM}.training.max_tokens", "finetune.max_tokens"],
        ),
        (
            {"pretrain.runs.encoder_scratch.objective.name": "mlm"},
            ["pretrain.runs.encoder_scratch.corpus"],
        ),
        ({"distributed.strategy": "fdsp"}, ["distributed.strategy"]),
        ({f"{CAUSAL}.model": BILSTM, f"{CAUSAL}.objective.name": "bidirectional_lm"}, []),
        # Segment embeddings matter only to pairs.
        ({f"{MLM}.model.num_segments": 1}, []),
        ({f"{MLM}.objective.next_sentence": "nsp", f"{MLM}.model.num_segments": 2}, []),
        ({f"{MLM}.objective.next_sentence": "nsp", f"{MLM}.model.num_segments": 0}, []),
    ],
)
def test_find_faults_names_each_setting_once(changes: dict[str, Any], paths: list[str]) -> None:
    assert paths_of(smoke_with(changes)) == paths


def test_find_faults_refuses_a_run_that_repeats_another() -> None:
    again = {"pretrain.runs.again": {"seeds": [1]}}
    [fault] = faults_of(short_smoke_with(again))
    assert fault.path == "pretrain.runs.again" and "`seeds: [1, 2]`" in fault.message
    assert faults_of(short_smoke_with({"pretrain.runs.again": {"seeds": [2]}})) == []


def test_matched_parameters_need_an_encoder_of_a_bilstm_s_width() -> None:
    changes: dict[str, Any] = {
        f"{CAUSAL}.model": {"name": "bilstm", "d_model": 100},
        f"{CAUSAL}.objective.name": "bidirectional_lm",
    }
    assert faults_of(smoke_with(changes)) == []
    [fault] = faults_of(smoke_with(changes | {"pretrain.matched": "parameters"}))
    assert fault.path == f"{CAUSAL}.model" and "100" in fault.message


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({f"{TRAINING}.micro_batch_rows": 3}, [f"{TRAINING}.micro_batch_rows"]),
        ({f"{TRAINING}.num_validations": 99}, [f"{TRAINING}.num_validations"]),
        ({f"{CAUSAL}.training.micro_batch_rows": 3}, [f"{CAUSAL}.training.micro_batch_rows"]),
        # A shared setting that contradicts a setting of the run is a fault of the run.
        (
            {f"{TRAINING}.micro_batch_rows": 8, f"{CAUSAL}.training.batch_rows": 12},
            [f"{CAUSAL}.training.micro_batch_rows"],
        ),
        ({f"{CAUSAL}.training.num_steps": 2}, [f"{CAUSAL}.training.num_validations"]),
        # encoder_scratch takes the model over from encoder_mlm, decoder_causal the corpus.
        ({f"{MLM}.model.num_heads": 5}, [f"{MLM}.model"]),
        ({f"{MLM}.corpus": "prsoe"}, [f"{MLM}.corpus"]),
        ({f"{MLM}.tokenizer": "bpe"}, [f"{MLM}.tokenizer"]),
        ({f"{CHILD}": {"parent": "encoder_mlm"}, f"{MLM}.model.num_heads": 5}, [f"{MLM}.model"]),
        (
            {"pretrain.runs.own.model": {"name": "encoder", "d_model": 64, "num_heads": 5}}
            | {f"{MLM}.model.num_heads": 5},
            [f"{MLM}.model", "pretrain.runs.own.model"],
        ),
        (
            {f"{MLM}.model.positions": "learned", f"{MLM}.model.max_positions": 32},
            [f"{TRAINING}.max_tokens", "finetune.max_tokens"],
        ),
    ],
)
def test_told_once_names_where_a_setting_is_stated(
    changes: dict[str, Any], paths: list[str]
) -> None:
    assert paths_of(short_smoke_with(changes)) == paths


@pytest.mark.parametrize(
    ("devices", "micro_batch_rows", "is_refused"),
    [(2, 8, False), (2, 16, True), (16, 1, False), (32, 1, True)],
)
def test_uneven_refuses_micro_batches_that_processes_cannot_share(
    devices: int, micro_batch_rows: int, is_refused: bool
) -> None:
    changes = {f"{TRAINING}.micro_batch_rows": micro_batch_rows, "distributed.devices": devices}
    faults = faults_of(short_smoke_with(changes))
    assert [fault.path for fault in faults] == [f"{TRAINING}.micro_batch_rows"] * is_refused
    assert all(str(devices) in fault.message for fault in faults)


@pytest.mark.parametrize(
    ("device", "devices", "is_refused"),
    [("cpu", 2, False), ("cpu", 8, True), ("auto", 8, False)],
)
def test_too_few_threads_for_the_processes_of_a_cpu(
    device: str, devices: int, is_refused: bool
) -> None:
    """``auto`` may mean a GPU, which is known only where pretraining runs."""
    changes = {"compute.device": device, f"{TRAINING}.micro_batch_rows": 1}
    faults = faults_of(short_smoke_with(changes | {"distributed.devices": devices}))
    assert [fault.path for fault in faults] == ["distributed.devices"] * is_refused
    assert all("valid: 1 to 2" in fault.message for fault in faults)


# A run and its parent.

SMALL = {"name": "encoder", "d_model": 64, "num_heads": 2, "d_ff": 256}
AFTER = {  # objectives that may follow those of the smoke study's runs
    "encoder_mlm": "span_mlm",
    "decoder_causal": "prefix_lm",
    "encoder_decoder_span": "denoising",
}


def with_child(parent: str, **settings: Any) -> Params:
    """Returns the smoke study and a run ``child`` that differs from its parent in ``settings``."""
    params = with_encoder_decoder(typed(smoke_with({})))
    child = params.runs[parent if parent != "none" else "encoder_mlm"]
    child = child.model_copy(update={"parent": parent} | settings)
    return params.model_copy(update={"runs": params.runs | {"child": child}})


def distilled(parent: str, model: Mapping[str, Any], **settings: Any) -> Params:
    objective = {"name": "distillation"} | settings
    return with_child(parent, model=SMALL | {**model}, objective=objective)


@pytest.mark.parametrize("parent", AFTER)
def test_parent_faults_accept_every_architecture(parent: str) -> None:
    """The child may have another objective of its architecture, and may write out defaults."""
    child = with_child(parent).runs["child"]
    model = child.model | {"num_segments": 0}
    for name in (child.objective["name"], AFTER[parent]):
        assert faults_of(with_child(parent, objective={"name": name}, model=model)) == []
    untrained = with_child(parent, objective={"name": "none"}, model=model)
    assert paths_of(untrained) == [f"{CHILD}.objective"]


ENCODER = {"name": "encoder", "d_model": 64, "num_layers": 2, "num_heads": 2, "d_ff": 256}


@pytest.mark.parametrize(
    ("child", "path", "words"),
    [
        ({"model": {"name": "encoder", "d_model": 64, "aspect_ratio": 32, "num_heads": 2}}, "", ""),
        (
            {"model": {"name": "encoder", "d_model": 64, "aspect_ratio": 64, "num_heads": 2}},
            "parent",
            "num_layers is 2",
        ),
        ({"model": ENCODER | {"d_ff": 128}}, "parent", "d_ff is 256 there and 128 here"),
        ({"model": ENCODER | {"num_segments": 2}}, "parent", "num_segments is 0 there and 2 here"),
        ({"model": ENCODER | {"positions": "none"}}, "parent", "and none here"),
        ({"parent": "bert"}, "parent", "unknown"),
        ({"parent": "child"}, "parent", "cycle"),
        ({"parent": "decoder_causal"}, "", ""),  # with another mask, and maybe another output layer
        ({"parent": "decoder_causal", "model": ENCODER | {"output_transform": True}}, "", ""),
        ({"parent": "decoder_causal", "model": ENCODER | {"d_ff": 128}}, "parent", "d_ff is 256"),
        (
            {"parent": "decoder_causal", "model": {"name": "bilstm", "d_model": 64}}
            | {"objective": "bidirectional_lm"},
            "parent",
            "name is decoder there and bilstm here",
        ),
        ({"seeds": [1, 2, 3]}, "seeds", "2, 3 are not among the seeds of the parent encoder_mlm"),
        ({"seeds": [2]}, "seeds", "2 is not among"),
    ],
)
def test_parent_faults_compare_the_weights(child: dict[str, Any], path: str, words: str) -> None:
    settings = {"parent": "encoder_mlm", "objective": "span_mlm"} | child
    faults = faults_of(short_smoke_with({CHILD: settings}))
    assert [fault.path for fault in faults] == ([f"{CHILD}.{path}"] if path else [])
    assert all(words in fault.message for fault in faults)


def test_parent_faults_refuse_relative_positions_with_another_mask() -> None:
    positions = {f"{CAUSAL}.model.positions": "relative"}
    child = {"parent": "decoder_causal", "model": ENCODER | {"positions": "relative"}}
    [fault] = faults_of(short_smoke_with(positions | {CHILD: child | {"objective": "mlm"}}))
    assert fault.path == f"{CHILD}.parent" and "relative positions" in fault.message


@pytest.mark.parametrize("objective", ["span_mlm", "distillation"])
def test_parent_faults_compare_the_tokenizers(objective: str) -> None:
    child = {"parent": "encoder_mlm", "objective": objective, "tokenizer": "other"}
    tokenizer = {"corpus": "prose", "vocab_size": 2048}
    changes = {CHILD: child, "tokenizers.other": tokenizer, f"{MLM}.tokenizer": "unigram"}
    changes |= {f"{CAUSAL}.tokenizer": "unigram"}
    [fault] = faults_of(short_smoke_with(changes))
    assert fault.path == f"{CHILD}.parent" and "unigram" in fault.message


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        ({"num_layers": 1}, {}),
        ({"num_layers": 1, "dropout": 0.1}, {}),
        ({"num_layers": 3}, {"student_init": "random"}),
        (
            {"num_layers": 1, "d_model": 32, "positions": "none"},
            {"student_init": "random", "cosine_weight": 0.0},
        ),
    ],
)
def test_teacher_faults_accept_a_student_of_another_shape(
    model: dict[str, Any], objective: dict[str, Any]
) -> None:
    assert faults_of(distilled("encoder_mlm", model, **objective)) == []


@pytest.mark.parametrize(
    ("parent", "model", "objective", "path", "word"),
    [
        ("none", {}, {}, "pretrain.runs.child.objective", "pretrain.continued"),
        ("child", {}, {}, f"{CHILD}.parent", "cycle"),
        ("encoder_scratch", {}, {}, f"{CHILD}.parent", "trained"),
        ("decoder_causal", {}, {}, f"{CHILD}.parent", "not decoder"),
        ("encoder_mlm", {"num_layers": 2}, {}, f"{CHILD}.parent", "num_layers"),
        ("encoder_mlm", {"num_heads": 4}, {}, f"{CHILD}.parent", "num_heads"),
        (
            "encoder_mlm",
            {"d_model": 32},
            {"student_init": "random"},
            f"{CHILD}.parent",
            "cosine_weight",
        ),
        ("encoder_mlm", {}, {"soft_wieght": 1.0}, f"{CHILD}.objective.soft_wieght", ""),
        (
            "encoder_mlm",
            {},
            {"soft_weight": 0.0, "cosine_weight": 0.0},
            f"{CHILD}.objective",
            "soft_weight",
        ),
    ],
)
def test_teacher_faults_have_their_path(
    parent: str, model: dict[str, Any], objective: dict[str, Any], path: str, word: str
) -> None:
    params = distilled("encoder_mlm", {"num_layers": 1} | model, **objective)
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


def test_teacher_faults_refuse_rows_longer_than_the_teacher_knows() -> None:
    params = distilled("encoder_mlm", {"num_layers": 1}, student_init="random")
    teacher, child = (params.runs[name] for name in ("encoder_mlm", "child"))
    short = teacher.training.model_copy(update={"max_tokens": 32})
    model = teacher.model | {"positions": "learned", "max_positions": 32}
    teacher = teacher.model_copy(update={"model": model, "training": short})
    params = params.model_copy(update={"runs": {"encoder_mlm": teacher, "child": child}})
    finetune = params.finetune.model_copy(update={"max_tokens": 32})
    [fault] = faults_of(params.model_copy(update={"finetune": finetune}))
    assert fault.path == f"{CHILD}.training.max_tokens"
    assert f"{MLM}.model" in fault.message
