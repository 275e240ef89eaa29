"""The stage that pretrains: its accounts, parents and rates, published checkpoints, and the systems
of the field, each one entry of studies/systems.yaml."""

import csv
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stages import encode_corpus, pretrain, train_tokenizer
from stages.budgets.budget import matched
from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl, write_json, write_jsonl
from stages.core.keys import CheckpointKey
from stages.core.params import Model, Params, PublishedTokenizer
from stages.core.study_file import load
from stages.models._backbone import MODELS
from stages.objectives._objective import OBJECTIVES
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.training.checkpoint import WEIGHTS
from stages.training.device import resolve
from stages.training.loop import mean_loss
from stages.training.pretraining import PretrainingData
from tests.small import (
    VOCAB_SIZE,
    documents,
    headless,
    saved,
    small_corpus,
    small_tokenizer,
    with_encoder_decoder,
)
from tests.small_hub import checkpoint, revision_of
from tests.small_study import (
    SCRATCH,
    SMALLER,
    pretrain_plan,
    run_stage,
    with_models,
    write_corpus,
    write_inputs,
)
from tests.smoke import ROOT, with_values

pytestmark = pytest.mark.slow

STUDY = ROOT / "studies" / "systems.yaml"
MAX_TOKENS = 32
SMALL = {"d_model": 32, "d_ff": 64}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """The smoke study and an encoder-decoder; its corpus is topics of the language reference."""
    monkeypatch.chdir(tmp_path)
    params = load(with_values(tmp_path, SMALLER | {"pretrain.matched": "none"}))
    write_corpus()
    return with_encoder_decoder(params)


def changed(model: Model, **settings: Any) -> Model:
    """Returns a small model with other settings; those of its training by their own names."""
    training = {"max_tokens": MAX_TOKENS, "num_validations": 1}
    for name in ("num_steps", "lr", "num_validations", "max_tokens"):
        training |= {name: settings.pop(name)} if name in settings else {}
    settings["training"] = model.training.model_copy(update=training)
    if not model.is_hub:
        settings["architecture"] = model.architecture | SMALL
    return model.model_copy(update=settings)


def pretrained(params: Params, models: Mapping[str, Model]) -> dict[str, Json]:
    """Pretrains the models; returns their accounts."""
    study = with_models(params, models)
    write_inputs(study)
    for name in models:
        run_stage(study, pretrain, name)
    return {name: read_json(folder_of(name) / "metrics.json") for name in models}


def folder_of(model: str, seed: int = 1) -> Path:
    return paths.pretrained(CheckpointKey(model, seed))


def weights_of(model: str) -> dict[str, torch.Tensor]:
    return load_file(folder_of(model) / WEIGHTS)


def history_of(model: str, seed: int = 1) -> list[dict[str, str]]:
    with paths.progress(CheckpointKey(model, seed), "history").open() as file:
        return [*csv.DictReader(file)]


def test_pretrain_keeps_the_best_rate(params: Params) -> None:
    """History, weights and tokens are those of the best rate alone, costs those of all rates. The
    lineage of a child has the costs of its parent, too."""
    rates = [1e-4, 1e-2, 1e30]
    tuned = changed(params.models["decoder_causal"], num_steps=9, num_validations=2, lr=rates)
    alone = changed(tuned, num_steps=9, num_validations=2, lr=1e-2)
    models = {"tuned": tuned, "alone": alone, "child": changed(alone, parent="tuned")}
    metrics = pretrained(params, models | {"scratch": params.models["encoder_scratch"]})
    account, single, scratch = metrics["tuned"], metrics["alone"], metrics["scratch"]
    assert account["lr"] == single["lr"] == 1e-2
    assert account["rates"]["0.0001"] > account["rates"]["0.01"] == single["validation_loss"]
    assert account["rates"]["1e+30"] is None
    one, other = weights_of("tuned"), weights_of("alone")
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert account["pretrain_tokens"] == single["pretrain_tokens"] == 9 * 16 * MAX_TOKENS
    assert account["flops_of_kept_rate"] == single["pretrain_flops"]
    assert 2 < account["pretrain_flops"] / single["pretrain_flops"] < 3  # one diverged
    lineage = account["pretrain_flops"] + metrics["child"]["pretrain_flops"]
    assert metrics["child"]["lineage_flops"] == lineage
    assert scratch["pretrain_tokens"] == scratch["pretrain_flops"] == 0
    assert single["pretrain_bytes"] == 4 * single["pretrain_tokens"]  # as ``write_corpus`` says

    history = history_of("alone")
    assert float(history[0]["loss"]) < 0.9 * math.log(VOCAB_SIZE)  # begins with frequencies
    assert history == history_of("tuned")
    assert [int(row["step"]) for row in history if row["validation_loss"]] == [5, 9]
    assert float(history[-1]["validation_loss"]) == single["validation_loss"]
    assert int(history[-1]["tokens"]) == single["pretrain_tokens"]
    assert int(history[-1]["flops"]) == single["pretrain_flops"] == 9 * int(history[0]["flops"])
    assert read_jsonl(paths.progress(CheckpointKey("alone", 1), "samples"))
    times = read_json(paths.pretraining_time(CheckpointKey("alone", 1)))
    assert times["wall_time_s"] > 0 and times["processor_time_s"] > 0
    record = read_json(folder_of("alone") / "run.json")
    assert (record["objective"], record["corpus"]) == ("causal", "prose")


