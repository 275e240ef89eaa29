"""Faults of runs: their settings, their objectives, their parents."""

from typing import Any

import pytest

from stages.core.params import Params, typed
from tests.small import with_encoder_decoder
from tests.smoke import ROOT, faults_of, paths_of, smoke_with

MLM, CAUSAL = "pretrain.encoder_mlm", "pretrain.decoder_causal"
ENCODER = {"name": "encoder", "d_model": 64, "num_layers": 2, "num_heads": 2, "d_ff": 256}
BILSTM = {"name": "bilstm", "d_model": 64, "num_layers": 2, "d_cell": 128}


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a source's path is relative to the project


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"corpus": "prsoe"}, "corpus", "'prose'"),
        ({"tokenizer": "bpe"}, "tokenizer", "unknown"),
        ({"parent": "bert"}, "parent", "unknown"),
        ({"parent": "encoder_mlm"}, "parent", "cycle"),
        ({"parent": "decoder_causal"}, "parent", "name is decoder"),
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
        ({"model.d_ff": 10**30}, "model", "size"),
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
    ],
)
def test_a_fault_of_a_run_has_its_path(changes: dict[str, Any], path: str, word: str) -> None:
    study = smoke_with({f"{MLM}.{key}": value for key, value in changes.items()})
    assert any(
        fault.path == f"{MLM}.{path}" and word in fault.message for fault in faults_of(study)
    )


def test_a_run_with_fewer_positions_than_tokens_is_refused_once_for_each_setting() -> None:
    study = smoke_with({f"{MLM}.model.positions": "learned", f"{MLM}.model.max_positions": 32})
    assert paths_of(study) == [f"{MLM}.training.max_tokens", "finetune.max_tokens"]


def test_segment_embeddings_matter_to_pairs_alone() -> None:
    for objective, num_segments in (("none", 1), ("nsp", 0), ("nsp", 2)):
        changes = {
            f"{MLM}.objective.next_sentence": objective,
            f"{MLM}.model.num_segments": num_segments,
        }
        assert faults_of(smoke_with(changes)) == []


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"budget.reference": "encoder"}, "budget.reference"),
        ({"budget.reference": "encoder_scratch"}, "budget.reference"),
        ({"pretrain.encoder_scratch.objective.name": "mlm"}, "pretrain.encoder_scratch.corpus"),
    ],
)
def test_a_fault_of_the_reference_or_of_a_run_from_scratch(
    changes: dict[str, Any], path: str
) -> None:
    assert paths_of(smoke_with(changes)) == [path]


def test_an_architecture_that_is_no_transformer_has_no_fault() -> None:
    changes = {f"{CAUSAL}.model": BILSTM, f"{CAUSAL}.objective.name": "bidirectional_lm"}
    assert faults_of(smoke_with(changes)) == []


def test_matched_parameters_need_an_encoder_of_a_bilstm_s_width() -> None:
    changes: dict[str, Any] = {
        f"{CAUSAL}.model": {"name": "bilstm", "d_model": 100},
        f"{CAUSAL}.objective.name": "bidirectional_lm",
    }
    assert faults_of(smoke_with(changes)) == []
    [fault] = faults_of(smoke_with(changes | {"budget.matched": "parameters"}))
    assert fault.path == f"{CAUSAL}.model" and "100" in fault.message


# A run and its parent.

SMALL = {"name": "encoder", "d_model": 64, "num_heads": 2, "d_ff": 256}
AFTER = {  # objectives that may follow those of the smoke study's runs
    "encoder_mlm": "span_mlm",
    "decoder_causal": "prefix_lm",
    "encoder_decoder_span": "denoising",
}


def with_child(parent: str, **settings: Any) -> Params:
    """The smoke study and a run ``child`` that differs from its parent in ``settings``."""
    params = with_encoder_decoder(typed(smoke_with({})))
    child = params.pretrain[parent if parent != "none" else "encoder_mlm"]
    child = child.model_copy(update={"parent": parent, "seed": 2} | settings)
    return params.model_copy(update={"pretrain": params.pretrain | {"child": child}})


def distilled(parent: str, model: dict[str, Any], **settings: Any) -> Params:
    objective = {"name": "distillation"} | settings
    return with_child(parent, model=SMALL | model, objective=objective)


@pytest.mark.parametrize("parent", AFTER)
def test_every_architecture_may_go_on_from_a_parent(parent: str) -> None:
    """The child may have another objective of its architecture, and may write out defaults."""
    child = with_child(parent).pretrain["child"]
    model = child.model | {"num_segments": 0}
    for name in (child.objective["name"], AFTER[parent]):
        assert faults_of(with_child(parent, objective={"name": name}, model=model)) == []
    untrained = with_child(parent, objective={"name": "none"}, model=model)
    assert paths_of(untrained) == ["pretrain.child.objective"]


def test_a_parent_s_size_may_be_left_to_its_width() -> None:
    model = {"name": "encoder", "d_model": 64, "aspect_ratio": 32, "num_heads": 2}
    assert faults_of(with_child("encoder_mlm", model=model)) == []
    [fault] = faults_of(with_child("encoder_mlm", model=model | {"aspect_ratio": 64}))
    assert fault.path == "pretrain.child.parent" and "num_layers is 2" in fault.message


@pytest.mark.parametrize(
    ("setting", "value"), [("d_ff", 128), ("num_segments", 2), ("positions", "none")]
)
def test_the_weights_of_another_model_are_refused(setting: str, value: Any) -> None:
    model = with_child("encoder_mlm").pretrain["child"].model | {setting: value}
    [fault] = faults_of(with_child("encoder_mlm", model=model))
    assert fault.path == "pretrain.child.parent"
    assert f"{setting} is " in fault.message and f"{value} here" in fault.message


