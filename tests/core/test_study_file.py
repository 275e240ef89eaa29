"""params.yaml: its short form, what it means, and every fault with its path."""

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
MLM, TRAINING = "pretrain.runs.encoder_mlm", "pretrain.training"
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


# The short form ----------------------------------------------------------------------------------


def test_defaults_of_sections_that_a_study_leaves_out() -> None:
    params = study({"compute": DELETED, "baselines": DELETED})
    assert (params.title, params.baselines, params.packaged_checkpoints) == (None, {}, {})
    compute = params.compute
    assert (compute.device, compute.precision, compute.compile) == ("auto", "auto", False)
    assert (compute.threads, compute.trial_threads) == (1, 1)
    assert (params.distributed.num_ranks, params.distributed.strategy) == (1, "ddp")
    assert (params.budget.matched, params.budget.reference) == ("tokens", "encoder_mlm")
    budget = study({"pretrain.matched": "flops", "pretrain.reference": "decoder_causal"}).budget
    assert (budget.matched, budget.reference) == ("flops", "decoder_causal")
    assert params.pretrain_seeds == [1] and params.finetune.keep_weights == "first_seed"
    assert params.evaluation.confidence == 0.95
    training = params.runs["encoder_mlm"].training
    assert (training.warmup_fraction, training.decay, training.weight_decay) == (
        0.1,
        "linear",
        0.01,
    )
    assert (training.max_grad_norm, training.num_validations) == (1.0, 4)


REFERENCE = {
    "corpus": "prose",
    "tokenizer": "unigram",
    "parent": "none",
    "architecture": ENCODER,
    "objective": {"name": "mlm"},
    "seeds": [1],
}
AS_PUBLISHED = {"corpus": "none", "tokenizer": "none", "objective": {"name": "none"}}


@pytest.mark.parametrize(
    ("entry", "own"),
    [
        ({}, {}),
        ({"objective": "none"}, {"objective": {"name": "none"}, "corpus": "none"}),
        ({"objective": "none", "corpus": "prose"}, {"objective": {"name": "none"}}),
        ({"objective": "span_mlm"}, {"objective": {"name": "span_mlm"}}),
        (
            {"objective": {"name": "mlm", "mask_prob": 0.3}},
            {"objective": {"name": "mlm", "mask_prob": 0.3}},
        ),
        ({"corpus": "other"}, {"corpus": "other"}),
        ({"tokenizer": "other"}, {"tokenizer": "other"}),
        ({"architecture": "bilstm"}, {"architecture": {"name": "bilstm"}}),
        (
            {"architecture": {"name": "bert", "d_model": 32}},
            {"architecture": {"name": "bert", "d_model": 32}},
        ),
        ({"architecture": BERT}, AS_PUBLISHED | {"architecture": BERT}),
        (
            {"architecture": BERT, "objective": "mlm", "tokenizer": "own"},
            {"architecture": BERT, "tokenizer": "own"},
        ),
        ({"seeds": [7, 3]}, {"seeds": [7, 3]}),
    ],
)
def test_runs_take_over_from_the_reference_what_they_do_not_state(
    entry: dict[str, Any], own: dict[str, Any]
) -> None:
    """An architecture is taken over as a whole. A run without an objective has no corpus, and a
    public checkpoint neither an objective nor a tokenizer."""
    params = study({"pretrain.runs.run": entry})
    run, architecture = params.runs["run"], entry.get("architecture")
    expected = REFERENCE | own
    if isinstance(architecture, dict):
        expected |= {"architecture": architecture}
    assert {key: getattr(run, key) for key in expected} == expected
    assert run.training == params.runs["encoder_mlm"].training
    assert run.where("run") == "pretrain.runs.run"


