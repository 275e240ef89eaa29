"""params.yaml: what it means, and every fault with its path."""

from pathlib import Path
from typing import Any

import pytest

from stages.core.params import Params
from stages.core.study_file import load, typed
from tests.smoke import (
    DELETED,
    ROOT,
    STUDIES,
    edited,
    faults_of,
    paths_of,
    short_smoke_with,
    written_out,
)

BERT = {"name": "hub", "path": "google-bert/bert-base-uncased", "revision": "0" * 40}
ENCODER = {"name": "modernbert", "d_model": 64, "num_layers": 2, "num_heads": 2, "start": "local"}
MLM, TRAINING = "models.encoder_mlm", "pretrain.training"
FULL = "finetune.methods.full.training"


def study(changes: dict[str, Any]) -> Params:
    return typed(short_smoke_with(changes))


@pytest.mark.parametrize("path", [ROOT / "params.yaml", *STUDIES], ids=lambda p: p.name)
def test_load_accepts_every_study_that_is_shipped(path: Path) -> None:
    """A study means the same with every setting written out."""
    params = load(path)
    assert typed(written_out(params)) == params


def test_params_yaml_is_one_of_the_studies() -> None:
    assert (ROOT / "params.yaml").read_text() in [path.read_text() for path in STUDIES]


# What a study means ------------------------------------------------------------------------------


REFERENCE = {
    "corpus": "prose",
    "tokenizer": "unigram",
    "parent": "none",
    "architecture": ENCODER,
    "objective": {"name": "mlm"},
    "seeds": [1],
    "label": None,
}
NOTHING_LEARNT = {"corpus": "none", "objective": {"name": "none"}}


@pytest.mark.parametrize(
    ("entry", "own"),
    [
        ({}, {}),
        ({"objective": "none"}, NOTHING_LEARNT),
        (
            {"architecture": {"name": "bert", "d_model": 32}},
            {"architecture": {"name": "bert", "d_model": 32}},
        ),
        ({"architecture": BERT}, NOTHING_LEARNT | {"architecture": BERT, "tokenizer": "none"}),
        (
            {"architecture": BERT, "objective": "mlm", "tokenizer": "own"},
            {"architecture": BERT, "tokenizer": "own"},
        ),
        ({"corpus": "other", "seeds": [7, 3]}, {"corpus": "other", "seeds": [7, 3]}),
    ],
)
def test_models_take_over_from_the_first_what_they_do_not_state(
    entry: dict[str, Any], own: dict[str, Any]
) -> None:
    """An architecture is taken over as a whole. A model without an objective has no corpus, and a
    public checkpoint neither an objective nor a tokenizer."""
    params = study({"models.model": entry})
    model, expected = params.models["model"], REFERENCE | own
    assert {key: getattr(model, key) for key in expected} == expected
    assert model.training == params.models["encoder_mlm"].training


def test_models_that_continue_a_checkpoint_have_its_architecture_and_tokenizer() -> None:
    pinned = {key: BERT[key] for key in ("path", "revision")}
    runs = study(
        {
            "models.public": {"architecture": BERT},
            "models.more": {"parent": "public", "objective": "mlm"},
            "models.most": {"parent": "more", "objective": "mlm"},
            "tokenizers.own": {"corpus": "none", "algorithm": "hub"} | pinned,
        }
    ).models
    for name in ("more", "most"):
        assert (runs[name].architecture, runs[name].tokenizer) == (BERT, "own")
        assert runs[name].corpus == "prose" and not runs[name].as_published


