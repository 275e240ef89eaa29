"""Faults of runs of public checkpoints, without a network."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.budgets.budget import matched as matched_study
from stages.core.params import Params, PublishedTokenizer
from stages.core.study_file import typed
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of
from tests.smoke import Fault, faults_of, paths_of, short_smoke_with, smoke_with

RUN = "pretrain.runs.encoder_scratch"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
BERT = {"name": "hub", "path": "google-bert/bert-base-uncased", "revision": COMMIT}


def with_public(model: dict[str, Any] | None = None, **changed: Any) -> Params:
    """Returns the smoke study with a public checkpoint in place of its run from scratch."""
    settings = {"architecture": model or BERT, "corpus": "none", "tokenizer": "none"} | changed
    return typed(smoke_with({f"{RUN}.{key}": value for key, value in settings.items()}))


def with_further(family: str, objective: dict[str, Any] | str, **changed: Any) -> Params:
    """Returns the smoke study with a small checkpoint and its tokenizer. The run from scratch
    becomes one that pretrains the checkpoint further."""
    pinned = {"path": str(checkpoint(family)), "revision": revision_of(checkpoint(family))}
    entry = objective if isinstance(objective, dict) else {"name": objective}
    params = with_public({"name": "hub"} | pinned, corpus="prose", objective=entry)
    tokenizer = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    run = params.runs["encoder_scratch"].model_copy(update={"tokenizer": "own"} | changed)
    return params.model_copy(
        update={
            "tokenizers": params.tokenizers | {"own": tokenizer},
            "runs": params.runs | {"encoder_scratch": run},
        }
    )


def one_fault(params: Params) -> Fault:
    (fault,) = faults_of(params)
    return fault


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
        ({"architecture": BERT | {"revision": "main"}}, "architecture.revision"),
        ({"architecture": BERT | {"path": "here/or/bert"}}, "architecture.path"),
        ({"architecture": {"name": "hub", "path": "gpt2"}}, "architecture.revision"),
        (
            {"architecture": {"name": "hub", "path": "gpt2", "revision": 607}},
            "architecture.revision",
        ),
        ({"architecture": BERT | {"trust_remote_code": True}}, "architecture.trust_remote_code"),
    ],
)
def test_public_faults_have_their_path(changed: dict[str, Any], path: str) -> None:
    assert f"{RUN}.{path}" in paths_of(with_public(**changed))


def test_public_faults_do_not_ask_the_hub_for_a_pinned_commit() -> None:
    study = short_smoke_with({"pretrain.runs.public": {"architecture": BERT, "seeds": [1, 2, 3]}})
    assert faults_of(study) == []
    assert typed(study).runs["public"].as_published


def test_public_faults_read_a_local_checkpoint_before_anything_runs(tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint("bert"), tmp_path / "mine")

    def study(revision: str, max_tokens: int = MAX_POSITIONS) -> Params:
        params = with_public({"name": "hub", "path": str(folder), "revision": revision})
        finetune = params.finetune.model_copy(update={"max_tokens": max_tokens})
        return params.model_copy(update={"finetune": finetune})

    assert faults_of(study(revision_of(folder))) == []
    assert paths_of(study(revision_of(folder), MAX_POSITIONS + 1)) == ["finetune.max_tokens"]
    fault = one_fault(study("0" * 12))
    assert fault.path == f"{RUN}.architecture.revision" and revision_of(folder) in fault.message


def with_more_tokens(folder: Path) -> None:
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    vocabulary = settings["model"]["vocab"]
    vocabulary |= {f"more{i}": len(vocabulary) + i for i in range(9)}
    file.write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "model.bin"),
            "may hold code",
        ),
        (lambda folder: os.truncate(folder / "model.safetensors", 9_000), "not fully covered"),
        (with_more_tokens, "embeds only"),
    ],
    ids=["pickle", "truncated", "tokenizer"],
)
def test_public_faults_have_one_for_a_folder_that_cannot_be_used(
    change: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint("bert"), tmp_path / "mine")
    change(folder)
    pinned = {"path": str(folder), "revision": revision_of(folder)}
    fault = one_fault(with_public({"name": "hub"} | pinned))
    assert fault.path == f"{RUN}.architecture.path" and words in fault.message


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
def test_public_faults_accept_an_objective_of_the_checkpoint_s_architecture(
    objective: str, families: tuple[str, ...]
) -> None:
    for family in families:
        params = with_further(family, objective)
        for matched in ("tokens", "flops"):
            budget = params.budget.model_copy(update={"matched": matched})
            params = params.model_copy(update={"budget": budget})
            assert faults_of(params) == []


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
def test_public_faults_refuse_an_objective_of_another_architecture(
    family: str, objective: dict[str, Any], word: str
) -> None:
    fault = one_fault(with_further(family, objective))
    assert fault.path == f"{RUN}.objective" and word in fault.message


def test_budget_faults_before_a_checkpoint_is_downloaded() -> None:
    """The objective is checked as far as possible; operations cannot be matched."""
    pinned = {key: BERT[key] for key in ("path", "revision")}
    public = {"architecture": BERT, "objective": "mlm", "tokenizer": "own"}
    changes = {
        "pretrain.runs.public": public,
        "tokenizers.own": {"corpus": "none", "algorithm": "hub"} | pinned,
    }
    assert faults_of(short_smoke_with(changes)) == []
    study = matched_study(typed(short_smoke_with(changes)))
    assert study.runs["public"].training.num_steps == 40
    fault = one_fault(typed(short_smoke_with(changes | {"pretrain.matched": "flops"})))
    assert fault.path == "pretrain.matched" and "public" in fault.message


def continued(family: str, **entry: Any) -> dict[str, Any]:
    """Returns the smoke study with a small checkpoint as published, its tokenizer and, as "child",
    a run that continues from it on prose."""
    pinned = {"path": str(checkpoint(family)), "revision": revision_of(checkpoint(family))}
    child = {"parent": "public", "objective": "mlm", "corpus": "prose"}
    return short_smoke_with(
        {
            "pretrain.runs.public": {"architecture": {"name": "hub"} | pinned},
            "tokenizers.own": {"corpus": "none", "algorithm": "hub"} | pinned,
            "pretrain.continued.child": child | entry,
        }
    )


@pytest.mark.parametrize("family", ["bert", "sentence_bert"])
def test_public_faults_accept_a_run_that_continues_from_a_checkpoint(family: str) -> None:
    """The run and a run that continues from it have the checkpoint's model and tokenizer."""
    study = continued(family)
    study["pretrain"]["continued"]["grandchild"] = {"parent": "child", "objective": "mlm"}
    assert faults_of(study) == []
    runs = typed(study).runs
    for name in ("child", "grandchild"):
        assert (
            runs[name].architecture == runs["public"].architecture and runs[name].tokenizer == "own"
        )


