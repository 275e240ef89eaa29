"""Mistakes in params.yaml are refused before anything runs, with the path of the wrong setting."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from stages.core.artifacts import Json
from stages.tasks._task import SPLITS
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of
from tests.smoke import DELETED, ROOT, faults_of, paths_of, short_smoke_with, smoke_with

MLM, CAUSAL = "models.encoder_mlm", "models.decoder_causal"
CHILD, PUBLIC = "models.child", "models.public"
FULL, PROBE = "finetune.methods.full", "finetune.methods.linear_probe"
OF_MLM = f"{FULL}.models.encoder_mlm"
TRAINING, MICRO_ROWS = "pretrain.training", "pretrain.training.micro_batch_rows"
OF_CAUSAL = f"{CAUSAL}.training.micro_batch_rows"
SHARDED: Json = {"devices": 2, "strategy": "fsdp"}
SIZES: Json = {"d_model": 64, "num_layers": 2, "num_heads": 2}
ENCODER: Json = {"name": "modernbert"} | SIZES
FEW_POSITIONS: Json = {"name": "bert", "config": {"max_position_embeddings": 32}} | SIZES
SHOTS: Json = {"name": "in_context", "num_shots": 60}
FIRST: Json = {"name": "classification", "pooling": "first"}
WRITING: Json = {"name": "seq2seq", "max_target_tokens": 32}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PINNED: Json = {"path": "google-bert/bert-base-uncased", "revision": COMMIT}
BERT: Json = {"name": "hub"} | PINNED


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of sources are relative to the project."""
    monkeypatch.chdir(ROOT)


def refuses(study: Json, path: str, word: str = "") -> None:
    """All faults of a study are at ``path``, one of them with ``word``; without path, none."""
    faults = faults_of(study)
    assert {fault.path for fault in faults} == ({path} if path else set()), faults
    assert not path or any(word in fault.message for fault in faults), faults


@pytest.mark.parametrize(
    "changes",
    [
        # A method need not fit every model.
        {f"{PROBE}.only": ["decoder_causal"]},
        {FULL: {"method": {"name": "none"}, "text_to_text": True}},
        # A causal model's first state has not read the text; that of a prefix model has.
        {"tasks.section.task": FIRST, f"{CAUSAL}.objective": {"name": "prefix_lm"}},
        {"models.again": {"seeds": [2]}},
    ],
)
def test_a_study_without_mistakes_has_no_faults(changes: Json) -> None:
    refuses((short_smoke_with if "models.again" in changes else smoke_with)(changes), "")


@pytest.mark.parametrize(
    ("changes", "word", "path"),  # no path: that of the first change
    [
        ({"tokenizers.unigram.vocab_size": 361}, "361", ""),
        ({"tokenizers.unigram.corpus": "pros"}, "unknown", ""),
        ({"corpora.prose.source.path": "nowhere.txt"}, "nowhere.txt", "corpora.prose.source"),
        ({"tasks.tag.task.name": "taging", "baselines.crf": DELETED}, "unknown", ""),
        ({"tasks.section.task.pooling": "max"}, "mean", ""),
        ({"tasks.section.task": FIRST}, "decoder_causal", "tasks.section.task.pooling"),
        ({"finetune.label_budgets": [500]}, "tasks.tag.num_train", ""),
        ({"baselines.tfidf.x": 1}, "unknown", ""),
        ({"baselines.encoder_mlm": {"name": "majority"}}, "model", ""),
        ({f"{FULL}.method.name": "ful"}, "full", ""),
        ({f"{FULL}.training": DELETED}, "trains", ""),
        ({f"{FULL}.method": {"name": "linear_probe"}}, "solved", f"{FULL}.training"),
        ({f"{FULL}.method.name": "none", f"{FULL}.text_to_text": True}, "not", f"{FULL}.training"),
        ({f"{FULL}.training.optimizer.name": "muno"}, "'muon'", ""),
        ({f"{PROBE}.only": ["encoder_mmm"]}, "'encoder_mlm'", ""),
        ({f"{FULL}.models": {"encoder_mmm": {"lr": 1}}}, "'encoder_mlm'", ""),
        ({OF_MLM: {"optimizer": "x"}}, "muon", f"{OF_MLM}.optimizer.name"),
        ({OF_MLM: {"lr": 1e-3}, f"{FULL}.only": ["decoder_causal"]}, "`only` does not list", ""),
        ({FULL: {"method": SHOTS}}, "50", f"{FULL}.method.num_shots"),
        ({FULL: {"method": "in_context", "text_to_text": True}}, "its own", f"{FULL}.text_to_text"),
        ({"finetune.methods.classical": {"method": "linear_probe"}}, "reserved", ""),
    ],
)
def test_faults_of_a_study_that_is_written_out(changes: Json, word: str, path: str) -> None:
    refuses(smoke_with(changes), path or next(iter(changes)), word)