@pytest.mark.parametrize(
    ("shared", "changes", "expected"),
    [
        ({}, {"lr": [1e-3, 1], "decay": "cosine"}, {"lr": [1e-3, 1.0], "decay": "cosine"}),
        # By default all rows of a step are in memory at once, whatever their number.
        ({}, {"batch_rows": 8}, {"batch_rows": 8, "micro_batch_rows": 8}),
        ({"micro_batch_rows": 4}, {"batch_rows": 8}, {"batch_rows": 8, "micro_batch_rows": 4}),
    ],
)
def test_training_of_a_model_changes_some_of_the_shared_settings(
    shared: dict[str, Any], changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    common = {f"{TRAINING}.{key}": value for key, value in shared.items()}
    params = study(common | {f"{MLM}.training": changes})
    before, after = (params.models[k].training for k in ("decoder_causal", "encoder_mlm"))
    assert after == before.model_copy(update=expected)


def test_methods_change_some_settings_for_single_models() -> None:
    method = study({"finetune.methods.full.models": {"encoder_mlm": {"lr": 0.5}}}).finetune.methods[
        "full"
    ]
    assert method.training is not None
    assert method.of("encoder_mlm").training == method.training.model_copy(update={"lr": 0.5})
    assert method.of("decoder_causal").training == method.training


def test_samples_are_those_of_tasks_that_do_not_state_their_own() -> None:
    changes = {"tasks.tag.num_test": "all", "tasks.tag.seed": 5, "samples.seed": 3}
    params = study(changes | {"tasks.tag.split_per_seed": True, "finetune.seeds": [1, 4]})
    drawn = ("num_train", "num_validation", "num_test", "seed", "split_seeds")
    tag, section = ([getattr(params.tasks[k], n) for n in drawn] for k in ("tag", "section"))
    assert tag == [200, 50, "all", 5, [1, 4]] and section == [200, 50, 100, 3, None]


@pytest.mark.parametrize(
    ("baselines", "expected"),
    [
        (["majority", "tfidf"], {"majority": {"name": "majority"}, "tfidf": {"name": "tfidf"}}),
        ({"tfidf": {"C": 2.0}}, {"tfidf": {"name": "tfidf", "C": 2.0}}),
    ],
)
def test_baselines_are_names_or_entries(baselines: object, expected: object) -> None:
    assert study({"baselines": baselines}).baselines == expected


# Faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"stduy": "smoke"}, "stduy", "'study'"),
        ({f"{FULL}.num_epoch": 3}, f"{FULL}.num_epoch", "'num_epochs'"),
        ({f"{MLM}.training.num_step": 3}, f"{MLM}.training.num_step", "'num_steps'"),
        ({"tokenizers.unigram.vocab": 9}, "tokenizers.unigram.vocab", "'vocab_size'"),
        ({"finetune.max_tokens": DELETED}, "finetune.max_tokens", "missing"),
        ({f"{TRAINING}.num_steps": DELETED}, f"{TRAINING}.num_steps", "missing"),
        ({f"{TRAINING}.num_steps": 0}, f"{TRAINING}.num_steps", "greater than 0, not 0"),
        ({f"{MLM}.training": {"num_steps": 0}}, f"{MLM}.training.num_steps", "greater than 0"),
        ({f"{FULL}.patience": 0}, f"{FULL}.patience", "'none'"),
        ({"finetune.label_budgets": ["some"]}, "finetune.label_budgets.0", "'all'"),
        ({"finetune.label_budgets": [50, 50]}, "finetune.label_budgets", "repeat"),
        ({"finetune.seeds": []}, "finetune.seeds", "empty"),
        ({"pretrain.seeds": [1, 1]}, "pretrain.seeds", "repeat"),
        ({"models.encoder-mlm": {}}, "models.encoder-mlm", "pattern"),
        ({"tasks.tag.about": "Two\nlines."}, "tasks.tag.about", "pattern"),
        ({"tasks.tag.split_seeds": [1]}, "tasks.tag.split_seeds", "split_per_seed"),
        ({"baselines": "tfidf"}, "baselines", "mapping"),
        ({"models": "bert"}, "models", "mapping"),
        ({"pretrain": "bert"}, "pretrain", "mapping"),
        ({"size": 1}, "size", "DVC"),
        ({f"{MLM}.corpus": DELETED}, f"{MLM}.corpus", "missing"),
        ({"samples.num_test": DELETED, "tasks.tag.num_test": 9}, "tasks.section.num_test", "miss"),
        (
            {"finetune.methods.linear_probe.models": {"encoder_mlm": {"lr": 1}}},
            "finetune.methods.linear_probe",
            "`training`",
        ),
    ],
)
def test_faults_have_their_path_once(changes: dict[str, Any], path: str, word: str) -> None:
    """Also those of settings that other entries take over."""
    [fault] = faults_of(short_smoke_with(changes))
    assert fault.path == path and word in fault.message


def test_faults_are_told_all_at_once() -> None:
    missing = paths_of(short_smoke_with({TRAINING: DELETED}))
    assert {f"{TRAINING}.{name}" for name in ("lr", "num_steps", "batch_rows")} < {*missing}
    changes = {"study": "My study", "tasks.tag.num_test": None, f"{TRAINING}.lr": 0, "size": 1}
    assert {*paths_of(short_smoke_with(changes))} == {*changes}


@pytest.mark.parametrize("lr", [0, [1e-3, 0], [1e-3, 1e-3], "fast"])
def test_rates_that_are_none_are_refused_with_their_path(lr: object) -> None:
    for where in (TRAINING, f"{MLM}.training", FULL):
        assert paths_of(short_smoke_with({f"{where}.lr": lr})) == [f"{where}.lr"]


def test_old_sections_are_refused_with_what_to_write() -> None:
    raw = short_smoke_with({"models": DELETED, "finetune.methods.full.runs": {}})
    raw["pretrain"] |= {"runs": {"a": {}, "b": {}}, "continued": {"c": {"parent": "b"}}}
    faults = {fault.path: fault.message for fault in faults_of(raw)}
    methods = "finetune.methods.full.runs"
    assert faults.keys() == {"pretrain.runs", "pretrain.continued", methods}
    assert "a, b below `models:`" in faults["pretrain.runs"] and "`models:`" in faults[methods]


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        (
            {"name": "encoder", "d_model": 64, "num_layers": 2, "positions": "rotary"},
            "{name: modernbert, d_model: 64, num_layers: 2, start: local}",
        ),
        ("decoder", "{name: phi, start: local}"),
        ({"name": "hub", "path": "a", "revision": "b"}, "{name: hub, path: a, revision: b}"),
    ],
)
def test_model_is_refused_with_the_architecture_to_write(model: Any, architecture: str) -> None:
    """Files of an earlier version name models of this project as ``model:``."""
    (fault,) = faults_of(short_smoke_with({f"{MLM}.model": model}))
    assert fault.path == f"{MLM}.model" and f"`architecture: {architecture}`" in fault.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("corpora:", "corpora: [", r"params\.yaml: "),
        ("corpora:", "<<: *training\ncorpora:", r"params\.yaml: .*dvc exp run -S"),
    ],
)
def test_load_refuses_what_is_no_yaml_or_breaks_dvc(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(edited(tmp_path, old, new))


@pytest.mark.parametrize(("written", "rate"), [("1e-3", 1e-3), ("1", 1.0), ("3.0e-3", 3e-3)])
def test_load_reads_numbers_as_dvc_does(tmp_path: Path, written: str, rate: float) -> None:
    """``1e-3`` is a number, which PyYAML reads as a string."""
    params = load(edited(tmp_path, "lr: 3e-3", f"lr: {written}"))
    assert params.models["encoder_mlm"].training.lr == rate