@pytest.mark.parametrize(
    ("name", "objective"), [("encoder_mlm", "mlm"), ("encoder_decoder_span", "denoising")]
)
def test_pretrain_continues_from_the_parent_of_the_same_seed(
    params: Params, name: str, objective: str
) -> None:
    """The first loss is that of the parent's weights on the first batch of the child. A child that
    does not train keeps the weights. Costs add up from parent to child."""
    parent = changed(params.models[name], num_steps=4, seeds=[1, 2])
    child = changed(parent, parent="parent", objective={"name": objective}, num_steps=2)
    unchanged = changed(child, parent="child", objective={"name": "none"}, corpus="none")
    metrics = pretrained(params, {"parent": parent, "child": child, "unchanged": unchanged})

    learnt = OBJECTIVES.build(child.objective, small_tokenizer(), MAX_TOKENS, where="objective")
    corpus = EncodedCorpus.load(Path("data/encoded/prose/unigram/train"))
    packing = Packing(corpus, MAX_TOKENS, seed=2)
    data = PretrainingData(packing, learnt, batch_rows=16, micro_batch_rows=16, seed=2)
    losses = []
    for seed in (2, 1):
        model = MODELS.build(parent.architecture, VOCAB_SIZE, where="model")
        model.load(folder_of("parent", seed))
        device = resolve(params.compute, threads=1)
        losses.append(mean_loss(headless(model), learnt, data.micro_batches(0), device))
    first = float(history_of("child", 2)[0]["loss"])
    assert first == pytest.approx(losses[0], rel=1e-6)
    assert first != pytest.approx(losses[1], rel=1e-4)

    one, other = weights_of("child"), weights_of("unchanged")
    assert all(torch.equal(one[key], other[key]) for key in other)
    assert [account["pretrain_tokens"] for account in metrics.values()] == [2048, 1024, 0]
    assert [account["lineage_tokens"] for account in metrics.values()] == [2048, 3072, 3072]
    total = sum(account["pretrain_flops"] for account in metrics.values())
    assert metrics["unchanged"]["lineage_flops"] == total


def test_pretrain_refuses_what_cannot_train_and_leaves_nothing(params: Params) -> None:
    encoder = changed(params.models["encoder_mlm"], lr=1e30)
    with pytest.raises(ValueError, match=r"^models\.encoder\.training\.lr: training diverged"):
        pretrained(params, {"encoder": encoder})
    validation = Path("data/encoded/prose/unigram/validation")
    shutil.rmtree(validation)
    saved(small_corpus(), validation, MAX_TOKENS - 1)
    with pytest.raises(ValueError, match=r"^models\.encoder\.corpus: validation: "):
        pretrained(params, {"encoder": encoder})
    assert not paths.PRETRAINED.exists() and not Path(".scratch/checkpoints").exists()
    study = with_models(params, {"encoder": changed(encoder, seeds=[1, 3])})
    with pytest.raises(ValueError, match="--only-seed: "):
        pretrain.main(pretrain_plan(study, "encoder"), "encoder", only_seed=2)