def test_faults_of_a_model_that_all_methods_leave_out() -> None:
    changes = {f"{method}.only": ["encoder_mlm", "decoder_causal"] for method in (FULL, PROBE)}
    refuses(smoke_with(changes), "models.encoder_scratch.architecture", "`only`")


@pytest.mark.parametrize(
    ("changes", "word", "path"),
    [
        # Models take over what they do not state from the first, whose fault is told once.
        ({f"{MLM}.corpus": "prsoe"}, "'prose'", ""),
        ({f"{CAUSAL}.corpus": "none"}, "causal", ""),
        ({f"{MLM}.objective": "causal"}, "not encoder", ""),
        ({f"{MLM}.objective": "distillation"}, "needs a teacher", ""),
        ({f"{MLM}.architecture": ENCODER | {"num_heads": 5}}, "num_heads", ""),
        ({OF_CAUSAL: 3}, "batch_rows", ""),
        ({f"{CAUSAL}.training": {"num_steps": 2}}, "at most", f"{CAUSAL}.training.num_validations"),
        ({f"{TRAINING}.optimizer.name": "muno"}, "'muon'", ""),
        ({MICRO_ROWS: 16, "distributed.devices": 2}, "2 processes", ""),
        ({f"{TRAINING}.optimizer": "muon", "distributed": SHARDED, MICRO_ROWS: 4}, "ddp", ""),
        # A shared setting that contradicts a setting of the model is a fault of the model.
        ({MICRO_ROWS: 8, f"{CAUSAL}.training.batch_rows": 12}, "12", OF_CAUSAL),
        ({"pretrain.reference": "encoder_scratch"}, "trains nothing", ""),
        ({"models.again": {"seeds": [1]}}, "`seeds: [1, 2]`", ""),
    ],
)
def test_faults_of_a_study_that_leaves_settings_out(changes: Json, word: str, path: str) -> None:
    refuses(short_smoke_with(changes), path or next(iter(changes)), word)


# Lengths -----------------------------------------------------------------------------------------


def test_faults_of_models_with_too_few_positions() -> None:
    study = short_smoke_with({f"{MLM}.architecture": FEW_POSITIONS})
    assert paths_of(study) == [f"{TRAINING}.max_tokens", *["finetune.max_tokens"] * 2]


@pytest.mark.parametrize(
    ("positions", "changes", "path"),
    [
        # A method adds five tokens to 64.
        (68, {f"{FULL}.method": {"name": "prompt", "num_prompt_tokens": 5}}, f"{FULL}.method"),
        (69, {f"{FULL}.method": {"name": "prompt", "num_prompt_tokens": 5}}, ""),
        # A decoder reads 64 tokens and writes 32 in one row; the last token is not read.
        (63, {"tasks.write": WRITING}, "finetune.max_tokens"),
        (94, {"tasks.write": WRITING}, "tasks.write.task.max_target_tokens"),
        (95, {"tasks.write": WRITING}, ""),
    ],
)
def test_faults_count_what_methods_add_and_decoders_write(
    positions: int, changes: Json, path: str
) -> None:
    short = {"name": "gpt2", "config": {"n_positions": positions}} | SIZES
    settings = {f"{CAUSAL}.architecture": short, f"{CAUSAL}.training.max_tokens": 32}
    if "tasks.write" in changes:
        changes = {"tasks.write": smoke_with({})["tasks"]["section"] | {"task": WRITING}}
    faults = faults_of(smoke_with(settings | changes))
    assert [f.path for f in faults if "positions" in f.message] == ([path] if path else [])


# Tasks -------------------------------------------------------------------------------------------


