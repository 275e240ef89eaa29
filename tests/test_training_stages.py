"""The stages that train, one after the other, on a little text."""

import csv
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stages import (
    encode_corpus,
    evaluate,
    finetune,
    fit_baseline,
    pretrain,
    train_tokenizer,
)
from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.params import Budget, Method, Params, PublishedTokenizer, Run, load
from stages.core.seeding import torch_stream
from stages.evaluation import records
from stages.kinds._kind import KINDS, SPLITS
from stages.matching.budget import plans
from stages.models._backbone import MODELS, Backbone
from stages.models._heads import gather
from stages.models.hub import Hub
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import FILE, Tokenizer
from stages.training.checkpoint import WEIGHTS, load_weights
from stages.training.device import resolve
from stages.training.loop import mean_loss
from stages.training.pretraining import PretrainingData, validation_batches
from stages.trials import kept
from stages.trials.no_answer import best_threshold
from stages.trials.prediction import predict
from stages.trials.setup import TrialSetup
from tests.small import VOCAB_SIZE, documents, headless, with_encoder_decoder
from tests.small_hub import checkpoint, revision_of
from tests.smoke import alone, with_values

pytestmark = pytest.mark.slow

SMALLER = {
    "compute.threads": 1,
    "tokenizers.unigram.vocab_size": 600,
    "finetune.methods.linear_probe.method": {"name": "linear_probe", "C": [0.1, 1.0]},
    **{
        f"pretrain.{run}.training.num_steps": 6
        for run in ("encoder_mlm", "encoder_scratch", "decoder_causal")
    },
}


@pytest.fixture
def params(tmp_path, monkeypatch) -> Params:
    """The smoke study on topics of the language reference; tags are of words in capitals."""
    path = with_values(tmp_path, SMALLER)
    monkeypatch.chdir(tmp_path)
    corpus, examples = Path("data/corpora/prose"), Path("data/tasks/tag/examples")
    for folder in (
        corpus,
        examples,
        Path("data/pretrained"),
        Path("data/encoded/none"),
        Path("data/plans"),
    ):
        folder.mkdir(parents=True)
    rows = [{"id": str(i), "sentences": lines} for i, lines in enumerate(documents())]
    write_jsonl(corpus / "train.jsonl", rows[8:])
    write_jsonl(corpus / "validation.jsonl", rows[:8])
    write_json(corpus / "corpus.json", {"max_tokens": "all"})
    lines = [line.split()[:12] for document in documents()[:12] for line in document][:90]
    tagged = [
        {"id": str(i), "words": words, "tags": ["B-CODE" if w.istitle() else "O" for w in words]}
        for i, words in enumerate(lines)
    ]
    write_jsonl(examples / "train.jsonl", tagged[:60])
    write_jsonl(examples / "validation.jsonl", tagged[60:75])
    unlabelled = [{"id": row["id"], "words": row["words"]} for row in tagged[75:]]
    write_jsonl(examples / "test.jsonl", unlabelled)
    task = {"task": {"name": "tagging"}, "kind": "tagging", "labels": ["B-CODE", "O"]}
    metrics = {"metric": "entity_f1", "other_metric": "word_accuracy"}
    write_json(examples / "task.json", task | metrics)
    params = with_encoder_decoder(load(path))
    write_plans(params)
    return params


def write_plans(params: Params) -> None:
    """As check_params does."""
    for key, plan in plans(params).items():
        write_json(Path(f"data/plans/{key}.json"), asdict(plan))
    write_json(paths.SEEDS, {"pretrain_seeds": params.pretrain_seeds})


def test_from_text_to_predictions(params) -> None:
    train_tokenizer.main(params, "unigram")
    encode_corpus.main(params, "prose", "unigram")
    counts = read_json(Path("data/encoded/prose/unigram/encoded.json"))
    assert counts["train_documents"] == len(documents()) - 8

    Path("data/encoded/none/unigram").write_text("nothing\n")
    Path("data/pretrained/none").write_text("nothing\n")
    for run in ("encoder_mlm", "encoder_scratch"):
        pretrain.main(params, run)
    trained, scratch = (
        read_json(Path("data/pretrained", run, "metrics.json"))
        for run in ("encoder_mlm", "encoder_scratch")
    )
    assert trained["pretrain_tokens"] == 6 * 16 * 64
    assert scratch["pretrain_tokens"] == scratch["pretrain_flops"] == 0
    assert trained["num_params"] == scratch["num_params"]
    with Path("data/progress/history/encoder_mlm.csv").open() as file:
        history = list(csv.DictReader(file))
    assert len(history) == 6
    assert int(history[-1]["tokens"]) == trained["pretrain_tokens"]
    assert int(history[-1]["flops"]) == trained["pretrain_flops"] == 6 * int(history[0]["flops"])
    assert float(history[-1]["validation_loss"]) == trained["validation_loss"]

    finetune.main(alone(params, "encoder_mlm"), "tag")
    folder = Path("data/finetuned/tag/encoder_mlm")
    rows = records.read(folder / "trials.csv", records.TrialRecord)
    assert [(row.method, row.finetune_seed) for row in rows] == [
        ("full", 1),
        ("full", 2),
        ("linear_probe", 1),
        ("linear_probe", 2),
    ]
    full, _, probe, _ = rows
    assert probe.num_trained_params < full.num_trained_params
    assert probe.finetune_flops < full.finetune_flops
    predictions = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
    test = Path("data/tasks/tag/examples/test.jsonl").read_text().splitlines()
    assert len(predictions) == len(rows) * len(test)
    words = {row["id"]: row["words"] for row in map(json.loads, test)}
    assert all(len(p.prediction.split()) == len(words[p.id]) for p in predictions)
    files = sorted(path.name for path in (folder / "weights").iterdir())
    assert files == ["full-50-1.safetensors", "linear_probe-50-1.safetensors"]
    read = records.read(folder / "inputs.csv", records.InputRecord)
    assert [(each.split, each.rows, each.rows_cut) for each in read] == [
        ("train", 50, 0),
        ("validation", 15, 0),
        ("test", 15, 0),
    ]
    assert {each.read_at for each in read} == {"first subword of a word"}