@pytest.mark.parametrize(("model", "ranks"), [("encoder_mlm", [0, 1]), (SCRATCH, [0, None])])
def test_rank_is_none_where_nothing_trains_and_the_process_is_not_the_first(
    params: Params, model: str, ranks: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, rank in enumerate(ranks):
        monkeypatch.setenv("RANK", str(number))
        assert pretrain._rank(pretrain_plan(params, model)) == rank


def published(params: Params, folder: Path) -> Model:
    """Returns the entry of a checkpoint in a folder."""
    model = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
    update = {"architecture": model, "tokenizer": "none"}
    return params.models["encoder_scratch"].model_copy(update=update)


def test_pretrain_copies_a_published_checkpoint_whose_costs_are_unknown(
    params: Params, tmp_path: Path
) -> None:
    """A twin from random weights has the same architecture and costs nothing."""
    origin = Path(shutil.copytree(checkpoint("bert"), tmp_path / "origin"))
    entry = published(params, origin)
    wrong = entry.model_copy(update={"architecture": entry.architecture | {"revision": "0" * 12}})
    with pytest.raises(ValueError, match=r"^models\.public\.architecture\.revision: "):
        pretrained(params, {"public": wrong})
    twin = entry.model_copy(update={"architecture": entry.architecture | {"weights": "random"}})
    account, of_twin = pretrained(params, {"public": entry, "twin": twin}).values()
    assert account["num_params"] == of_twin["num_params"] > account["num_embedding_params"] > 0
    amounts = {f"{of}_{a}" for of in ("pretrain", "lineage") for a in ("tokens", "flops", "bytes")}
    assert {key for key, value in account.items() if value is None} == amounts
    assert of_twin["lineage_tokens"] == of_twin["lineage_flops"] == 0
    one, other = weights_of("public"), load_file(origin / WEIGHTS)
    assert all(torch.equal(one[key], other[key]) for key in one.keys() & other.keys())
    assert read_json(folder_of("public") / "run.json")["model"]["path"] == str(folder_of("public"))


def test_pretrain_trains_a_published_checkpoint_further(params: Params) -> None:
    """Further pretraining learns the corpus, in the checkpoint's own tokens, and keeps the names of
    all weights. Another model can begin with the result; one whose rate is nearly 0 keeps it."""
    entry = published(params, checkpoint("t5"))
    objective = {"name": "span_corruption"}
    further = changed(
        entry,
        **{"corpus": "prose", "tokenizer": "t5", "parent": "public", "objective": objective},
        **{"max_tokens": 48, "num_steps": 60, "lr": 5e-3},
    )
    again = changed(further, parent="further", num_steps=1, lr=1e-12)
    pinned = {key: entry.architecture[key] for key in ("path", "revision")}
    tokenizer = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    models = {"public": entry, "further": further, "again": again}
    study = with_models(params.model_copy(update={"tokenizers": {"t5": tokenizer}}), models)
    assert not [fault for fault in find_faults(study) if fault.startswith("models.")]
    corpus = Path("data/corpora/prose")
    corpus.mkdir(parents=True)
    rows = [{"id": str(i), "sentences": lines} for i, lines in enumerate(documents())]
    write_jsonl(corpus / "train.jsonl", rows[8:])
    write_jsonl(corpus / "validation.jsonl", rows[:8])
    write_json(corpus / "corpus.json", {"max_tokens": "all"})
    run_stage(study, train_tokenizer, "t5")
    run_stage(study, encode_corpus, "prose", "t5")
    metrics = pretrained(study, models)

    account, history = metrics["further"], history_of("further")
    assert float(history[-1]["validation_loss"]) == account["validation_loss"]
    assert account["validation_loss"] < 0.9 * float(history[0]["loss"])
    assert account["pretrain_tokens"] == 60 * 16 * 48 and account["pretrain_flops"] > 0
    assert account["lineage_tokens"] is account["lineage_flops"] is None
    assert account["num_params"] == metrics["public"]["num_params"]
    one, other, unchanged = map(weights_of, ("public", "further", "again"))
    assert one.keys() == other.keys() and not all(torch.equal(one[k], other[k]) for k in one)
    assert all(torch.allclose(unchanged[key], other[key], atol=1e-8) for key in other)


# Systems


def test_one_setting_takes_every_system_to_base_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, times = re.subn(r"(d_model: &d_model) 128\b", r"\1 768", STUDY.read_text())
    text, students = re.subn(r"num_layers: 1\b", "num_layers: 6", text)
    assert times == students == 1
    (tmp_path / "params.yaml").write_text(text)
    monkeypatch.chdir(ROOT)
    params = load(tmp_path / "params.yaml")
    assert list(find_faults(params)) == []
    for key, model in matched(params).models.items():
        num_layers = 6 if key in ("distilbert", "student_scratch") else 12
        bert = {"num_layers": num_layers, "num_heads": 12, "d_ff": 3072, "start": "usual"}
        name = model.architecture["name"]
        sizes = {"num_layers": 2, "d_cell": 3072} if name == "bilstm" else bert
        assert model.architecture == {"name": name, "d_model": 768} | sizes