def test_a_parent_with_another_tokenizer_is_refused() -> None:
    for objective in ({"name": "mlm"}, {"name": "distillation"}):
        params = with_child("encoder_mlm", objective=objective, tokenizer="other")
        tokenizers = params.tokenizers | {"other": params.tokenizers["unigram"]}
        [fault] = faults_of(params.model_copy(update={"tokenizers": tokenizers}))
        assert fault.path == "pretrain.child.parent" and "unigram" in fault.message


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
def test_a_student_need_not_be_its_teacher_in_small(
    model: dict[str, Any], objective: dict[str, Any]
) -> None:
    assert faults_of(distilled("encoder_mlm", model, **objective)) == []


@pytest.mark.parametrize(
    ("parent", "model", "objective", "path", "word"),
    [
        ("none", {"num_layers": 1}, {}, "parent", "none"),
        ("child", {"num_layers": 1}, {}, "parent", "cycle"),
        ("encoder_scratch", {"num_layers": 1}, {}, "parent", "trained"),
        ("decoder_causal", {"num_layers": 1}, {}, "parent", "not decoder"),
        ("encoder_mlm", {"num_layers": 2}, {}, "parent", "num_layers"),
        ("encoder_mlm", {"num_layers": 1, "num_heads": 4}, {}, "parent", "num_heads"),
        (
            "encoder_mlm",
            {"num_layers": 1, "d_model": 32},
            {"student_init": "random"},
            "parent",
            "cosine_weight",
        ),
        ("encoder_mlm", {"num_layers": 1}, {"soft_wieght": 1.0}, "objective.soft_wieght", ""),
        (
            "encoder_mlm",
            {"num_layers": 1},
            {"soft_weight": 0.0, "cosine_weight": 0.0},
            "objective",
            "soft_weight",
        ),
    ],
)
def test_an_incompatible_teacher_is_refused(
    parent: str, model: dict[str, Any], objective: dict[str, Any], path: str, word: str
) -> None:
    params = distilled("encoder_mlm", model, **objective)
    child = params.pretrain["child"].model_copy(update={"parent": parent})
    [fault] = faults_of(params.model_copy(update={"pretrain": params.pretrain | {"child": child}}))
    assert fault.path == f"pretrain.child.{path}" and word in fault.message


def test_a_longer_cycle_is_refused_for_each_of_its_runs() -> None:
    params = with_child("encoder_mlm")
    parents = {"encoder_mlm": "child", "encoder_scratch": "child"}
    runs = params.pretrain | {
        key: params.pretrain[key].model_copy(update={"parent": parent})
        for key, parent in parents.items()
    }
    faults = faults_of(params.model_copy(update={"pretrain": runs}))
    assert {f.path for f in faults if "cycle" in f.message} == {
        "pretrain.encoder_mlm.parent",
        "pretrain.encoder_scratch.parent",
        "pretrain.child.parent",
    }


def test_rows_longer_than_the_teacher_knows_are_refused() -> None:
    params = distilled("encoder_mlm", {"num_layers": 1}, student_init="random")
    teacher, child = (params.pretrain[name] for name in ("encoder_mlm", "child"))
    short = teacher.training.model_copy(update={"max_tokens": 32})
    model = teacher.model | {"positions": "learned", "max_positions": 32}
    teacher = teacher.model_copy(update={"model": model, "training": short})
    params = params.model_copy(update={"pretrain": {"encoder_mlm": teacher, "child": child}})
    finetune = params.finetune.model_copy(update={"max_tokens": 32})
    [fault] = faults_of(params.model_copy(update={"finetune": finetune}))
    assert fault.path == "pretrain.child.training.max_tokens"
    assert "pretrain.encoder_mlm.model" in fault.message


@pytest.mark.parametrize(
    ("devices", "micro_batch_rows", "refused"),
    [(2, 8, False), (2, 16, True), (16, 1, False), (32, 1, True)],
)
def test_micro_batches_that_processes_cannot_share(devices, micro_batch_rows, refused) -> None:
    """Each run that trains has one fault, if its rows cannot be shared."""
    runs = smoke_with({})["pretrain"]
    sizes = {f"pretrain.{run}.training.micro_batch_rows": micro_batch_rows for run in runs}
    faults = faults_of(smoke_with(sizes | {"distributed.devices": devices}))
    training = {run for run, entry in runs.items() if entry["objective"]["name"] != "none"}
    expected = {f"pretrain.{run}.training.micro_batch_rows" for run in training if refused}
    assert sorted(fault.path for fault in faults) == sorted(expected)
    assert all(str(devices) in fault.message for fault in faults)


@pytest.mark.parametrize(("device", "devices"), [("cpu", 2), ("cpu", 8), ("auto", 8)])
def test_more_processes_than_a_cpu_has_threads_for(device: str, devices: int) -> None:
    """Whether ``auto`` means a GPU is known only where pretraining runs."""
    compute = {"compute.device": device, "compute.threads": 2}
    rows = {f"pretrain.{run}.training.micro_batch_rows": 1 for run in smoke_with({})["pretrain"]}
    faults = faults_of(smoke_with(compute | rows | {"distributed.devices": devices}))
    if device == "cpu" and devices > 2:
        (fault,) = faults
        assert fault.path == "distributed.devices" and "valid: 1 to 2" in fault.message
    else:
        assert not faults


def test_a_strategy_of_another_name_is_refused() -> None:
    (fault,) = faults_of(smoke_with({"distributed.strategy": "fdsp"}))
    assert fault.path == "distributed.strategy"
    assert "fsdp" in fault.message