def add_questions() -> dict[str, str]:
    """A task of questions about contexts of several windows; returns the contexts by row."""
    examples = Path("data/tasks/ask/examples")
    examples.mkdir(parents=True)
    contexts = [" ".join(document)[:400] for document in documents()[:16]]
    rows: list[dict[str, Any]] = []
    for i, context in enumerate(contexts):
        text = context.split()[i]
        answers = [{"text": text, "answer_start": context.index(text)}] if i % 4 else []
        question = f"Which word has the number {i}?"
        rows.append({"id": str(i), "question": question, "context": context, "answers": answers})
    write_jsonl(examples / "train.jsonl", rows[:8])
    write_jsonl(examples / "validation.jsonl", rows[8:12])
    hidden = [{key: row[key] for key in ("id", "question", "context")} for row in rows[12:]]
    write_jsonl(examples / "test.jsonl", hidden)
    labels = [{"id": row["id"], "answers": row["answers"]} for row in rows[12:]]
    write_jsonl(Path("data/tasks/ask/test_labels.jsonl"), labels)
    task = {"name": "span_qa", "no_answer": True, "stride": 16, "max_question_tokens": 24}
    metrics = {"metric": "squad_f1", "other_metric": "exact_match"}
    about = {"task": task, "kind": "span_qa", "labels": []} | metrics
    write_json(examples / "task.json", about)
    return {row["id"]: row["context"] for row in hidden}


def test_questions_about_contexts_of_several_windows_from_rows_to_scores(params) -> None:
    contexts = add_questions()
    ask = params.tasks["tag"].model_copy(update={"task": {"name": "span_qa", "no_answer": True}})
    settings = {"label_budgets": ["all"], "seeds": [1], "max_tokens": 64}
    params = params.model_copy(
        update={
            "tasks": {"ask": ask},
            "pretrain": {"encoder_scratch": params.pretrain["encoder_scratch"]},
            "finetune": params.finetune.model_copy(update=settings),
            "baselines": {"sliding_window": {"name": "sliding_window"}},
        }
    )
    train_tokenizer.main(params, "unigram")
    for folder in ("encoded/none/unigram", "pretrained/none"):
        Path("data", folder).write_text("nothing\n")
    pretrain.main(params, "encoder_scratch")
    finetune.main(alone(params, "encoder_scratch"), "ask")
    fit_baseline.main(params, "ask")
    evaluate.main(params, "ask")
    scored = records.read(Path("data/evaluated/ask/trials.csv"), records.ScoredTrial)
    assert [trial.method for trial in scored] == ["full", "linear_probe", "classical"]
    assert all(0 <= trial.other_value <= trial.value <= 1 for trial in scored)
    path = Path("data/finetuned/ask/encoder_scratch/predictions.csv.gz")
    predictions = records.read(path, records.PredictionRecord)
    assert [p.id for p in predictions] == [*contexts, *contexts]
    assert all(p.prediction in contexts[p.id] for p in predictions)

    path = path.parent / "weights/full-all-1.safetensors"
    trial = kept.read(path)
    pairing = kept.setup_of(trial, path)
    model = kept.rebuilt(trial, pairing, path)
    device = resolve(params.compute, threads=1)
    found = {}
    for split in ("validation", "test"):
        rows = read_jsonl(Path(f"data/tasks/ask/examples/{split}.jsonl"))
        found[split] = predict(pairing.task, model, rows, pairing.task.encode(rows), device)
        if split == "validation":
            gold = [*map(KINDS["span_qa"].answer, rows)]
            assert trial.threshold == best_threshold("squad_f1", gold, found[split])
    given = [p.prediction for p in predictions if p.method == "full"]
    assert given == [each.at(trial.threshold) for each in found["test"]]