def test_faults_of_a_baseline_without_a_task() -> None:
    study = smoke_with({})
    del study["tasks"]["section"]
    refuses(study, "baselines.tfidf", "no task")


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"tasks": ["tag", "section"]}, ""),
        ({"tasks": ["tagg"]}, "corpora.mix.source.tasks"),
        ({"tasks": ["tag"], "path": "data/labels"}, "corpora.mix.source.path"),
        ({"tasks": ["tag", "text"]}, "corpora.mix.source.tasks"),  # it has no answers to write
    ],
)
def test_faults_of_tasks_that_are_a_corpus(source: Json, path: str) -> None:
    tasks = {"name": "tasks", "path": "data/tasks"} | source
    entry = {"max_tokens": "all", "decontaminate_against": "none", "source": tasks}
    text = smoke_with({})["tasks"]["section"] | {"task": {"name": "language_modelling"}}
    listed = paths_of(smoke_with({"corpora.mix": entry, "tasks.text": text}))
    assert [each for each in listed if each.startswith("corpora")] == ([path] if path else [])
    entry["decontaminate_against"] = "tasks"
    if not path:
        path = "corpora.mix.decontaminate_against"
    assert path in paths_of(smoke_with({"corpora.mix": entry, "tasks.text": text}))


@pytest.mark.parametrize(
    ("source", "seeds", "word"),
    [
        ({}, [1, 2, 3], ""),
        ({}, [1], "finetune.seeds lists one seed"),
        ({"time": "day"}, [1, 2], "test rows are given or drawn by time"),
        ({"split_seed": 3}, [1, 2], "leave out source.split_seed"),
    ],
)
def test_faults_of_seeds_that_draw_the_splits(
    tmp_path: Path, source: Json, seeds: list[int], word: str
) -> None:
    """A second task of the same rows is refused: an average would treat the two as independent."""
    lines = [f"Text {i}.,{i % 2},2020-01-{1 + i % 28:02}" for i in range(300)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label,day", *lines]))
    own = {"name": "files", "path": str(tmp_path / "reviews.csv")}
    task = {"task": {"name": "classification"}, "source": own}
    drawn = task | {"source": own | source, "split_per_seed": True}
    study = short_smoke_with({"baselines": ["tfidf"], "finetune.seeds": seeds})
    study |= {"samples": {f"num_{split}": "all" for split in SPLITS}}
    refuses(study | {"tasks": {"a": drawn}}, "tasks.a.split_per_seed" if word else "", word)
    if not word:
        both = study | {"tasks": {"a": drawn, "b": task}}
        refuses(both, "tasks.b.source.split_seed", "a has the same rows in another draw")


@pytest.mark.parametrize(
    ("models", "method", "settings", "path"),
    [
        (["decoder_causal"], "full", {}, ""),
        (["decoder_causal", "encoder_mlm"], "full", {}, f"{MLM}.architecture"),
        (["decoder_causal"], "linear_probe", {}, f"{PROBE}.method"),
        (["decoder_causal"], "full", {"num_beams": 0}, "tasks.write.task"),
    ],
)
def test_faults_of_a_task_of_writing(
    models: list[str], method: str, settings: Json, path: str
) -> None:
    pretrain = {"pretrain.matched": "none", "pretrain.reference": models[0]}
    study = smoke_with(pretrain | {"baselines": {"copy": {"name": "copy"}}})
    study["tasks"] = {"write": study["tasks"]["section"] | {"task": WRITING | settings}}
    study["models"] = {name: study["models"][name] for name in models}
    methods = study["finetune"]["methods"]
    study["finetune"]["methods"] = {name: methods[name] for name in {"full", method}}
    refuses(study, path)


# A model and its parent --------------------------------------------------------------------------


def student(teacher: str = "encoder_mlm", **architecture: Any) -> Json:
    """Returns an entry of ``models`` that learns from a teacher."""
    sizes = ENCODER | {"num_layers": 1} | architecture
    return {"parent": teacher, "objective": "distillation", "architecture": sizes}


@pytest.mark.parametrize(
    ("child", "setting", "word"),
    [
        ({"architecture": ENCODER | {"start": "local", "config": {}}}, "", ""),
        ({"architecture": ENCODER | {"num_layers": 1}}, "parent", "is 2 there and 1 here"),
        ({"objective": "none"}, "objective", "would repeat"),
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
def test_faults_of_a_child_and_its_parent(child: Json, setting: str, word: str) -> None:
    entry = {"parent": "encoder_mlm", "objective": "span_mlm"} | child
    other = {"corpus": "prose", "vocab_size": 2048}
    own = {f"{MLM}.tokenizer": "unigram", f"{CAUSAL}.tokenizer": "unigram"}
    study = short_smoke_with({CHILD: entry, "tokenizers.other": other} | own)
    refuses(study, f"{CHILD}.{setting}" if setting else "", word)


# Published checkpoints, without a network ---------------------------------------------------------


def with_public(family: str = "", **entry: Any) -> dict[str, Any]:
    """Returns the smoke study with a published checkpoint and its tokenizer. The checkpoint is a
    small one of a family, or else one that is not downloaded."""
    pinned = PINNED
    if family:
        pinned = {"path": str(checkpoint(family)), "revision": revision_of(checkpoint(family))}
    own = {"corpus": "none", "algorithm": "hub"} | pinned
    public = {"architecture": {"name": "hub"} | pinned} | entry
    return short_smoke_with({PUBLIC: public, "tokenizers.own": own})


@pytest.mark.parametrize(
    ("entry", "setting"),
    [
        ({"corpus": "prose", "objective": "mlm", "tokenizer": "unigram"}, "tokenizer"),
        ({"corpus": "none", "objective": "mlm", "tokenizer": "own"}, "corpus"),
        ({"corpus": "prose"}, "corpus"),
        ({"corpus": "prose", "objective": "distillation", "tokenizer": "own"}, "objective"),
        ({"corpus": "prose", "objective": "prefix_lm", "tokenizer": "own"}, "objective"),
        ({"architecture": BERT | {"revision": "main"}}, "architecture.revision"),
        ({"architecture": BERT | {"trust_remote_code": True}}, "architecture.trust_remote_code"),
    ],
)
def test_faults_of_a_checkpoint_that_is_not_downloaded(entry: Json, setting: str) -> None:
    assert f"{PUBLIC}.{setting}" in paths_of(with_public(**entry))


def test_faults_of_operations_that_are_unknown_before_a_download() -> None:
    study = with_public(objective="mlm", tokenizer="own")
    refuses(study, "")
    study["pretrain"]["matched"] = "flops"
    refuses(study, "pretrain.matched", "public")


def test_faults_of_a_checkpoint_in_a_folder(tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint("bert"), tmp_path / "mine")
    hub = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    study = with_public(architecture=hub)
    refuses(study, "")
    study["finetune"]["max_tokens"] = MAX_POSITIONS + 1
    refuses(study, "finetune.max_tokens")
    changed = with_public(architecture=hub | {"revision": "0" * 12})
    refuses(changed, f"{PUBLIC}.architecture.revision", revision_of(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "objective", "word"),
    [
        ("bert", {"name": "mlm"}, ""),
        ("t5", {"name": "span_corruption"}, ""),
        ("bert", {"name": "causal"}, "not encoder"),
        ("gpt2", {"name": "mlm"}, "mask"),
        ("roberta", {"name": "mlm", "next_sentence": "nsp"}, "next_sentence"),
    ],
)
def test_faults_of_an_objective_that_a_checkpoint_cannot_have(
    family: str, objective: Json, word: str
) -> None:
    study = with_public(family, objective=objective, corpus="prose", tokenizer="own")
    study["pretrain"]["matched"] = "flops"
    refuses(study, f"{PUBLIC}.objective" if word else "", word)


@pytest.mark.parametrize(
    ("entry", "setting", "word"),
    [
        ({}, "", ""),  # it has the checkpoint's model and tokenizer
        ({"tokenizer": "unigram"}, "tokenizer", "use own"),
        ({"objective": "none", "corpus": "none"}, "objective", "would repeat public"),
        ({"seeds": [1, 5]}, "seeds", "[5]"),
        ({"architecture": BERT, "tokenizer": "bert"}, "parent", "public has another model"),
    ],
)
def test_faults_of_a_model_that_continues_from_a_checkpoint(
    entry: Json, setting: str, word: str
) -> None:
    study = with_public("bert")
    child = {"parent": "public", "objective": "mlm", "corpus": "prose"} | entry
    study["models"]["child"] = child
    study["tokenizers"]["bert"] = {"corpus": "none", "algorithm": "hub"} | PINNED
    faults = [(fault.path, word in fault.message) for fault in faults_of(study)]
    assert faults[:1] == ([(f"{CHILD}.{setting}", True)] if setting else [])


def test_faults_of_a_packaged_checkpoint_that_is_not_listed() -> None:
    """A folder below data/checkpoints is made by a stage, if ``checkpoints:`` lists it."""
    model = BERT | {"path": "data/checkpoints/minilm", "revision": "0" * 12}
    entry = {"package": "a", "version": "1", "sha256": "0" * 64, "folder": "models"}
    study = with_public(architecture=model)
    study["checkpoints"] = {"mini": entry}
    refuses(study, f"{PUBLIC}.architecture.path", "'mini'")
    study["checkpoints"] = {"minilm": entry}
    refuses(study, "")