def test_continued_runs_take_over_from_the_reference_and_name_their_parent() -> None:
    changes = {"pretrain.seeds": [1, 2], "pretrain.runs.decoder_causal.seeds": [1]}
    params = study(changes | {"pretrain.continued.more": {"parent": "encoder_mlm"}})
    more, reference = params.runs["more"], params.runs["encoder_mlm"]
    assert more == reference.model_copy(update={"parent": "encoder_mlm"})
    assert more.where("more") == "pretrain.continued.more"
    assert [*params.runs] == ["encoder_mlm", "encoder_scratch", "decoder_causal", "more"]
    assert params.checkpoints[:3] == [
        RunKey("encoder_mlm", 1),
        RunKey("encoder_mlm", 2),
        RunKey("encoder_scratch", 1),
    ]
    assert len(params.checkpoints) == 7 and params.pretrain_seeds == [1, 2]


@pytest.mark.parametrize(
    ("shared", "changes", "expected"),
    [
        ({}, {"lr": 1}, {"lr": 1.0}),
        ({}, {"lr": [1e-3, 1]}, {"lr": [1e-3, 1.0]}),
        ({}, {"decay": "cosine", "num_steps": 7}, {"decay": "cosine", "num_steps": 7}),
        # By default all rows of a step are in memory at once, whatever their number.
        ({}, {"batch_rows": 8}, {"batch_rows": 8, "micro_batch_rows": 8}),
        ({"micro_batch_rows": 4}, {"batch_rows": 8}, {"batch_rows": 8, "micro_batch_rows": 4}),
        ({}, {"micro_batch_rows": 2}, {"micro_batch_rows": 2}),
    ],
)
def test_training_of_a_run_changes_some_of_the_shared_settings(
    shared: dict[str, Any], changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    common = {f"{TRAINING}.{key}": value for key, value in shared.items()}
    params = study(common | {f"{MLM}.training": changes})
    before, after = (params.runs[k].training for k in ("decoder_causal", "encoder_mlm"))
    assert after == before.model_copy(update=expected)
    assert before.batch_rows == 16 and before.micro_batch_rows == shared.get("micro_batch_rows", 16)
    assert after.model_fields_set == {*changes}


def test_samples_are_those_of_tasks_that_do_not_state_their_own() -> None:
    params = study({"tasks.tag.num_test": "all", "tasks.tag.seed": 5, "samples.seed": 3})
    drawn = ("num_train", "num_validation", "num_test", "seed")
    tag, section = ([getattr(params.tasks[k], n) for n in drawn] for k in ("tag", "section"))
    assert tag == [200, 50, "all", 5] and section == [200, 50, 100, 3]
    assert study({}).tasks["tag"].seed == 1
    faults = faults_of(short_smoke_with({"samples": DELETED, "tasks.tag.num_train": 9}))
    assert [fault.path for fault in faults] == [
        "tasks.tag.num_validation",
        "tasks.section.num_train",
    ]
    assert "samples.num_train" in faults[1].message


@pytest.mark.parametrize(
    ("baselines", "expected"),
    [
        (["majority", "tfidf"], {"majority": {"name": "majority"}, "tfidf": {"name": "tfidf"}}),
        ({"tfidf": {}}, {"tfidf": {"name": "tfidf"}}),
        ({"tfidf": {"C": 2.0}}, {"tfidf": {"name": "tfidf", "C": 2.0}}),
        ({"words": "tfidf"}, {"words": {"name": "tfidf"}}),
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
        ({"finetune.keep_weight": "all"}, "finetune.keep_weight", "'keep_weights'"),
        ({f"{FULL}.num_epoch": 3}, f"{FULL}.num_epoch", "'num_epochs'"),
        ({f"{TRAINING}.num_step": 3}, f"{TRAINING}.num_step", "'num_steps'"),
        ({f"{MLM}.architectre": "bert"}, f"{MLM}.architectre", "'architecture'"),
        ({f"{MLM}.seed": 2}, f"{MLM}.seed", "'seeds'"),
        ({f"{MLM}.parent": "decoder_causal"}, f"{MLM}.parent", "pretrain.continued"),
        ({f"{MLM}.training.num_step": 3}, f"{MLM}.training.num_step", "'num_steps'"),
        ({"pretrain.continued.a": {}}, "pretrain.continued.a.parent", "missing"),
        ({"finetune.keep_weights": "some"}, "finetune.keep_weights", "'first_seed'"),
        ({"finetune.max_tokens": DELETED}, "finetune.max_tokens", "missing"),
        ({f"{TRAINING}.num_steps": 0}, f"{TRAINING}.num_steps", "0"),
        ({f"{TRAINING}.num_steps": "forty"}, f"{TRAINING}.num_steps", "integer"),
        ({f"{MLM}.training": {"num_steps": 0}}, f"{MLM}.training.num_steps", "0"),
        ({"finetune.label_budgets": ["some"]}, "finetune.label_budgets.0", "'all'"),
        ({"finetune.seeds": []}, "finetune.seeds", "empty"),
        ({"pretrain.seeds": [1, 1]}, "pretrain.seeds", "repeat"),
        ({f"{MLM}.seeds": 3}, f"{MLM}.seeds", "list"),
        ({"study": "my-study"}, "study", "pattern"),
        ({"baselines": ["tfidf", "tfidf"]}, "baselines", "repeat"),
        ({"baselines": "tfidf"}, "baselines", "dictionary"),
        ({"size": 1}, "size", "DVC"),
        ({"tasks.size": {}}, "tasks.size", "DVC"),
        ({"pretrain.runs.encoder-mlm": {}}, "pretrain.runs.encoder-mlm", "pattern"),
        ({"pretrain.runs": {}}, "pretrain.runs", "at least one run"),
        ({"tasks.tag.num_train": "some"}, "tasks.tag.num_train", "'all'"),
        ({"samples.num_test": 0}, "samples.num_test", "greater than 0"),
        (
            {"pretrain.continued.encoder_scratch": {"parent": "encoder_mlm"}},
            "pretrain.continued.encoder_scratch",
            "rename",
        ),
        ({"pretrain.continued.a": {"parent": "none"}}, "pretrain.continued.a.parent", "move"),
        ({TRAINING: DELETED}, TRAINING, "encoder_mlm trains"),
        ({f"{MLM}.architecture": DELETED}, f"{MLM}.architecture", "the first run must name"),
        ({f"{MLM}.objective": DELETED}, f"{MLM}.objective", "the first run must name"),
        ({f"{MLM}.corpus": DELETED}, f"{MLM}.corpus", "the first run must name its corpus"),
        ({"tasks.tag.about": "Two\nlines."}, "tasks.tag.about", "pattern"),
    ],
)
def test_faults_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    faults = faults_of(short_smoke_with(changes))
    assert any(fault.path == path and word in fault.message for fault in faults), faults


@pytest.mark.parametrize("where", [TRAINING, f"{MLM}.training", FULL])
@pytest.mark.parametrize("lr", [0, [1e-3, 0], [1e-3, 1e-3], "fast", []])
def test_rates_that_are_none_are_refused_with_their_path(where: str, lr: object) -> None:
    assert paths_of(short_smoke_with({f"{where}.lr": lr})) == [f"{where}.lr"]


def test_old_faults_have_the_lines_to_write_instead() -> None:
    """In files of an earlier version each seed was a run, and budget and about were sections."""
    raw = short_smoke_with({})
    settings = {"corpus": "prose", "objective": {"name": "mlm"}, "training": {}}
    raw["pretrain"] = {"bert": settings | {"seed": 1}, "bert_2": settings | {"seed": 2}}
    raw |= {"budget": {"matched": "flops", "reference": "bert"}, "about": {"title": "Which?"}}
    faults = {fault.path: fault.message for fault in faults_of(raw)}
    assert [*faults] == ["pretrain.bert.seed", "budget", "about"]
    for words in ("pretrain.runs", "`seeds: [1]`", "bert, bert_2", "docs/params.md"):
        assert words in faults["pretrain.bert.seed"]
    assert "`matched: flops`, `reference: bert` below pretrain" in faults["budget"]
    assert "`title:`" in faults["about"]


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        (
            {"name": "encoder", "d_model": 64, "num_layers": 2, "positions": "rotary"},
            "{name: modernbert, d_model: 64, num_layers: 2, start: local}",
        ),
        ("decoder", "{name: phi, start: local}"),
        ({"name": "encoder_decoder", "d_model": 64}, "{name: t5, d_model: 64}"),
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
