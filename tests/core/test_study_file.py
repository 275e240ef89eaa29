"""params.yaml: what it means, and every fault with its path."""

from pathlib import Path
from typing import Any

import pytest

from stages.core.keys import RunKey
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


def test_defaults_of_what_a_study_leaves_out() -> None:
    params = study({"compute": DELETED, "baselines": DELETED})
    assert (params.compute.device, params.compute.threads) == ("auto", 1)
    assert (params.pretrain.matched, params.pretrain.reference) == ("tokens", "encoder_mlm")
    assert params.corpora["prose"].decontaminate_against == "none"
    assert params.baselines == {} and params.evaluation.confidence == 0.95
    assert params.pretrain_seeds == [1] and params.finetune.keep_weights == "first_seed"


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
        ({"label": "An encoder"}, {"label": "An encoder"}),
        ({"objective": "none"}, NOTHING_LEARNT),
        ({"objective": "none", "corpus": "prose"}, {"objective": {"name": "none"}}),
        (
            {"objective": {"name": "mlm", "mask_prob": 0.3}},
            {"objective": {"name": "mlm", "mask_prob": 0.3}},
        ),
        ({"architecture": "bilstm"}, {"architecture": {"name": "bilstm"}}),
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
        ({"parent": "encoder_scratch"}, {"parent": "encoder_scratch"}),
    ],
)
def test_models_take_over_from_the_first_what_they_do_not_state(
    entry: dict[str, Any], own: dict[str, Any]
) -> None:
    """An architecture is taken over as a whole. A model without an objective has no corpus, and a
    public checkpoint neither an objective nor a tokenizer."""
    params = study({"models.model": entry})
    model, expected = params.runs["model"], REFERENCE | own
    assert {key: getattr(model, key) for key in expected} == expected
    assert model.training == params.runs["encoder_mlm"].training
    assert [*params.runs][-1] == "model" and model.where("model") == "models.model"


def test_models_that_continue_a_checkpoint_have_its_architecture_and_tokenizer() -> None:
    pinned = {key: BERT[key] for key in ("path", "revision")}
    runs = study(
        {
            "models.public": {"architecture": BERT},
            "models.more": {"parent": "public", "objective": "mlm"},
            "models.most": {"parent": "more", "objective": "mlm"},
            "tokenizers.own": {"corpus": "none", "algorithm": "hub"} | pinned,
        }
    ).runs
    for name in ("more", "most"):
        assert (runs[name].architecture, runs[name].tokenizer) == (BERT, "own")
        assert runs[name].corpus == "prose" and not runs[name].as_published


def test_checkpoints_are_those_of_all_models_in_order() -> None:
    params = study({"pretrain.seeds": [1, 2], "models.decoder_causal.seeds": [1]})
    assert [*params.checkpoints] == [
        *(RunKey(name, seed) for name in ("encoder_mlm", "encoder_scratch") for seed in (1, 2)),
        RunKey("decoder_causal", 1),
    ]