def test_methods_that_fit_are_tried_and_what_ever_trains_is_stored(params) -> None:
    """An encoder without biases, two epochs: of its two blocks one is unfrozen."""
    train_tokenizer.main(params, "unigram")
    for folder in ("encoded/none", "pretrained"):
        Path("data", folder).mkdir(exist_ok=True)
    Path("data/encoded/none/unigram").write_text("nothing\n")
    Path("data/pretrained/none").write_text("nothing\n")
    run = params.pretrain["encoder_scratch"]
    run = run.model_copy(update={"model": run.model | {"bias": False}})
    full = params.finetune.methods["full"]
    training = full.training.model_copy(update={"num_epochs": 2})
    methods = {
        name: full.model_copy(update={"method": {"name": name}, "training": training})
        for name in ("gradual_unfreezing", "bitfit", "lora")
    }
    finetuning = params.finetune.model_copy(update={"methods": methods, "seeds": [1]})
    params = params.model_copy(
        update={"pretrain": params.pretrain | {"plain": run}, "finetune": finetuning}
    )
    write_plans(params)
    pretrain.main(params, "plain")
    finetune.main(alone(params, "plain"), "tag")

    folder = Path("data/finetuned/tag/plain")
    (skipped,) = records.read(folder / "skipped.csv", records.SkippedMethod)
    assert (skipped.run, skipped.method) == ("plain", "bitfit") and "bias" in skipped.reason
    gradual, lora = records.read(folder / "trials.csv", records.TrialRecord)
    assert (gradual.method, lora.method) == ("gradual_unfreezing", "lora")
    stored = {
        trial.method: load_file(folder / f"weights/{trial.method}-50-1.safetensors")
        for trial in (gradual, lora)
    }
    # Everything may train, but in two epochs only this did.
    upper = [w for n, w in stored["gradual_unfreezing"].items() if ".blocks.1." in n or "head" in n]
    assert gradual.num_trained_params == sum(weight.numel() for weight in upper)
    # From scratch a trial draws its own weights.
    drawn = TrialSetup("plain", "tag", max_tokens=params.finetune.max_tokens).backbone(seed=1)
    for name, weight in drawn.named_parameters():
        # Not the vocabulary's bias, which a tag has no use for.
        if ".blocks.1." not in name and name != "output_bias":
            assert torch.equal(stored["gradual_unfreezing"][f"backbone.{name}"], weight)
    assert lora.num_trained_params == sum(weight.numel() for weight in stored["lora"].values())
    assert all(name.startswith("head.") or ".lora." in name for name in stored["lora"])


MAX_TOKENS = 32


def changed(run: Run, **settings: Any) -> Run:
    """The run with other settings, those of its model and training by their own names."""
    model = {k: settings.pop(k) for k in ("d_model", "d_ff", "num_layers") if k in settings}
    training = {k: settings.pop(k) for k in ("num_steps", "lr") if k in settings}
    training |= {"max_tokens": MAX_TOKENS, "num_validations": 1}
    settings |= {
        "model": run.model | model,
        "training": run.training.model_copy(update=training),
    }
    return run.model_copy(update=settings)


def pretrained(params: Params, runs: Mapping[str, Run]) -> dict[str, dict[str, Any]]:
    """Pretrain these runs, on a corpus encoded for them; returns their metrics."""
    budget = Budget(matched="none", reference=next(iter(runs)))
    params = params.model_copy(update={"pretrain": dict(runs), "budget": budget})
    write_plans(params)
    train_tokenizer.main(params, "unigram")
    encode_corpus.main(params, "prose", "unigram")
    Path("data/encoded/none/unigram").write_text("nothing\n")
    Path("data/pretrained/none").write_text("nothing\n")
    for run in runs:
        pretrain.main(params, run)
    return {run: read_json(Path("data/pretrained", run, "metrics.json")) for run in runs}


def backbone_of(run: Run) -> Backbone:
    return MODELS.build(run.model, VOCAB_SIZE, where="model")


def trained(run: Run, name: str) -> Backbone:
    model = backbone_of(run)
    load_weights(model, Path("data/pretrained", name, WEIGHTS))
    return model.eval()


def objective_of(run: Run) -> Objective:
    tokenizer = Tokenizer(Path("data/tokenizers/unigram", FILE))
    return OBJECTIVES.build(run.objective, tokenizer, MAX_TOKENS, where="objective")


def packed(split: str, *, seed: int) -> Packing:
    corpus = EncodedCorpus.load(Path("data/encoded/prose/unigram") / split)
    return Packing(corpus, MAX_TOKENS, seed=seed)


@torch.no_grad()
def divergence(teacher: Backbone, student: Backbone, batches: list[Batch]) -> float:
    """Kullback-Leibler, the mean over masked tokens."""

    def log_probs(model: Backbone, batch: Batch) -> torch.Tensor:
        assert batch.target_positions is not None
        return model.unembed(gather(model(batch), batch.target_positions)).log_softmax(dim=-1)

    total = 0.0
    for batch in batches:
        theirs, ours = log_probs(teacher, batch), log_probs(student, batch)
        real = batch.labels != IGNORE_INDEX
        total += float((theirs.exp() * (theirs - ours)).sum(dim=-1)[real].sum())
    return total / sum(batch.num_targets["mlm"] for batch in batches)