@pytest.mark.parametrize(
    ("family", "entry", "path", "words"),
    [
        ("bert", {"tokenizer": "unigram"}, "tokenizer", "use own"),
        ("bert", {"objective": "causal"}, "objective", "not encoder"),
        ("gpt2", {}, "objective", "no mask token"),
        ("bert", {"objective": "none", "corpus": "none"}, "objective", "would repeat public"),
        (
            "bert",
            {"parent": "nobody", "architecture": BERT, "tokenizer": "own"},
            "parent",
            "'nobody'",
        ),
        ("bert", {"seeds": [1, 5]}, "seeds", "5 is not among"),
    ],
)
def test_public_faults_of_a_run_that_continues_from_a_checkpoint(
    family: str, entry: dict[str, Any], path: str, words: str
) -> None:
    [fault, *_] = faults_of(continued(family, **entry))
    assert fault.path == f"pretrain.continued.child.{path}" and words in fault.message


def test_public_faults_refuse_the_weights_of_another_model() -> None:
    """A checkpoint that is not downloaded yet is compared by its name."""
    for child in ({"parent": "encoder_mlm"}, {"parent": "public", "architecture": BERT}):
        study = continued("bert", **({"architecture": BERT, "tokenizer": "bert"} | child))
        pinned = {key: BERT[key] for key in ("path", "revision")}
        study["tokenizers"]["bert"] = {"corpus": "none", "algorithm": "hub"} | pinned
        fault = one_fault(typed(study))
        assert fault.path == "pretrain.continued.child.parent"
        assert f"{child['parent']} has another model" in fault.message
    own = {"architecture": {"name": "modernbert", "d_model": 64}, "tokenizer": "unigram"}
    fault = one_fault(typed(continued("bert", **own)))
    assert fault.path == "pretrain.continued.child.parent"


def test_public_faults_list_the_packaged_checkpoints() -> None:
    """A folder below data/checkpoints is made by a stage, if ``checkpoints:`` lists it."""
    model = BERT | {"path": "data/checkpoints/minilm", "revision": "0" * 12}
    entry = {"package": "a", "version": "1", "sha256": "0" * 64, "folder": "models"}
    changes = {"pretrain.runs.public": {"architecture": model}, "checkpoints.mini": entry}
    [fault, *_] = faults_of(short_smoke_with(changes))
    assert fault.path == "pretrain.runs.public.architecture.path" and "'mini'" in fault.message
    changes |= {"checkpoints": {"minilm": entry}}
    assert faults_of(short_smoke_with(changes)) == []
    changes |= {"checkpoints": {"minilm": entry | {"sha256": "0" * 63}}}
    assert paths_of(short_smoke_with(changes)) == ["checkpoints.minilm.sha256"]