@pytest.mark.parametrize(
    ("shared", "changes", "expected"),
    [
        ({}, {"lr": [1e-3, 1]}, {"lr": [1e-3, 1.0]}),
        ({}, {"decay": "cosine", "num_steps": 7}, {"decay": "cosine", "num_steps": 7}),
        # By default all rows of a step are in memory at once, whatever their number.
        ({}, {"batch_rows": 8}, {"batch_rows": 8, "micro_batch_rows": 8}),
        ({"micro_batch_rows": 4}, {"batch_rows": 8}, {"batch_rows": 8, "micro_batch_rows": 4}),
        ({}, {"micro_batch_rows": 2}, {"micro_batch_rows": 2}),
    ],
)
def test_training_of_a_model_changes_some_of_the_shared_settings(
    shared: dict[str, Any], changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    common = {f"{TRAINING}.{key}": value for key, value in shared.items()}
    params = study(common | {f"{MLM}.training": changes})
    before, after = (params.runs[k].training for k in ("decoder_causal", "encoder_mlm"))
    assert after == before.model_copy(update=expected)
    assert before.batch_rows == 16 and before.micro_batch_rows == shared.get("micro_batch_rows", 16)


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
    faults = faults_of(short_smoke_with({"samples": DELETED, "tasks.tag.num_train": 9}))
    assert [fault.path for fault in faults] == [
        *(f"tasks.tag.{name}" for name in drawn[1:3]),
        *(f"tasks.section.{name}" for name in drawn[:3]),
    ]
    assert "samples.num_train" in faults[2].message


@pytest.mark.parametrize(
    ("baselines", "expected"),
    [
        (["majority", "tfidf"], {"majority": {"name": "majority"}, "tfidf": {"name": "tfidf"}}),
        ({"tfidf": {"C": 2.0}}, {"tfidf": {"name": "tfidf", "C": 2.0}}),
        ({"words": {"name": "tfidf", "C": 2.0}}, {"words": {"name": "tfidf", "C": 2.0}}),
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
        ({f"{MLM}.architectre": "bert"}, f"{MLM}.architectre", "'architecture'"),
        ({f"{MLM}.training.num_step": 3}, f"{MLM}.training.num_step", "'num_steps'"),
        ({"tokenizers.unigram.vocab": 9}, "tokenizers.unigram.vocab", "'vocab_size'"),
        ({"finetune.max_tokens": DELETED}, "finetune.max_tokens", "missing"),
        ({f"{TRAINING}.num_steps": DELETED}, f"{TRAINING}.num_steps", "missing"),
        ({f"{TRAINING}.num_steps": 0}, f"{TRAINING}.num_steps", "greater than 0, not 0"),
        ({f"{TRAINING}.num_steps": "forty"}, f"{TRAINING}.num_steps", "integer, not 'forty'"),
        ({f"{MLM}.training": {"num_steps": 0}}, f"{MLM}.training.num_steps", "greater than 0"),
        ({f"{FULL}.patience": 0}, f"{FULL}.patience", "'none'"),
        ({"finetune.label_budgets": ["some"]}, "finetune.label_budgets.0", "'all'"),
        ({"finetune.seeds": []}, "finetune.seeds", "empty"),
        ({"pretrain.seeds": [1, 1]}, "pretrain.seeds", "repeat"),
        ({f"{MLM}.seeds": 3}, f"{MLM}.seeds", "list"),
        ({"study": "my-study"}, "study", "small letters, digits and _"),
        ({"models.encoder-mlm": {}}, "models.encoder-mlm", "small letters, digits and _"),
        ({"tasks.tag.about": "Two\nlines."}, "tasks.tag.about", "one line"),
        ({"baselines": ["tfidf", "tfidf"]}, "baselines", "repeat"),
        ({"baselines": "tfidf"}, "baselines", "mapping"),
        ({"models": "bert"}, "models", "mapping"),
        ({"size": 1}, "size", "DVC"),
        ({"samples.num_test": 0}, "samples.num_test", "greater than 0"),
        ({TRAINING: DELETED}, TRAINING, "encoder_mlm trains"),
        ({f"{MLM}.architecture": DELETED}, f"{MLM}.architecture", "the first model must name"),
        ({f"{MLM}.corpus": DELETED}, f"{MLM}.corpus", "the first model must name its corpus"),
    ],
)
def test_faults_have_their_path_once(changes: dict[str, Any], path: str, word: str) -> None:
    """Also those of settings that other entries take over."""
    [fault] = [f for f in faults_of(short_smoke_with(changes)) if f.message != "unknown 'size'"]
    assert fault.path == path and word in fault.message


def test_faults_are_told_all_at_once() -> None:
    changes = {"study": "My study", "tasks.tag.num_test": None, f"{TRAINING}.lr": 0, "size": 1}
    assert {*paths_of(short_smoke_with(changes))} == {*changes}


@pytest.mark.parametrize("where", [TRAINING, f"{MLM}.training", FULL])
@pytest.mark.parametrize("lr", [0, [1e-3, 0], [1e-3, 1e-3], "fast"])
def test_rates_that_are_none_are_refused_with_their_path(where: str, lr: object) -> None:
    assert paths_of(short_smoke_with({f"{where}.lr": lr})) == [f"{where}.lr"]


@pytest.mark.parametrize(
    ("section", "path", "line"),
    [
        ({"runs": {"a": {}, "b": {}}}, "pretrain.runs", "a, b below `models:`"),
        ({"continued": {"a": {"parent": "b"}}}, "pretrain.continued", "a below `models:`"),
    ],
)
def test_old_sections_are_refused_with_what_to_write(
    section: dict[str, Any], path: str, line: str
) -> None:
    raw = short_smoke_with({"models": DELETED, "finetune.methods.full.runs": {}})
    raw["pretrain"] |= section
    faults = {fault.path: fault.message for fault in faults_of(raw)}
    assert faults.keys() == {path, "finetune.methods.full.runs"} and line in faults[path]
    assert "`models:`" in faults["finetune.methods.full.runs"]


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
        ("study: smoke", "study: smoke\nstudy: other", r"params\.yaml: "),
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
    assert params.runs["encoder_mlm"].training.lr == rate