def test_a_student_comes_nearer_to_its_teacher(params) -> None:
    """By what it learns and not only by where it starts; what it costs is the student's own."""
    teacher = changed(params.pretrain["encoder_mlm"], d_model=32, d_ff=64, num_steps=40, lr=1e-2)
    alone = changed(teacher, num_layers=1, num_steps=30)
    distillation = {"name": "distillation", "student_init": "random"}
    student = changed(alone, parent="teacher", objective=distillation)
    runs = {"teacher": teacher, "alone": alone, "student": student}
    metrics = pretrained(params, runs)

    models = {name: trained(run, name) for name, run in runs.items()}
    objective = objective_of(student)
    start = backbone_of(student).eval()
    start.initialise(generator=torch_stream(student.seed, "weights"))
    objective.learn_from(models["teacher"], start)
    validation = validation_batches(
        packed("validation", seed=0), objective.for_validation(), batch_rows=64
    )
    distances = {
        name: divergence(models["teacher"], model, validation)
        for name, model in (models | {"start": start}).items()
    }
    assert distances["teacher"] == 0
    assert distances["student"] < distances["start"] / 10
    assert distances["student"] < distances["alone"]

    assert metrics["student"]["num_params"] == metrics["alone"]["num_params"]
    step = PretrainingData(
        packed("train", seed=1), objective, batch_rows=16, micro_batch_rows=16, seed=1
    ).micro_batches(0)
    own = 3 * objective.flops(headless(start), step[0])
    assert metrics["alone"]["pretrain_flops"] == 30 * own
    assert metrics["student"]["pretrain_flops"] == 30 * (own + objective.frozen_flops(step[0]))
    assert metrics["student"]["pretrain_tokens"] == 30 * 16 * MAX_TOKENS
    for amount in ("tokens", "flops"):
        lineage = (
            metrics["teacher"][f"pretrain_{amount}"] + metrics["student"][f"pretrain_{amount}"]
        )
        assert metrics["student"][f"lineage_{amount}"] == lineage
        assert metrics["alone"][f"lineage_{amount}"] == metrics["alone"][f"pretrain_{amount}"]


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("encoder_mlm", "mlm"),
        ("decoder_causal", "prefix_lm"),
        ("encoder_decoder_span", "denoising"),
    ],
)
def test_training_goes_on_from_the_weights_of_the_parent(params, name, objective) -> None:
    """Its first loss is what the parent's weights give on its first batch, with an objective of
    its own; without one the weights stay. Costs add up from parent to child."""
    parent = changed(params.pretrain[name], d_model=32, d_ff=64, num_steps=4)
    child = changed(parent, parent="parent", objective={"name": objective}, num_steps=2, seed=2)
    kept = changed(child, parent="child", objective={"name": "none"}, corpus="none")
    metrics = pretrained(params, {"parent": parent, "child": child, "kept": kept})

    device = resolve(params.compute, threads=1)
    batches = PretrainingData(
        packed("train", seed=2), objective_of(child), batch_rows=16, micro_batch_rows=16, seed=2
    ).micro_batches(0)
    before, untrained = trained(parent, "parent"), backbone_of(parent)
    untrained.initialise(generator=torch.Generator().manual_seed(2))
    expected, other = (
        mean_loss(headless(model.to(device.torch)), objective_of(child), batches, device)
        for model in (before, untrained)
    )
    with Path("data/progress/history/child.csv").open() as file:
        first = float(next(csv.DictReader(file))["loss"])
    assert first == pytest.approx(expected, rel=1e-6)
    assert first != pytest.approx(other, rel=1e-2)

    weights = [load_file(Path("data/pretrained", name, WEIGHTS)) for name in ("child", "kept")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    assert [metrics[name]["pretrain_tokens"] for name in metrics] == [2048, 1024, 0]
    assert [metrics[name]["lineage_tokens"] for name in metrics] == [2048, 3072, 3072]
    assert metrics["kept"]["lineage_flops"] == sum(m["pretrain_flops"] for m in metrics.values())


def test_a_pretraining_that_diverges_says_so_and_leaves_nothing(params) -> None:
    train_tokenizer.main(params, "unigram")
    encode_corpus.main(params, "prose", "unigram")
    run = params.pretrain["encoder_mlm"]
    training = run.training.model_copy(update={"lr": 1e30})
    runs = {"encoder_mlm": run.model_copy(update={"training": training})}
    Path("data/pretrained/none").write_text("nothing\n")
    with pytest.raises(ValueError, match=r"pretrain\.encoder_mlm\.training\.lr: training diverged"):
        pretrain.main(params.model_copy(update={"pretrain": runs}), "encoder_mlm")
    assert not Path("data/pretrained/encoder_mlm").exists()


RESULTS = (
    *("pretrained/tuned/model.safetensors", "pretrained/tuned/metrics.json"),
    *("progress/history/tuned.csv", "progress/rates/tuned.csv", "progress/samples/tuned.jsonl"),
)


class Killed(Exception):
    pass


def test_a_run_keeps_the_best_of_its_rates_and_may_be_killed_in_any(params, monkeypatch) -> None:
    """Its history, weights and tokens are those of the rate alone, its costs those of all."""
    monkeypatch.setattr("stages.training.loop.CHECKPOINT_SECONDS", 0.0)
    rates = [1e-4, 1e-2, 1e30]
    tuned = changed(params.pretrain["decoder_causal"], d_model=32, d_ff=64, num_steps=8, lr=rates)
    alone = changed(tuned, lr=1e-2)
    child = changed(alone, parent="tuned")
    metrics = pretrained(params, {"tuned": tuned, "alone": alone, "child": child})
    account, single = metrics["tuned"], metrics["alone"]
    assert account["lr"] == single["lr"] == 1e-2
    assert list(account["rates"]) == ["0.0001", "0.01", "1e+30"]
    assert account["rates"]["0.0001"] > account["rates"]["0.01"] == single["validation_loss"]
    assert account["rates"]["1e+30"] is None
    one, other = (load_file(Path("data/pretrained", r, WEIGHTS)) for r in ("tuned", "alone"))
    assert all(torch.equal(one[name], other[name]) for name in other)
    histories = [Path(f"data/progress/history/{r}.csv").read_text() for r in ("tuned", "alone")]
    assert histories[0] == histories[1]
    assert account["pretrain_tokens"] == single["pretrain_tokens"] == 8 * 16 * MAX_TOKENS
    assert account["flops_of_kept_rate"] == single["pretrain_flops"]
    assert 2 < account["pretrain_flops"] / single["pretrain_flops"] < 3  # one diverged
    assert account["lineage_flops"] == account["pretrain_flops"]
    lineage = account["pretrain_flops"] + metrics["child"]["pretrain_flops"]
    assert metrics["child"]["lineage_flops"] == lineage
    with Path("data/progress/rates/tuned.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["kept"] == "1"] == [str(n) for n in range(1, 9)]
    assert {row["rate"] for row in rows if row["kept"] == "1"} == {"0.01"}
    assert len(Path("data/progress/rates/alone.csv").read_text().splitlines()) == 1
    whole = [Path("data", name).read_bytes() for name in RESULTS]
    assert not Path(".scratch/pretrain/tuned").exists()

    several = params.model_copy(update={"pretrain": {"tuned": tuned}})
    validates = pretrain._validates
    for rate, killed_at in ((1, 3), (2, 1)):
        begun = []

        def kill(step: int, run: Run, *, at=(rate, killed_at), begun=begun) -> bool:
            begun.append(step)
            if (begun.count(1) - 1, step) == at:
                raise Killed
            return validates(step, run)

        monkeypatch.setattr(pretrain, "_validates", kill)
        with pytest.raises(Killed):
            pretrain.main(several, "tuned")
        monkeypatch.setattr(pretrain, "_validates", validates)
        pretrain.main(several, "tuned")
        assert [Path("data", name).read_bytes() for name in RESULTS] == whole


def test_a_corpus_smaller_than_asked_for_is_refused(params) -> None:
    train_tokenizer.main(params, "unigram")
    write_json(Path("data/corpora/prose/corpus.json"), {"max_tokens": 10**9})
    with pytest.raises(ValueError, match=r"corpora\.prose\.max_tokens: the corpus has only"):
        encode_corpus.main(params, "prose", "unigram")
    assert not Path("data/encoded/prose/unigram").exists()


def test_a_vocabulary_too_large_for_the_text_is_refused(params) -> None:
    larger = params.tokenizers["unigram"].model_copy(update={"vocab_size": 90_000})
    with pytest.raises(ValueError, match=r"tokenizers\.unigram: vocab_size 90000 does not suit"):
        train_tokenizer.main(
            params.model_copy(update={"tokenizers": {"unigram": larger}}), "unigram"
        )
    assert not Path("data/tokenizers/unigram").exists()


def add_classification() -> None:
    """Beside the task of the fixture; the test labels of both."""
    tags, examples = Path("data/tasks/tag/examples"), Path("data/tasks/section/examples")
    lines = [
        {"id": row["id"], "text": " ".join(row["words"]), "label": "yes" if i % 3 else "no"}
        for i, row in enumerate(read_jsonl(tags / "train.jsonl"))
    ]
    examples.mkdir(parents=True)
    write_jsonl(examples / "train.jsonl", lines[:50])
    write_jsonl(examples / "validation.jsonl", lines[50:55])
    write_jsonl(examples / "test.jsonl", [{"id": r["id"], "text": r["text"]} for r in lines[55:]])
    labels = [{"id": row["id"], "label": row["label"]} for row in lines[55:]]
    write_jsonl(Path("data/tasks/section/test_labels.jsonl"), labels)
    task = {"task": {"name": "classification"}, "kind": "classification", "labels": ["no", "yes"]}
    metrics = {"metric": "macro_f1", "other_metric": "accuracy"}
    write_json(examples / "task.json", task | metrics)

    test = read_jsonl(tags / "test.jsonl")
    gold = [{"id": row["id"], "tags": ["O"] * len(row["words"])} for row in test]
    write_jsonl(Path("data/tasks/tag/test_labels.jsonl"), gold)
    for name in ("tag", "section"):
        records.write(Path(f"data/baselines/{name}/trials.csv"), records.TrialRecord, [])
        path = Path(f"data/baselines/{name}/predictions.csv.gz")
        records.write(path, records.BaselinePredictionRecord, [])


def public(params: Params, path: Path, revision: str) -> Params:
    """The params with one run, a public checkpoint."""
    model = {"name": "hub", "path": str(path), "revision": revision}
    entry = params.pretrain["encoder_scratch"].model_copy(
        update={"model": model, "tokenizer": "none"}
    )
    budget = params.budget.model_copy(update={"matched": "none", "reference": "public"})
    pinned = params.model_copy(update={"pretrain": {"public": entry}, "budget": budget})
    write_plans(pinned)
    return pinned


def add_writing() -> list[dict[str, str]]:
    """Beside the task of the fixture: a text is a line's first words, its target the next ones."""
    examples = Path("data/tasks/write/examples")
    examples.mkdir(parents=True)
    lines = [line.split()[:6] for document in documents()[:12] for line in document]
    rows = [
        {"id": str(i), "text": " ".join(words[:3]), "target": " ".join(words[3:])}
        for i, words in enumerate(line for line in lines if len(line) == 6)
    ]
    write_jsonl(examples / "train.jsonl", rows[:50])
    write_jsonl(examples / "validation.jsonl", rows[50:56])
    test = [{"id": row["id"], "text": row["text"]} for row in rows[56:64]]
    write_jsonl(examples / "test.jsonl", test)
    labels = [{"id": row["id"], "target": row["target"]} for row in rows[56:64]]
    write_jsonl(Path("data/tasks/write/test_labels.jsonl"), labels)
    task = {"name": "seq2seq", "max_target_tokens": 8, "num_beams": 2, "metric": "chrf"}
    metrics = {"metric": "chrf", "other_metric": "bleu"}
    write_json(examples / "task.json", {"task": task, "kind": "seq2seq", "labels": []} | metrics)
    return test


def test_text_is_written_from_what_was_pretrained(params) -> None:
    """By a decoder that saw prefixes and an encoder-decoder; an encoder is refused, so is a method
    that trains a head alone."""
    test = add_writing()
    smaller = {"d_model": 32, "d_ff": 64, "num_steps": 2}
    runs = {
        "prefix": changed(
            params.pretrain["decoder_causal"], objective={"name": "prefix_lm"}, **smaller
        ),
        "both": changed(params.pretrain["encoder_decoder_span"], **smaller),
        "encoder": changed(params.pretrain["encoder_mlm"], **smaller),
    }
    pretrained(params, runs)
    seen = [read_json(Path("data/pretrained", run, "run.json"))["has_prefix"] for run in runs]
    assert seen == [True, False, False]

    methods = params.finetune.methods
    settings = params.finetune.model_copy(update={"methods": {"full": methods["full"]}})
    writers = {run: runs[run] for run in ("prefix", "both")}
    baselines = {"nearest": {"name": "nearest"}}
    tasks = {"write": params.tasks["tag"]}  # read as add_writing has it
    params = params.model_copy(
        update={
            "pretrain": writers,
            "finetune": settings,
            "baselines": baselines,
            "tasks": tasks,
        }
    )
    fit_baseline.main(params, "write")
    for run in writers:
        finetune.main(alone(params, run), "write")
        folder = Path("data/finetuned/write", run)
        predicted = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
        assert {row.id for row in predicted} == {row["id"] for row in test}
        for row in records.read(folder / "trials.csv", records.TrialRecord):
            assert row.num_trained_params == row.num_params and row.finetune_flops > 0
    evaluate.main(params, "write")
    scored = records.read(Path("data/evaluated/write/trials.csv"), records.ScoredTrial)
    assert {(row.metric, row.other_metric) for row in scored} == {("chrf", "bleu")}
    assert {row.run for row in scored} == {"prefix", "both", "nearest"}

    both = params.model_copy(update={"pretrain": runs})
    (skipped,) = finetune.skipped_methods(both, "encoder", "write")
    assert "needs a generative model" in skipped.reason
    probe = settings.model_copy(update={"methods": {"probe": methods["linear_probe"]}})
    params = params.model_copy(update={"finetune": probe})
    (skipped,) = finetune.skipped_methods(params, "both", "write")
    assert "requires a task head" in skipped.reason


@pytest.mark.parametrize(("family", "architecture"), [("bert", "encoder"), ("gpt2", "decoder")])
def test_a_public_checkpoint_from_its_folder_to_scores(
    params, tmp_path, family, architecture
) -> None:
    add_classification()
    origin = Path(shutil.copytree(checkpoint(family), tmp_path / "origin"))
    with pytest.raises(ValueError, match=r"pretrain\.public\.model\.revision: the folder's"):
        pretrain.main(public(params, origin, "0" * 12), "public")
    assert not Path("data/pretrained/public").exists()
    pinned = public(params, origin, revision_of(origin))
    pretrain.main(pinned, "public")
    account = read_json(Path("data/pretrained/public/metrics.json"))
    assert account["num_params"] > account["num_embedding_params"] > 0
    unknown = {key for key, value in account.items() if value is None}
    amounts = ("tokens", "flops", "bytes")
    assert unknown == {f"{of}_{each}" for of in ("pretrain", "lineage") for each in amounts}
    assert len(Path("data/progress/history/public.csv").read_text().splitlines()) == 1

    shutil.rmtree(origin)  # all that fine-tuning needs stands in data/pretrained/public
    for task, metric in (("tag", "entity_f1"), ("section", "macro_f1")):
        finetune.main(alone(pinned, "public"), task)
        evaluate.main(pinned, task)
        scored = records.read(Path(f"data/evaluated/{task}/trials.csv"), records.ScoredTrial)
        assert len(scored) == 4 and {trial.metric for trial in scored} == {metric}
        full, probe = scored[0], scored[-1]
        assert (full.architecture, full.objective, full.corpus) == (
            architecture,
            "hub",
            str(origin),
        )
        assert (full.pretrain_tokens, full.d_model, full.num_layers) == (None, 32, 2)
        assert full.num_trained_params == full.num_params > probe.num_trained_params
        used = full.num_params - probe.num_trained_params  # without the head
        assert (used < full.num_pretrained_params) == (architecture == "encoder_decoder")
        assert 0 < probe.finetune_flops < full.finetune_flops


FURTHER = {"bert": "mlm", "gpt2": "causal", "t5": "span_corruption", "bart": "denoising"}


def further(params: Params, family: str, **settings: Any) -> Params:
    """The params with two runs, a public checkpoint as it was published and pretrained further on
    prose; its tokenizer is an entry of its own."""
    folder = checkpoint(family)
    params = public(params, folder, revision_of(folder))
    entry = params.pretrain["public"]
    pinned = {key: entry.model[key] for key in ("path", "revision")}
    run = changed(
        entry,
        corpus="prose",
        tokenizer=family,
        objective={"name": FURTHER[family]},
        **{"num_steps": 60, "lr": 5e-3} | settings,
    )
    training = run.training.model_copy(update={"max_tokens": 48})
    run = run.model_copy(update={"training": training})
    tokenizer = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    return params.model_copy(
        update={
            "tokenizers": {family: tokenizer},
            "pretrain": {"public": entry, "further": run},
        }
    )


def public_checkpoint(params: Params, key: str) -> Backbone:
    """As a run that pretrains it further begins with it."""
    model = params.pretrain[key].model
    size = Hub.tokenizer_of(model, Path(model["path"])).vocab_size
    backbone = MODELS.build(model, size, where="model")
    backbone.add_pretraining_layers()
    backbone.initialise(generator=torch_stream(0, "weights"))
    return backbone


def published_loss(params: Params, key: str) -> float:
    """On the run's own validation rows."""
    run = params.pretrain[key]
    vocabulary = Hub.tokenizer_of(run.model, Path(run.model["path"]))
    max_tokens = run.training.max_tokens
    objective = OBJECTIVES.build(run.objective, vocabulary, max_tokens, where="objective")
    corpus = EncodedCorpus.load(Path("data/encoded", run.corpus, run.tokenizer, "validation"))
    packing = Packing(corpus, max_tokens, seed=0)
    batches = validation_batches(packing, objective.for_validation(), batch_rows=16)
    device = resolve(params.compute, threads=1)
    return mean_loss(headless(public_checkpoint(params, key)), objective, batches, device)


@pytest.mark.parametrize("family", FURTHER)
def test_a_public_checkpoint_is_pretrained_further_and_fine_tuned(params, family) -> None:
    """It learns the corpus, and is stored as one that was not trained further."""
    params = further(params, family)
    assert not [fault for fault in find_faults(params) if "further" in fault]
    write_plans(params)
    train_tokenizer.main(params, family)
    assert (Path("data/tokenizers") / family / "config.json").is_file()
    encode_corpus.main(params, "prose", family)
    for nothing in ("encoded/none/none", "pretrained/none", "tokenizers/none"):
        Path("data", nothing).write_text("nothing\n")
    for run in ("public", "further"):
        pretrain.main(params, run)

    folder = Path("data/pretrained/further")
    with Path("data/progress/history/further.csv").open() as file:
        losses = [float(r["validation_loss"]) for r in csv.DictReader(file) if r["validation_loss"]]
    record, account = read_json(folder / "run.json"), read_json(folder / "metrics.json")
    assert (record["objective"], record["corpus"]) == (FURTHER[family], "prose")
    assert losses[-1] == account["validation_loss"]
    chance = np.log(public_checkpoint(params, "further").vocab_size)
    assert losses[-1] < 0.9 * min(chance, published_loss(params, "further"))
    assert account["pretrain_tokens"] == 60 * 16 * 48 and account["pretrain_flops"] > 0
    assert account["lineage_tokens"] is account["lineage_flops"] is None
    before = read_json(Path("data/pretrained/public/metrics.json"))
    assert account["num_params"] == before["num_params"]
    one, other = (load_file(f"data/pretrained/{run}/{WEIGHTS}") for run in ("public", "further"))
    assert one.keys() == other.keys() and not all(torch.equal(one[k], other[k]) for k in one)

    tuning = with_full_alone(params)
    finetune.main(alone(tuning, "further"), "tag")
    rows = records.read(Path("data/finetuned/tag/further/trials.csv"), records.TrialRecord)
    assert {(row.objective, row.corpus) for row in rows} == {(FURTHER[family], "prose")}


def prompted(params: Params, runs: Mapping[str, Run], **settings: Any) -> Params:
    """The params with these runs and the one method that trains nothing."""
    method = Method(method={"name": "in_context"} | settings)
    finetune = params.finetune.model_copy(update={"methods": {"prompted": method}})
    budget = Budget(matched="none", reference=next(iter(runs)))
    update = {"pretrain": dict(runs), "finetune": finetune, "budget": budget}
    return params.model_copy(update=update)


def test_a_method_that_trains_nothing_leaves_predictions_alone(params) -> None:
    add_classification()
    decoder = changed(params.pretrain["decoder_causal"], d_model=32, d_ff=64, num_steps=4)
    runs = {"decoder": decoder, "encoder": changed(params.pretrain["encoder_mlm"], num_steps=4)}
    pretrained(params, runs)
    params = prompted(params, runs, num_shots=2)
    finetune.main(alone(params, "decoder"), "section")
    evaluate.main(prompted(params, {"decoder": decoder}), "section")
    scored = records.read(Path("data/evaluated/section/trials.csv"), records.ScoredTrial)
    assert [trial.finetune_seed for trial in scored] == params.finetune.seeds
    for trial in scored:
        assert trial.num_trained_params == trial.finetune_flops == trial.best_epoch == 0
        checkpoint = Path("data/pretrained/decoder/model.safetensors")
        assert trial.weights_bytes == checkpoint.stat().st_size
    costs = records.read(Path("data/timings/finetune/section/decoder.csv"), records.CostRecord)
    assert costs[0].latency_s and costs[0].latency_s > 1e-4, "no prompt was remembered"
    folder = Path("data/finetuned/section/decoder")
    assert records.read(folder / "history.csv", records.EpochRecord) == []
    files = sorted((folder / "weights").iterdir())
    assert [path.name for path in files] == [
        f"prompted-50-{t.finetune_seed}.safetensors" for t in scored
    ]
    assert not any(load_file(path) for path in files)
    found = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
    assert {row.prediction for row in found} <= {"yes", "no"}

    finetune.main(alone(params, "encoder"), "section")
    (skipped,) = records.read(
        Path("data/finetuned/section/encoder/skipped.csv"), records.SkippedMethod
    )
    assert skipped.method == "prompted" and "needs a causal model" in skipped.reason
    assert (
        records.read(Path("data/finetuned/section/encoder/trials.csv"), records.TrialRecord) == []
    )
    edit_task("section", verbalisers=["x=y"])
    with pytest.raises(ValueError, match=r"tasks\.section\.task\.verbalisers: 'x'"):
        finetune.main(alone(prompted(params, runs), "decoder"), "section")


def edit_task(key: str, **settings: Any) -> None:
    """As if the prepared task had these settings, too."""
    path = Path("data/tasks", key, "examples/task.json")
    about = read_json(path)
    write_json(path, about | {"task": about["task"] | settings})


def add_text() -> None:
    """A task of language modelling, of the texts of ``add_classification``."""
    section, examples = Path("data/tasks/section/examples"), Path("data/tasks/text/examples")
    examples.mkdir(parents=True)
    for split in SPLITS:
        texts = [{"id": r["id"], "text": r["text"]} for r in read_jsonl(section / f"{split}.jsonl")]
        write_jsonl(examples / f"{split}.jsonl", texts)
    write_jsonl(Path("data/tasks/text/test_labels.jsonl"), read_jsonl(examples / "test.jsonl"))
    task = {"task": {"name": "language_modelling"}, "kind": "language_modelling", "labels": []}
    metrics = {"metric": "bits_per_byte", "other_metric": "word_perplexity"}
    write_json(examples / "task.json", task | metrics)


def test_the_bits_of_text_before_and_after_training_on_such(params) -> None:
    add_classification()
    add_text()
    decoder = changed(params.pretrain["decoder_causal"], d_model=32, d_ff=64, num_steps=20, lr=1e-2)
    runs = {"decoder": decoder, "encoder": changed(params.pretrain["encoder_mlm"], num_steps=4)}
    pretrained(params, runs)
    full = params.finetune.methods["full"]
    training = full.training.model_copy(update={"num_epochs": 4, "lr": 5e-3})
    methods = {
        "as_pretrained": Method(method={"name": "none"}),
        "full": full.model_copy(update={"training": training}),
    }
    tuning = params.finetune.model_copy(update={"methods": methods, "max_tokens": 16})
    entries = {
        "text": params.tasks["tag"].model_copy(update={"task": {"name": "language_modelling"}})
    }
    update = {"pretrain": {"decoder": decoder}, "finetune": tuning, "tasks": entries}
    study = params.model_copy(update=update | {"baselines": {"ngram": {"name": "ngram"}}})
    finetune.main(alone(study, "decoder"), "text")
    fit_baseline.main(study, "text")
    evaluate.main(study, "text")

    scored = records.read(Path("data/evaluated/text/trials.csv"), records.ScoredTrial)
    found = {method: [t.value for t in scored if t.method == method] for method in methods}
    assert len(set(found["as_pretrained"])) == 1  # no seed plays a part
    assert 1 < max(found["full"]) < 0.95 * found["as_pretrained"][0] < 12
    [ngram] = [trial for trial in scored if trial.run == "ngram"]
    assert 2 < ngram.value < 7 and all(trial.other_value > 1 for trial in scored)
    best = {(t.finetune_seed, t.best_epoch) for t in scored if t.method == "full"}
    epochs = records.read(Path("data/evaluated/text/history.csv"), records.EpochRecord)
    for seed, epoch in best:  # the epoch of the fewest bits
        curve = {e.epoch: e.validation_metric for e in epochs if e.finetune_seed == seed}
        assert min(curve, key=lambda each: curve[each]) == epoch

    both = study.model_copy(update={"pretrain": runs})
    (skipped,) = finetune.skipped_methods(with_full_alone(both), "encoder", "text")
    assert "supports decoder only" in skipped.reason
    study.finetune.methods["linear_probe"] = params.finetune.methods["linear_probe"]
    (skipped,) = finetune.skipped_methods(study, "decoder", "text")
    assert skipped.method == "linear_probe" and "requires a task head" in skipped.reason


def with_full_alone(params: Params) -> Params:
    methods = {"full": params.finetune.methods["full"]}
    finetuning = params.finetune.model_copy(update={"methods": methods})
    return params.model_copy(update={"finetune": finetuning})


def test_texts_longer_than_a_public_checkpoint_takes_are_refused(params, tmp_path) -> None:
    """What is known when it was downloaded."""
    add_classification()
    pinned = public(params, checkpoint("bert"), revision_of(checkpoint("bert")))
    pretrain.main(pinned, "public")
    longer = params.finetune.model_copy(update={"max_tokens": 65})
    with pytest.raises(ValueError, match=r"finetune\.max_tokens: 65 is more than .*64"):
        finetune.main(alone(pinned.model_copy(update={"finetune": longer}), "public"), "tag")
