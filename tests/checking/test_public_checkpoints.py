"""Faults of runs of public checkpoints, without a network."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from stages.budgets.budget import matched as matched_study
from stages.core.artifacts import Json
from stages.core.study_file import typed
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of
from tests.smoke import faults_of, paths_of, short_smoke_with

PUBLIC, CHILD = "models.public", "models.child"
PINNED = {
    "path": "google-bert/bert-base-uncased",
    "revision": "0123456789abcdef0123456789abcdef01234567",
}
BERT = {"name": "hub"} | PINNED


def with_public(family: str = "", **entry: Any) -> dict[str, Any]:
    """Returns the smoke study with a public checkpoint, by default as published, and its tokenizer.
    The checkpoint is a small one of a family, or else one that is not downloaded."""
    pinned = PINNED
    if family:
        pinned = {"path": str(checkpoint(family)), "revision": revision_of(checkpoint(family))}
    own = {"corpus": "none", "algorithm": "hub"} | pinned
    public = {"architecture": {"name": "hub"} | pinned} | entry
    return short_smoke_with({PUBLIC: public, "tokenizers.own": own})


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"tokenizer": "unigram"}, "tokenizer"),
        ({"corpus": "prose", "objective": "mlm", "tokenizer": "unigram"}, "tokenizer"),
        ({"corpus": "none", "objective": "mlm", "tokenizer": "own"}, "corpus"),
        ({"corpus": "prose"}, "corpus"),
        ({"objective": "distillation"}, "objective"),
        ({"architecture": BERT | {"revision": "main"}}, "architecture.revision"),
        ({"architecture": {"name": "hub", "path": "gpt2"}}, "architecture.revision"),
        ({"architecture": BERT | {"trust_remote_code": True}}, "architecture.trust_remote_code"),
    ],
)
def test_public_faults_have_their_path(entry: Json, path: str) -> None:
    assert f"{PUBLIC}.{path}" in paths_of(with_public(**entry))


def test_public_faults_do_not_ask_the_hub_for_a_pinned_commit() -> None:
    study = with_public(seeds=[1, 2, 3])
    assert faults_of(study) == []
    assert typed(study).runs["public"].as_published


def test_public_faults_read_a_local_checkpoint_before_anything_runs(tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint("bert"), tmp_path / "mine")
    hub = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    study = with_public(architecture=hub)
    assert faults_of(study) == []
    study["finetune"]["max_tokens"] = MAX_POSITIONS + 1
    assert "finetune.max_tokens" in paths_of(study)
    [fault] = faults_of(with_public(architecture=hub | {"revision": "0" * 12}))
    assert fault.path == f"{PUBLIC}.architecture.revision" and revision_of(folder) in fault.message


@pytest.mark.slow
@pytest.mark.parametrize("matched", ["tokens", "flops"])
@pytest.mark.parametrize(
    ("family", "objective"),
    [
        ("bert", "mlm"),
        ("roberta", "span_mlm"),
        ("gpt2", "causal"),
        ("t5", "span_corruption"),
        ("bart", "denoising"),
        ("t5", "multi_task"),
    ],
)
def test_public_faults_accept_an_objective_of_the_checkpoint_s_architecture(
    family: str, objective: str, matched: str
) -> None:
    study = with_public(family, objective=objective, corpus="prose", tokenizer="own")
    study["pretrain"]["matched"] = matched
    assert faults_of(study) == []


@pytest.mark.parametrize(
    ("family", "objective", "word"),
    [
        ("bert", {"name": "causal"}, "not encoder"),
        ("gpt2", {"name": "mlm"}, "mask"),
        ("t5", {"name": "denoising"}, "mask"),
        ("roberta", {"name": "mlm", "next_sentence": "nsp"}, "next_sentence"),
    ],
)
def test_public_faults_refuse_an_objective_of_another_architecture(
    family: str, objective: Json, word: str
) -> None:
    study = with_public(family, objective=objective, corpus="prose", tokenizer="own")
    [fault] = faults_of(study)
    assert fault.path == f"{PUBLIC}.objective" and word in fault.message


def test_budget_faults_before_a_checkpoint_is_downloaded() -> None:
    """The objective is checked as far as possible; operations cannot be matched."""
    study = with_public(objective="mlm", tokenizer="own")
    assert faults_of(study) == []
    assert matched_study(typed(study)).runs["public"].training.num_steps == 40
    study["pretrain"]["matched"] = "flops"
    [fault] = faults_of(study)
    assert fault.path == "pretrain.matched" and "public" in fault.message


@pytest.mark.parametrize(
    ("entry", "path", "words"),
    [
        ({}, "", ""),  # it has the checkpoint's model and tokenizer
        ({"tokenizer": "unigram"}, "tokenizer", "use own"),
        ({"objective": "causal"}, "objective", "not encoder"),
        ({"objective": "none", "corpus": "none"}, "objective", "would repeat public"),
        ({"seeds": [1, 5]}, "seeds", "5 is not among"),
        ({"architecture": BERT, "tokenizer": "bert"}, "parent", "public has another model"),
    ],
)
def test_public_faults_of_a_run_that_continues_from_a_checkpoint(
    entry: Json, path: str, words: str
) -> None:
    study = with_public("bert")
    child = {"parent": "public", "objective": "mlm", "corpus": "prose"} | entry
    study["models"]["child"] = child
    study["tokenizers"]["bert"] = {"corpus": "none", "algorithm": "hub"} | PINNED
    faults = [(fault.path, words in fault.message) for fault in faults_of(study)]
    assert faults[:1] == ([(f"{CHILD}.{path}", True)] if path else [])


def test_public_faults_list_the_packaged_checkpoints() -> None:
    """A folder below data/checkpoints is made by a stage, if ``checkpoints:`` lists it."""
    model = BERT | {"path": "data/checkpoints/minilm", "revision": "0" * 12}
    entry = {"package": "a", "version": "1", "sha256": "0" * 64, "folder": "models"}
    study = with_public(architecture=model)
    study["checkpoints"] = {"mini": entry}
    [fault, *_] = faults_of(study)
    assert fault.path == f"{PUBLIC}.architecture.path" and "'mini'" in fault.message
    study["checkpoints"] = {"minilm": entry}
    assert faults_of(study) == []
    study["checkpoints"] = {"minilm": entry | {"sha256": "0" * 63}}
    assert paths_of(study) == ["checkpoints.minilm.sha256"]
