"""params.yaml: its short form, what it means, and every fault with its path."""

import datetime
import os
import time
from pathlib import Path
from typing import Any

import pytest

from stages.core.keys import RunKey
from stages.core.params import Params
from stages.core.study_file import load, read_yaml, typed
from stages.sources.files import Files
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
ENCODER = {"name": "encoder", "d_model": 64, "num_layers": 2, "num_heads": 2}
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
    assert params.finetune.screen is None and params.evaluation.confidence == 0.95
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
    "model": ENCODER,
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
        ({"model": "bilstm"}, {"model": {"name": "bilstm"}}),
        ({"model": {"name": "encoder", "d_model": 32}}, {"model": ENCODER | {"d_model": 32}}),
        ({"model": BERT}, AS_PUBLISHED | {"model": BERT}),
        (
            {"model": BERT, "objective": "mlm", "tokenizer": "own"},
            {"model": BERT, "tokenizer": "own"},
        ),
        ({"seeds": [7, 3]}, {"seeds": [7, 3]}),
    ],
)
def test_runs_take_over_from_the_reference_what_they_do_not_state(
    entry: dict[str, Any], own: dict[str, Any]
) -> None:
    """A model is taken over as a whole; a run without an objective has no corpus, and a public
    checkpoint neither an objective nor a tokenizer."""
    params = study({"pretrain.runs.run": entry})
    run, model = params.runs["run"], entry.get("model")
    expected = REFERENCE | own
    if isinstance(model, dict):
        expected |= {"model": model}
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


def test_training_is_left_out_where_no_run_trains() -> None:
    runs = {"scratch": {"model": ENCODER, "objective": "none"}, "public": {"model": BERT}}
    params = study({"pretrain": {"runs": runs}})
    assert [run.objective["name"] for run in params.runs.values()] == ["none", "none"]
    assert [run.from_scratch for run in params.runs.values()] == [True, False]
    runs["trained"] = {"objective": "mlm", "corpus": "prose"}
    [fault] = faults_of(short_smoke_with({"pretrain": {"runs": runs}}))
    assert fault.path == TRAINING and "pretrain.runs.trained trains" in fault.message


def test_rates_of_training_are_tried_one_by_one() -> None:
    params = study({f"{TRAINING}.lr": [1e-3, 1], f"{FULL}.lr": [1e-3, 1, 3e-5]})
    training, adaptation = (
        params.runs["encoder_mlm"].training,
        params.finetune.methods["full"].training,
    )
    assert training.rates == [1e-3, 1.0] and training.at(1.0).lr == 1.0
    assert adaptation is not None and adaptation.rates == [1e-3, 1.0, 3e-5]
    assert adaptation.at(1e-3).decay == adaptation.decay
    single = study({f"{TRAINING}.lr": 1}).runs["encoder_mlm"].training
    assert single.rates == [1.0]


OWN = {"corpus": "prose", "vocab_size": 900}
PUBLISHED = {"corpus": "none", "algorithm": "hub", "path": "a", "revision": "b"}


@pytest.mark.parametrize(
    ("tokenizers", "tokenizer"),
    [
        ({"a": OWN}, "a"),
        ({"a": PUBLISHED, "b": OWN}, "b"),
        ({"a": OWN, "b": OWN}, None),
        ({}, None),
    ],
)
def test_tokenizer_of_a_study_with_one_of_its_own(
    tokenizers: dict[str, Any], tokenizer: str | None
) -> None:
    changes = {"tokenizers": tokenizers}
    if tokenizer:
        assert study(changes).runs["encoder_mlm"].tokenizer == tokenizer
        return
    faults = faults_of(short_smoke_with(changes))
    assert faults[0].path == f"{MLM}.tokenizer"
    assert ("valid: a, b" if tokenizers else "none in tokenizers:") in faults[0].message


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


@pytest.mark.parametrize(
    ("entry", "method"),
    [
        ({}, {"name": "linear_probe"}),
        ({"method": "none"}, {"name": "none"}),
        ({"method": {"name": "linear_probe", "C": [0.1]}}, {"name": "linear_probe", "C": [0.1]}),
    ],
)
def test_methods_are_named_as_their_component(entry: object, method: object) -> None:
    methods = study({"finetune.methods.linear_probe": entry}).finetune.methods
    assert methods["linear_probe"].method == method


def test_components_without_settings_are_their_names() -> None:
    named, written = (
        {f"{MLM}.model": model, "tasks.tag.task": task, "pretrain.runs.decoder_causal": DELETED}
        for model, task in (("encoder", "tagging"), ({"name": "encoder"}, {"name": "tagging"}))
    )
    assert study(named) == study(written)


# Faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"stduy": "smoke"}, "stduy", "'study'"),
        ({"finetune.keep_weight": "all"}, "finetune.keep_weight", "'keep_weights'"),
        ({"tokenizers.unigram.vocab_sise": 3}, "tokenizers.unigram.vocab_sise", "'vocab_size'"),
        ({"samples.num_tran": 3}, "samples.num_tran", "'num_train'"),
        ({"tasks.tag.sed": 3}, "tasks.tag.sed", "'seed'"),
        ({"corpora.prose.max_token": 3}, "corpora.prose.max_token", "'max_tokens'"),
        ({f"{FULL}.num_epoch": 3}, f"{FULL}.num_epoch", "'num_epochs'"),
        ({"pretrain.run": {}}, "pretrain.run", "'runs'"),
        ({f"{TRAINING}.num_step": 3}, f"{TRAINING}.num_step", "'num_steps'"),
        ({f"{MLM}.modle": "encoder"}, f"{MLM}.modle", "'model'"),
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
        ({"finetune.seeds": None}, "finetune.seeds", "empty"),
        ({"pretrain.seeds": [1, 1]}, "pretrain.seeds", "repeat"),
        ({f"{MLM}.seeds": [2, 2]}, f"{MLM}.seeds", "repeat"),
        ({f"{MLM}.seeds": []}, f"{MLM}.seeds", "empty"),
        ({f"{MLM}.seeds": 3}, f"{MLM}.seeds", "list"),
        ({"study": "my-study"}, "study", "pattern"),
        ({"baselines": ["tfidf", {"name": "window"}]}, "baselines", "list of names"),
        ({"baselines": ["tfidf", "tfidf"]}, "baselines", "repeat"),
        ({"baselines": "tfidf"}, "baselines", "dictionary"),
        ({"size": 1}, "size", "DVC"),
        ({"tasks.size": {}}, "tasks.size", "DVC"),
        ({"pretrain.runs.encoder-mlm": {}}, "pretrain.runs.encoder-mlm", "pattern"),
        ({MLM: {1: 2}}, MLM, "string"),
        ({"pretrain.runs": {}}, "pretrain.runs", "at least one run"),
        ({"pretrain.runs": {}, "pretrain.continued.a": {"parent": "b"}}, "pretrain.runs", "least"),
        ({"tasks.tag.num_train": "some"}, "tasks.tag.num_train", "'all'"),
        ({"tasks.tag.num_train": True}, "tasks.tag.num_train", "'all'"),
        ({"samples.num_test": 0}, "samples.num_test", "greater than 0"),
        (
            {"pretrain.continued.encoder_scratch": {"parent": "encoder_mlm"}},
            "pretrain.continued.encoder_scratch",
            "rename",
        ),
        ({"pretrain.continued.a": {"parent": "none"}}, "pretrain.continued.a.parent", "move"),
        ({TRAINING: DELETED}, TRAINING, "encoder_mlm trains"),
        ({f"{MLM}.model": DELETED}, f"{MLM}.model", "the first run must name its model"),
        ({f"{MLM}.objective": DELETED}, f"{MLM}.objective", "the first run must name"),
        ({f"{MLM}.corpus": DELETED}, f"{MLM}.corpus", "the first run must name its corpus"),
        *(
            ({"title": title}, "title", word)
            for title, word in (
                ("", "at least 1"),
                (" Which?", "pattern"),
                ("Which\nmodel?", "pattern"),
                ("x" * 161, "at most 160"),
                (3, "string"),
            )
        ),
        ({"tasks.tag.about": "Two\nlines."}, "tasks.tag.about", "pattern"),
    ],
)
def test_faults_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    faults = faults_of(short_smoke_with(changes))
    assert any(fault.path == path and word in fault.message for fault in faults), faults


@pytest.mark.parametrize("where", [TRAINING, f"{MLM}.training", FULL])
@pytest.mark.parametrize(
    "lr", [0, -1e-3, [1e-3, 0], [1e-3, 1e-3], [1, 1.0], ["1e-3"], "fast", [], True]
)
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


@pytest.mark.parametrize("key", [1, None, True, 1.5, datetime.date(2020, 1, 1), (1, 2)])
def test_keys_that_are_no_strings_are_refused(key: Any) -> None:
    raw = short_smoke_with({})
    raw["pretrain"]["runs"]["encoder_mlm"]["model"][key] = 1
    assert paths_of(raw) == [f"{MLM}.model"]
    assert paths_of(short_smoke_with({}) | {key: 1}) == ["params.yaml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("corpora:", "corpora: [", r"params\.yaml: "),
        ("corpora:", "<<: *training\ncorpora:", r"params\.yaml: .*dvc exp run -S"),
        ("study: smoke", "study: smoke\nstudy: other", r"params\.yaml: "),
        ("study: smoke", "study: &loop {again: *loop}", r"study\.again: .*itself"),
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


def test_load_says_what_to_do_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file; copy one of studies/"):
        load(tmp_path / "params.yaml")


# Files that would take for ever


def expanding(kind: str) -> str:
    """Returns anchors, each of which repeats its predecessor ten times."""
    opening, item, closing = ("[", "*a{0}", "]") if kind == "list" else ("{", "k{1}: *a{0}", "}")
    lines = ["a0: &a0 [1]\n"]
    for i in range(1, 11):
        items = ", ".join(item.format(i - 1, j) for j in range(10))
        lines.append(f"a{i}: &a{i} {opening}{items}{closing}\n")
    return "".join(lines)


UNSAFE = {
    "aliases of lists": (expanding("list"), "values, those of aliases counted each time"),
    "aliases of mappings": (expanding("mapping"), "values, those of aliases counted each time"),
    "a chain of aliases": (
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 3000)),
        "nested more than 40 deep",
    ),
    "lists in lists": ("x: " + "[" * 200_000 + "]" * 200_000, "nested more than 40 deep"),
    "mappings in mappings": ("x: " + "{a: " * 2000 + "1" + "}" * 2000, "nested more than"),
    "lines": ("x:\n" + "".join(" " * (i + 1) + "a:\n" for i in range(100)), "nested more"),
    "too many values": ("x: [" + "1," * 300_001 + "]", "values, those of aliases counted"),
    "a bool": ("study: !!bool maybe", r"line 1: tags such as '.*bool' are not allowed"),
    "a number": ("a: 1\nstudy: !!int x", r"line 2: tags such as '.*int' are not allowed"),
    "Python": ("x: !!python/object/apply:os.system [id]", "tags such as"),
    "merge key with a blank": ("x: {<< : {a: 1}}", "line 1: merge keys"),
    "merge key on a line": ("x:\n  ? <<\n  : {a: 1}", "line 2: merge keys"),
}


