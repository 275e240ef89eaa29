"""Faults of runs of public checkpoints, without a network."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from stages.core.artifacts import Json
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
        ({"corpus": "prose", "objective": "mlm", "tokenizer": "unigram"}, "tokenizer"),
        ({"corpus": "none", "objective": "mlm", "tokenizer": "own"}, "corpus"),
        ({"corpus": "prose"}, "corpus"),
        ({"objective": "distillation"}, "objective"),
        ({"architecture": BERT | {"revision": "main"}}, "architecture.revision"),
        ({"architecture": BERT | {"trust_remote_code": True}}, "architecture.trust_remote_code"),
    ],
)
def test_public_faults_have_their_path(entry: Json, path: str) -> None:
    assert f"{PUBLIC}.{path}" in paths_of(with_public(**entry))


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
def test_public_faults_refuse_an_objective_of_another_architecture(
    family: str, objective: Json, word: str
) -> None:
    study = with_public(family, objective=objective, corpus="prose", tokenizer="own")
    study["pretrain"]["matched"] = "flops"
    faults = faults_of(study)
    assert [fault.path for fault in faults] == [f"{PUBLIC}.objective"] * bool(word)
    assert all(word in fault.message for fault in faults)


def test_budget_faults_before_a_checkpoint_is_downloaded() -> None:
    """The objective is checked as far as possible; operations cannot be matched."""
    study = with_public(objective="mlm", tokenizer="own")
    assert faults_of(study) == []
    study["pretrain"]["matched"] = "flops"
    [fault] = faults_of(study)
    assert fault.path == "pretrain.matched" and "public" in fault.message


@pytest.mark.parametrize(
    ("entry", "path", "words"),
    [
        ({}, "", ""),  # it has the checkpoint's model and tokenizer
        ({"tokenizer": "unigram"}, "tokenizer", "use own"),
        ({"objective": "none", "corpus": "none"}, "objective", "would repeat public"),
        ({"seeds": [1, 5]}, "seeds", "[5]"),
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
