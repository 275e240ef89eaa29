"""params.yaml: what it means, and every fault with its path."""

from pathlib import Path
from typing import Any

import pytest

from stages.core.components import Components
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
FULL, PROBE = "finetune.methods.full.training", "finetune.methods.linear_probe"


def study(changes: dict[str, Any]) -> Params:
    return typed(short_smoke_with(changes))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_load_accepts_every_study_that_is_shipped(path: Path) -> None:
    """A study means the same with every setting written out. One of them is params.yaml."""
    params = load(path)
    assert typed(written_out(params)) == params
    assert (ROOT / "params.yaml").read_text() in [each.read_text() for each in STUDIES]


@pytest.mark.parametrize(
    "folder", ["baselines", "methods", "models", "objectives", "optimizers", "sources", "tasks"]
)
def test_components_are_the_files_of_their_folder(folder: str) -> None:
    names = Components(folder).names()
    assert names and all(isinstance(Components(folder).find(n, where="x"), type) for n in names)


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
SMALLER = {"architecture": {"name": "bert", "d_model": 32}}


@pytest.mark.parametrize(
    ("entry", "own"),
    [
        ({"objective": "none"}, NOTHING_LEARNT),
        (SMALLER, SMALLER),
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


def test_methods_samples_and_baselines_change_some_settings() -> None:
    full = study({"finetune.methods.full.models": {"encoder_mlm": {"lr": 0.5}}}).finetune.methods[
        "full"
    ]
    assert full.training is not None
    assert full.of("encoder_mlm").training == full.training.model_copy(update={"lr": 0.5})
    assert full.of("decoder_causal").training == full.training

    changes = {"tasks.tag.num_test": "all", "tasks.tag.seed": 5, "samples.seed": 3}
    params = study(changes | {"tasks.tag.split_per_seed": True, "finetune.seeds": [1, 4]})
    drawn = ("num_train", "num_validation", "num_test", "seed", "split_seeds")
    tag, section = ([getattr(params.tasks[k], n) for n in drawn] for k in ("tag", "section"))
    assert tag == [200, 50, "all", 5, [1, 4]] and section == [200, 50, 100, 3, None]

    assert study({"finetune.label_budgets": [1]}).finetune.label_budgets == [1]
    assert study({"baselines": ["tfidf"]}).baselines == {"tfidf": {"name": "tfidf"}}
    entry = {"tfidf": {"C": 2.0}}
    assert study({"baselines": entry}).baselines == {"tfidf": {"name": "tfidf", "C": 2.0}}


# Faults ------------------------------------------------------------------------------------------


FAULTS: list[tuple[str, Any, str]] = [
    ("stduy", "smoke", "'study'"),
    (f"{FULL}.num_epoch", 3, "'num_epochs'"),
    (f"{MLM}.training.num_step", 3, "'num_steps'"),
    ("tokenizers.unigram.vocab", 9, "'vocab_size'"),
    (f"{MLM}.objective.mask_porb", 0.1, "did you mean 'mask_prob'"),
    (f"{MLM}.objective.mask_prob", "0.1", "number"),
    (f"{MLM}.objective.mask_prob", float("nan"), "finite"),
    (f"{MLM}.objective.name", "mlmm", "did you mean 'mlm'"),
    (f"{MLM}.architecture.d_model", DELETED, "missing"),
    ("finetune.max_tokens", DELETED, "missing"),
    (f"{MLM}.corpus", DELETED, "missing"),
    (f"{TRAINING}.num_steps", DELETED, "missing"),
    (f"{TRAINING}.num_steps", 0, "greater than 0, not 0"),
    (f"{MLM}.training.num_steps", 0, "greater than 0"),
    (f"{FULL}.patience", 0, "'none'"),
    ("finetune.label_budgets", [50, 50], "repeat"),
    ("finetune.seeds", [], "empty"),
    ("models.encoder-mlm", {}, "pattern"),
    ("tasks.tag.about", "Two\nlines.", "pattern"),
    ("tasks.tag.split_seeds", [1], "split_per_seed"),
    ("baselines", "tfidf", "mapping"),
    ("models", "bert", "mapping"),
    ("pretrain", "bert", "mapping"),
    ("size", 1, "DVC"),
]


@pytest.mark.parametrize(("path", "value", "word"), FAULTS, ids=[path for path, *_ in FAULTS])
def test_faults_have_their_path_once(path: str, value: Any, word: str) -> None:
    """Also those of settings that other entries take over."""
    [fault] = faults_of(short_smoke_with({path: value}))
    assert fault.path == path and word in fault.message


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({f"{MLM}.objective": {"name": "mlm", "mask_prob": 2.0}}, f"{MLM}.objective", "between"),
        ({"finetune.label_budgets": ["some"]}, "finetune.label_budgets.0", "'all'"),
        ({"samples.num_test": DELETED, "tasks.tag.num_test": 9}, "tasks.section.num_test", "miss"),
        ({f"{PROBE}.models": {"encoder_mlm": {"lr": 1}}}, PROBE, "`training`"),
    ],
)
def test_faults_have_the_path_of_what_must_change(changes: Any, path: str, word: str) -> None:
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


def test_old_forms_are_refused_with_what_to_write() -> None:
    """Files of an earlier version have runs, and models of this project as ``model:``."""
    old = {"models": DELETED, "pretrain.runs": {"a": {}}, "finetune.methods.full.runs": {}}
    faults = dict(faults_of(short_smoke_with(old)))
    assert "a below `models:`" in faults["pretrain.runs"] and len(faults) == 2
    assert "`models:`" in faults["finetune.methods.full.runs"]
    model = {"name": "encoder", "d_model": 64, "dropout": 0.1}
    faults = dict(faults_of(short_smoke_with({f"{MLM}.model": model})))
    written = "`architecture: {name: modernbert, d_model: 64, start: local}`"
    assert faults.keys() == {f"{MLM}.model"} and written in faults[f"{MLM}.model"]


@pytest.mark.parametrize(
    ("new", "message"), [("corpora: [", ""), ("<<: *training\ncorpora:", ".*dvc exp run -S")]
)
def test_load_refuses_what_is_no_yaml_or_breaks_dvc(tmp_path: Path, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"params\.yaml: {message}"):
        load(edited(tmp_path, "corpora:", new))


@pytest.mark.parametrize(("written", "rate"), [("1e-3", 1e-3), ("1", 1.0), ("3.0e-3", 3e-3)])
def test_load_reads_numbers_as_dvc_does(tmp_path: Path, written: str, rate: float) -> None:
    """``1e-3`` is a number, which PyYAML reads as a string."""
    params = load(edited(tmp_path, "lr: 3e-3", f"lr: {written}"))
    assert params.models["encoder_mlm"].training.lr == rate