@pytest.mark.parametrize(("text", "message"), UNSAFE.values(), ids=UNSAFE)
def test_read_yaml_refuses_what_would_take_for_ever(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    begin = time.process_time()
    with pytest.raises(ValueError, match=rf"^{path}: .*{message}"):
        read_yaml(path)
    assert time.process_time() - begin < 5


def test_read_yaml_names_a_file_that_is_too_large_or_not_regular(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.mkdir()
    with pytest.raises(ValueError, match=rf"^{path}: cannot be read: Is a directory"):
        read_yaml(path)
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    with pytest.raises(ValueError, match=rf"^{path}: must be a regular file"):
        read_yaml(path)
    path = tmp_path / "large.yaml"
    with path.open("w") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match=rf"^{path}: has more than "):
        read_yaml(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("samples.seed", 10**23),
        (f"{TRAINING}.lr", float("inf")),
        ("compute.threads", 10**12),
        ("compute.threads", 10**6),
        (f"{TRAINING}.batch_rows", 10**9),
        ("pretrain.runs.encoder_mlm.model.d_ff", -(10**12)),
        ("finetune.methods.full.training.batch_examples", 10**9),
    ],
)
def test_typed_refuses_numbers_that_no_machine_can_use(path: str, value: float) -> None:
    assert path in paths_of(short_smoke_with({path: value}))


def test_find_faults_refuses_more_weights_than_any_machine_holds() -> None:
    path = "pretrain.runs.encoder_mlm.model"
    (fault, *_) = faults_of(short_smoke_with({f"{path}.d_ff": 10**11}))
    assert fault.path == path and "weights; make it smaller" in fault.message


@pytest.mark.parametrize(
    "entry",
    [
        {"tasks.tag.source": {"name": "files", "path": "a" * 300}},
        {"tasks.tag.source": {"name": "hub", "path": "a" * 300}},
        {"corpora.prose.source": {"name": "files", "path": "a" * 300}},
        {"pretrain.runs.encoder_scratch.model": {"name": "hub", "path": "a" * 300, "revision": ""}},
        {"tokenizers.x": {"corpus": "none", "algorithm": "hub", "path": "a" * 300, "revision": ""}},
    ],
)
def test_find_faults_names_the_setting_of_a_name_that_is_too_long(entry: dict[str, Any]) -> None:
    (where,) = entry
    fault = next(f for f in faults_of(short_smoke_with(entry)) if f.path.startswith(where))
    assert fault.path == f"{where}.path" and "File name too long" in fault.message


def test_find_faults_names_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mock raises the error, since root may read every file."""

    def refuse(*args: object) -> object:
        raise PermissionError(13, "Permission denied", "reviews.csv")

    monkeypatch.setattr(Files, "check", refuse)
    source = {"name": "files", "path": "requirements.lock", "format": "txt"}
    entry = {"tasks.tag.source": source}
    (fault, *_) = [f for f in faults_of(short_smoke_with(entry)) if "source" in f.path]
    assert fault == ("tasks.tag.source", "path: reviews.csv: Permission denied")


@pytest.mark.parametrize("key", ["a\nb", "a\n", "a\u2028b"])
def test_typed_refuses_keys_that_break_a_message(key: str) -> None:
    with pytest.raises(ValueError, match=r"^tasks: the key '.*' must be on one line$"):
        typed({"tasks": {key: {}}})


def test_typed_refuses_a_key_without_a_name() -> None:
    with pytest.raises(ValueError, match=r"^tasks: a key must not be empty$"):
        typed({"tasks": {"": {}}})


@pytest.mark.parametrize(("number", "shown"), [(10**400, r"1\.00e\+400"), (1.8e19, r"1\.80e\+19")])
def test_typed_refuses_numbers_that_no_setting_has(number: float, shown: str) -> None:
    message = rf"^pretrain\.seeds\.0: must be below 1e\+12, not {shown}$"
    with pytest.raises(ValueError, match=message):
        typed({"pretrain": {"seeds": [number]}})
