"""The stages that train, one after the other, on a little text."""

import csv
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import average_precision_score

from stages import encode_corpus, evaluate, finetune, fit_baseline, pretrain, train_tokenizer
from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl, write_json, write_jsonl
from stages.core.keys import RunKey
from stages.core.params import Method, Params, Pretraining, PublishedTokenizer, Run
from stages.core.seeding import torch_stream
from stages.core.study_file import load
from stages.evaluation import records
from stages.evaluation.calibration import CoverageRecord, at_temperature
from stages.models._backbone import MODELS, Backbone
from stages.objectives._objective import OBJECTIVES, Objective
from stages.tasks._task import SPLITS, TASKS, Predicted
from stages.text.batch import Batch
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import Tokenizer
from stages.training.checkpoint import WEIGHTS
from stages.training.device import resolve
from stages.training.loop import mean_loss
from stages.training.pretraining import PretrainingData, validation_batches
from stages.trials import kept
from stages.trials.prediction import predict
from stages.trials.setup import TrialSetup
from stages.trials.validation import best_threshold
from tests.small import VOCAB_SIZE, documents, headless, small_tokenizer, with_encoder_decoder
from tests.small_hub import checkpoint, revision_of
from tests.small_study import finetune_plan, run_stage, write_corpus, write_inputs
from tests.smoke import with_values

pytestmark = pytest.mark.slow

MAX_TOKENS = 32
SMALLER = {
    "compute.threads": 1,
    "compute.precision": "float32",
    "tokenizers.unigram.vocab_size": VOCAB_SIZE,
    "finetune.methods.linear_probe.method": {"name": "linear_probe", "C": [0.1, 1.0]},
    "pretrain.matched": "none",
    **{
        f"models.{run}.training.num_steps": 6
        for run in ("encoder_mlm", "encoder_scratch", "decoder_causal")
    },
}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """The smoke study on topics of the language reference, with its corpus encoded. The task "tag"
    finds words in title case, the task "section" has labels without a meaning."""
    path = with_values(tmp_path, SMALLER)
    monkeypatch.chdir(tmp_path)
    write_corpus()
    for nothing in ("encoded/none/none", "encoded/none/unigram", "tokenizers/none"):
        Path("data", nothing).parent.mkdir(exist_ok=True)
        Path("data", nothing).write_text("nothing\n")
    lines = [line.split()[:12] for document in documents()[:12] for line in document][:90]
    rows = [
        {"words": words, "tags": ["B-CODE" if w.istitle() else "O" for w in words]}
        for words in lines
    ]
    write_task("tag", "tagging", rows, (60, 15, 15), ("entity_f1", "word_accuracy"))
    rows = [
        {"text": " ".join(words), "label": "yes" if i % 3 else "no"}
        for i, words in enumerate(lines[:60])
    ]
    write_task("section", "classification", rows, (50, 5, 5), ("macro_f1", "accuracy"))
    return with_encoder_decoder(load(path))


def write_texts(max_tokens: int | str) -> None:
    """Writes the corpus before it is encoded."""
    corpus = Path("data/corpora/prose")
    corpus.mkdir(parents=True)
    rows = [{"id": str(i), "sentences": lines} for i, lines in enumerate(documents())]
    for split, part in {"train": rows[8:], "validation": rows[:8]}.items():
        write_jsonl(corpus / f"{split}.jsonl", part)
    write_json(corpus / "corpus.json", {"max_tokens": max_tokens})


def write_task(
    key: str,
    kind: str,
    rows: list[Json],
    numbers: tuple[int, int, int],
    metrics: tuple[str, str],
    **settings: Any,
) -> list[Json]:
    """Writes a prepared task and an empty table of its baselines; returns its test rows without
    their labels."""
    target = TASKS[kind].target
    folder, rows = paths.examples(key), [{"id": str(i)} | row for i, row in enumerate(rows)]
    folder.mkdir(parents=True)
    train, validation, test = numbers
    write_jsonl(folder / "train.jsonl", rows[:train])
    write_jsonl(folder / "validation.jsonl", rows[train : train + validation])
    labelled = rows[train + validation :][:test]
    hidden = [{k: v for k, v in row.items() if k != target or k == "text"} for row in labelled]
    write_jsonl(folder / "test.jsonl", hidden)
    labels = [{"id": row["id"], target: row[target]} for row in labelled]
    write_jsonl(paths.test_labels(key), labels)
    names = sorted({row[target] for row in rows}) if kind == "classification" else []
    about = {
        "task": {"name": kind} | settings,
        "kind": kind,
        "labels": ["B-CODE", "O"] if kind == "tagging" else names,
        "split_seeds": [],
        "num_examples": dict(zip(SPLITS, numbers, strict=True)),
        "metric": metrics[0],
        "other_metric": metrics[1],
    }
    write_json(folder / "task.json", about)
    baselines = paths.BASELINES / key
    records.write(baselines / "trials.csv", records.TrialRecord, [])
    predictions = baselines / "predictions.csv.gz"
    records.write(predictions, records.PredictionRecord, [])
    return hidden


def study_of(params: Params, runs: Mapping[str, Run], *tasks: str, **changes: Any) -> Params:
    """Returns the study with these runs and tasks. ``changes`` are settings of ``finetune``."""
    entry = params.tasks["tag"]
    named = {t: entry.model_copy(update={"task": about(t)["task"]}) for t in tasks}
    update = {
        "runs": dict(runs),
        "pretrain": Pretraining(matched="none", reference=next(iter(runs))),
    }
    update |= {"finetune": params.finetune.model_copy(update=changes)}
    return params.model_copy(update=update | ({"tasks": named} if tasks else {}))


def about(task: str) -> Json:
    return read_json(paths.examples(task) / "task.json")


def pretrained(params: Params, *only: str) -> dict[str, Json]:
    """Pretrains the runs of a study, or some of them; returns their metrics."""
    write_inputs(params)
    for run in only or params.runs:
        run_stage(params, pretrain, run)
    return {run: read_json(folder_of(run) / "metrics.json") for run in only or params.runs}


def folder_of(run: str) -> Path:
    return paths.pretrained(RunKey(run, 1))


def history_of(run: str) -> list[dict[str, str]]:
    with paths.progress(RunKey(run, 1), "history").open() as file:
        return [*csv.DictReader(file)]


def scores(task: str) -> list[records.ScoredTrial]:
    return records.read(paths.EVALUATED / task / "trials.csv", records.ScoredTrial)


def changed(run: Run, **settings: Any) -> Run:
    """Returns the run with other settings, those of its model and training by their own names."""
    model = {k: settings.pop(k) for k in ("d_model", "d_ff", "num_layers") if k in settings}
    training = {k: settings.pop(k) for k in ("num_steps", "lr") if k in settings}
    training |= {"max_tokens": MAX_TOKENS, "num_validations": 1}
    settings |= {
        "architecture": run.architecture | model,
        "training": run.training.model_copy(update=training),
    }
    return run.model_copy(update=settings)


def test_stages_from_text_to_predictions(params: Params) -> None:
    write_texts("all")
    run_stage(params, train_tokenizer, "unigram")
    run_stage(params, encode_corpus, "prose", "unigram")
    counts = read_json(Path("data/encoded/prose/unigram/encoded.json"))
    assert counts["train_documents"] == len(documents()) - 8

    metrics = pretrained(params, "encoder_mlm", "encoder_scratch")
    trained, scratch = metrics.values()
    assert trained["pretrain_tokens"] == 6 * 16 * 64
    assert scratch["pretrain_tokens"] == scratch["pretrain_flops"] == 0
    assert trained["num_params"] == scratch["num_params"]
    history = history_of("encoder_mlm")
    assert len(history) == 6
    assert int(history[-1]["tokens"]) == trained["pretrain_tokens"]
    assert int(history[-1]["flops"]) == trained["pretrain_flops"] == 6 * int(history[0]["flops"])
    assert float(history[-1]["validation_loss"]) == trained["validation_loss"]

    study = study_of(params, {"encoder_mlm": params.runs["encoder_mlm"]}, "tag")
    run_stage(study, finetune, "tag")
    folder = Path("data/finetuned/tag/encoder_mlm")
    trials = records.read(folder / "trials.csv", records.TrialRecord)
    order = [("full", 1), ("full", 2), ("linear_probe", 1), ("linear_probe", 2)]
    assert [(trial.method, trial.finetune_seed) for trial in trials] == order
    full, _, probe, _ = trials
    assert probe.num_trained_params < full.num_trained_params
    assert probe.finetune_flops < full.finetune_flops
    predictions = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
    words = {row["id"]: row["words"] for row in read_jsonl(paths.examples("tag") / "test.jsonl")}
    assert len(predictions) == len(trials) * len(words)
    assert all(len(p.prediction.split()) == len(words[p.id]) for p in predictions)
    files = sorted(path.name for path in (folder / "weights").iterdir())
    assert files == ["full-50-1-1.safetensors", "linear_probe-50-1-1.safetensors"]
    inputs = records.read(folder / "inputs.csv", records.InputRecord)
    assert [(row.split, row.rows, row.rows_cut) for row in inputs] == [
        ("train", 50, 0),
        ("validation", 15, 0),
        ("test", 15, 0),
    ]
    assert {row.read_at for row in inputs} == {"first subword of a word"}


def test_rare_class_with_weights_and_a_threshold(params: Params) -> None:
    """The threshold of a trial is the best on validation. A kept trial gives
    the test probabilities of the scored one, before and after its temperature."""
    lines = [line for document in documents() for line in document if len(line) > 30]
    rows = [{"text": line, "label": "rare" if "class" in line else "usual"} for line in lines]
    assert 0.02 < sum(row["label"] == "rare" for row in rows[:400]) / 400 < 0.2
    settings = {"class_weights": "balanced", "threshold": "validation"}
    settings |= {"pooling": "mean", "dropout": 0.0}
    metrics = ("macro_f1", "accuracy")
    write_task("rare", "classification", rows[:400], (200, 100, 100), metrics, **settings)
    runs = {"encoder_scratch": params.runs["encoder_scratch"]}
    study = study_of(params, runs, "rare", label_budgets=["all"], seeds=[1])
    pretrained(study)
    for stage in (finetune, evaluate):
        run_stage(study, stage, "rare")
    folder = Path("data/finetuned/rare/encoder_scratch")
    predictions = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
    on_validation = records.read(folder / "validation.csv.gz", records.ValidationRecord)
    covered = records.read(paths.EVALUATED / "rare/coverage.csv", CoverageRecord)
    device = resolve(params.compute, threads=1)
    is_rare = [row["label"] == "rare" for row in read_jsonl(paths.test_labels("rare"))]
    for trial in scores("rare"):
        path = folder / f"weights/{trial.method}-all-1-1.safetensors"
        about = kept.read(path)
        setup = kept.setup_of(about, path)
        model, answers = kept.rebuilt(about, setup, path), dict[str, list[Predicted]]()
        for split in ("validation", "test"):
            some = read_jsonl(paths.examples("rare") / f"{split}.jsonl")
            answers[split] = predict(setup.task, model, some, setup.task.encode(some), device)
        gold = [row["label"] for row in read_jsonl(paths.examples("rare") / "validation.jsonl")]
        best = best_threshold("macro_f1", gold, answers["validation"])
        assert about.threshold == pytest.approx(best, abs=1e-4)
        right = sum(row.right for row in on_validation if row.method == trial.method)
        chosen = [answer.at(about.threshold) for answer in answers["validation"]]
        assert right == sum(a == b for a, b in zip(gold, chosen, strict=True))
        of_trial = [p for p in predictions if p.method == trial.method]
        for written, answer in zip(of_trial, answers["test"], strict=True):
            assert answer.scores is not None and trial.temperature is not None
            assert written.prediction == answer.at(about.threshold)
            assert written.probability == pytest.approx(answer.scores[written.prediction], abs=1e-4)
            scaled = at_temperature(answer.scores, trial.temperature)
            assert written.calibrated == pytest.approx(scaled[written.prediction], abs=1e-3)
        of_rare = [answer.scores["rare"] for answer in answers["test"] if answer.scores]
        expected = average_precision_score(is_rare, of_rare)
        assert trial.rare_class == "rare"
        assert trial.average_precision == pytest.approx(expected, abs=1e-3)
        for row in (row for row in covered if row.method == trial.method):
            least = math.inf if row.min_confidence is None else row.min_confidence
            answered = [p for p in of_trial if p.probability is not None and p.probability >= least]
            assert (row.num_answered, row.num_test) == (len(answered), 100)
            assert row.calibration_error == pytest.approx(trial.calibration_error)


def backbone_of(run: Run) -> Backbone:
    return MODELS.build(run.architecture, VOCAB_SIZE, where="model")


def objective_of(run: Run) -> Objective:
    return OBJECTIVES.build(run.objective, small_tokenizer(), MAX_TOKENS, where="objective")


def first_step(objective: Objective, *, seed: int) -> list[Batch]:
    corpus = EncodedCorpus.load(Path("data/encoded/prose/unigram/train"))
    packing = Packing(corpus, MAX_TOKENS, seed=seed)
    rows: dict[str, Any] = {"batch_rows": 16, "micro_batch_rows": 16}
    return PretrainingData(packing, objective, **rows, seed=seed).micro_batches(0)


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("encoder_mlm", "mlm"),
        ("decoder_causal", "prefix_lm"),
        ("encoder_decoder_span", "denoising"),
    ],
)
def test_pretraining_continues_from_the_parent_of_the_same_seed(
    params: Params, name: str, objective: str
) -> None:
    """The first loss is that of the parent's weights on the first batch of the child. A child that
    does not train keeps the weights. Costs add up from parent to child."""
    parent = changed(params.runs[name], d_model=32, d_ff=64, num_steps=4, seeds=[1, 2])
    child = changed(parent, parent="parent", objective={"name": objective}, num_steps=2)
    unchanged = changed(child, parent="child", objective={"name": "none"}, corpus="none")
    metrics = pretrained(
        study_of(params, {"parent": parent, "child": child, "unchanged": unchanged})
    )

    device = resolve(params.compute, threads=1)
    batches = first_step(objective_of(child), seed=2)
    losses = []
    for seed in (2, 1):
        model = backbone_of(parent)
        model.load(paths.pretrained(RunKey("parent", seed)))
        losses.append(mean_loss(headless(model), objective_of(child), batches, device))
    with paths.progress(RunKey("child", 2), "history").open() as file:
        first = float(next(csv.DictReader(file))["loss"])
    assert first == pytest.approx(losses[0], rel=1e-6)
    assert first != pytest.approx(losses[1], rel=1e-4)

    weights = [load_file(folder_of(run) / WEIGHTS) for run in ("child", "unchanged")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[1])
    assert [metrics[run]["pretrain_tokens"] for run in metrics] == [2048, 1024, 0]
    assert [metrics[run]["lineage_tokens"] for run in metrics] == [2048, 3072, 3072]
    total = sum(account["pretrain_flops"] for account in metrics.values())
    assert metrics["unchanged"]["lineage_flops"] == total


def test_pretraining_that_diverges_is_refused_and_leaves_nothing(params: Params) -> None:
    runs = {"encoder_mlm": changed(params.runs["encoder_mlm"], lr=1e30)}
    with pytest.raises(ValueError, match=r"^models\.encoder_mlm\.training\.lr: training diverged"):
        pretrained(study_of(params, runs))
    assert not paths.PRETRAINED.exists() and not Path(".scratch/checkpoints").exists()


def test_pretraining_keeps_the_best_rate(params: Params) -> None:
    """History, weights and tokens are those of the best rate alone, costs those of all rates."""
    rates = [1e-4, 1e-2, 1e30]
    tuned = changed(params.runs["decoder_causal"], d_model=32, d_ff=64, num_steps=8, lr=rates)
    alone = changed(tuned, lr=1e-2)
    study = study_of(
        params, {"tuned": tuned, "alone": alone, "child": changed(alone, parent="tuned")}
    )
    metrics = pretrained(study)
    account, single = metrics["tuned"], metrics["alone"]
    assert account["lr"] == single["lr"] == 1e-2
    assert list(account["rates"]) == ["0.0001", "0.01", "1e+30"]
    assert account["rates"]["0.0001"] > account["rates"]["0.01"] == single["validation_loss"]
    assert account["rates"]["1e+30"] is None
    one, other = (load_file(folder_of(run) / WEIGHTS) for run in ("tuned", "alone"))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert history_of("tuned") == history_of("alone")
    assert account["pretrain_tokens"] == single["pretrain_tokens"] == 8 * 16 * MAX_TOKENS
    assert account["flops_of_kept_rate"] == single["pretrain_flops"]
    assert 2 < account["pretrain_flops"] / single["pretrain_flops"] < 3  # one diverged
    assert account["lineage_flops"] == account["pretrain_flops"]
    lineage = account["pretrain_flops"] + metrics["child"]["pretrain_flops"]
    assert metrics["child"]["lineage_flops"] == lineage
    with paths.progress(RunKey("tuned", 1), "rates").open() as file:
        rows = [row for row in csv.DictReader(file) if row["kept"] == "1"]
    assert [(row["rate"], row["step"]) for row in rows] == [("0.01", str(n)) for n in range(1, 9)]
    assert len(paths.progress(RunKey("alone", 1), "rates").read_text().splitlines()) == 1


def reasons(study: Params, run: str, task: str) -> dict[str, str]:
    """Returns why each skipped method does not fit the run or the task."""
    skipped = finetune.skipped_methods(finetune_plan(study, task), run, task)
    return {row.method: row.reason for row in skipped}


def test_text_is_written_by_models_that_generate(params: Params) -> None:
    """A decoder that learnt from prefixes writes text, and so does an encoder-decoder. An encoder
    is refused, and so is a method that trains only a head."""
    lines = [line.split()[:6] for document in documents()[:12] for line in document]
    rows: list[Json] = [
        {"text": " ".join(words[:3]), "target": " ".join(words[3:])}
        for words in lines
        if len(words) == 6
    ]
    settings = {"max_target_tokens": 8, "num_beams": 2, "metric": "chrf"}
    test = write_task("write", "seq2seq", rows, (50, 6, 8), ("chrf", "bleu"), **settings)
    smaller = {"d_model": 32, "d_ff": 64, "num_steps": 2}
    decoder, both = params.runs["decoder_causal"], params.runs["encoder_decoder_span"]
    runs = {
        "prefix": changed(decoder, objective={"name": "prefix_lm"}, **smaller),
        "both": changed(both, **smaller),
        "encoder": changed(params.runs["encoder_mlm"], **smaller),
    }
    everything = study_of(params, runs, "write")
    pretrained(everything)
    prefixes = [read_json(folder_of(run) / "run.json")["has_prefix"] for run in runs]
    assert prefixes == [True, False, False]

    writers = {run: runs[run] for run in ("prefix", "both")}
    full = {"full": params.finetune.methods["full"]}
    study = study_of(params, writers, "write", methods=full)
    study = study.model_copy(update={"baselines": {"nearest": {"name": "nearest"}}})
    for stage in (fit_baseline, finetune, evaluate):
        run_stage(study, stage, "write")
    for run in writers:
        folder = Path("data/finetuned/write", run)
        predicted = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
        assert {row.id for row in predicted} == {row["id"] for row in test}
        for row in records.read(folder / "trials.csv", records.TrialRecord):
            assert row.num_trained_params == row.num_params and row.finetune_flops > 0
    assert {(row.metric, row.other_metric) for row in scores("write")} == {("chrf", "bleu")}
    assert {row.run for row in scores("write")} == {"prefix", "both", "nearest"}
    assert "needs a generative model" in reasons(everything, "encoder", "write")["full"]
    assert "not seq2seq" in reasons(everything, "both", "write")["linear_probe"]


def public(params: Params, path: Path, revision: str, *tasks: str, **changes: Any) -> Params:
    """Returns the study with one run, a public checkpoint."""
    model = {"name": "hub", "path": str(path), "revision": revision}
    changes_of_run = {"architecture": model, "tokenizer": "none"}
    run = params.runs["encoder_scratch"].model_copy(update=changes_of_run)
    return study_of(params, {"public": run}, *tasks, **changes)


@pytest.mark.parametrize(("family", "architecture"), [("bert", "encoder"), ("gpt2", "decoder")])
def test_published_checkpoint_and_its_random_twin_are_fine_tuned_from_their_copies(
    params: Params, tmp_path: Path, family: str, architecture: str
) -> None:
    """The twin has the published configuration, and other weights in each trial."""
    origin = Path(shutil.copytree(checkpoint(family), tmp_path / "origin"))
    fault = r"^models\.public\.architecture\.revision: the folder's content is"
    with pytest.raises(ValueError, match=fault):
        pretrained(public(params, origin, "0" * 12))
    assert not paths.PRETRAINED.exists()
    alone = public(params, origin, revision_of(origin))
    published = alone.runs["public"]
    random = published.architecture | {"weights": "random"}
    runs = {"public": published, "twin": published.model_copy(update={"architecture": random})}
    study = study_of(params, runs, "tag", "section")
    account, of_twin = pretrained(study).values()
    assert account["num_params"] == of_twin["num_params"] > account["num_embedding_params"] > 0
    unknown = {key for key, value in account.items() if value is None}
    amounts = ("tokens", "flops", "bytes")
    assert unknown == {f"{of}_{amount}" for of in ("pretrain", "lineage") for amount in amounts}
    assert of_twin["lineage_tokens"] == of_twin["lineage_flops"] == 0
    assert history_of("public") == history_of("twin") == []

    shutil.rmtree(origin)  # data/pretrained has all that fine-tuning needs
    for task, metric in (("tag", "entity_f1"), ("section", "macro_f1")):
        run_stage(study, finetune, task)
        run_stage(study, evaluate, task)
        trials = scores(task)
        assert len(trials) == 2 * 4 and {trial.metric for trial in trials} == {metric}
        full, probe = trials[0], trials[3]
        assert (full.run, full.architecture, full.objective) == ("public", architecture, "hub")
        assert full.corpus == str(origin)
        assert (full.pretrain_tokens, full.d_model, full.num_layers) == (None, 32, 2)
        assert full.num_trained_params == full.num_params > probe.num_trained_params
        assert 0 < probe.finetune_flops < full.finetune_flops
        twin = trials[4]
        assert (twin.run, twin.method, twin.pretrain_tokens) == ("twin", "full", 0)
        assert (twin.num_params, twin.finetune_flops) == (full.num_params, full.finetune_flops)
    drawn = [TrialSetup(RunKey("twin", 1), "tag", max_tokens=64).backbone(seed=s) for s in (1, 2)]
    first, second = (next(iter(backbone.parameters())) for backbone in drawn)
    assert not torch.equal(first, second)


FURTHER = {"sentence_bert": "mlm", "t5": "span_corruption"}


def further(params: Params, family: str) -> Params:
    """Returns the study with three runs: a public checkpoint, its further pretraining on prose with
    its own tokenizer, and a third run that begins with the second and does not change it, since its
    rate is nearly 0."""
    folder = checkpoint(family)
    published = public(params, folder, revision_of(folder), "tag")
    entry = published.runs["public"]
    run = changed(
        entry,
        corpus="prose",
        tokenizer=family,
        parent="public",
        objective={"name": FURTHER[family]},
        num_steps=60,
        lr=5e-3,
    )
    training = run.training.model_copy(update={"max_tokens": 48})
    run = run.model_copy(update={"training": training})
    again = changed(run, parent="further", num_steps=1, lr=1e-12)
    runs = {"public": entry, "further": run, "again": again}
    pinned = {key: entry.architecture[key] for key in ("path", "revision")}
    tokenizer = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    study = study_of(params, runs, "tag", methods={"full": params.finetune.methods["full"]})
    return study.model_copy(update={"tokenizers": {family: tokenizer}})


def public_checkpoint(run: Run) -> Backbone:
    """Returns the published model with which a run of further pretraining begins."""
    size = Tokenizer(Path(run.architecture["path"])).vocab_size
    backbone = MODELS.build(run.architecture, size, where="model")
    backbone.add_output_layers()
    backbone.initialise(generator=torch_stream(0, "weights"))
    return backbone


def published_loss(params: Params, run: Run) -> float:
    """Returns the loss of the published weights on the run's validation rows."""
    vocabulary = Tokenizer(Path(run.architecture["path"]))
    max_tokens = run.training.max_tokens
    objective = OBJECTIVES.build(run.objective, vocabulary, max_tokens, where="objective")
    corpus = EncodedCorpus.load(Path("data/encoded", run.corpus, run.tokenizer, "validation"))
    packing = Packing(corpus, max_tokens, seed=0)
    batches = validation_batches(packing, objective.for_validation(), batch_rows=16)
    device = resolve(params.compute, threads=1)
    return mean_loss(headless(public_checkpoint(run)), objective, batches, device)


@pytest.mark.parametrize("family", FURTHER)
def test_public_checkpoint_is_pretrained_further_and_fine_tuned(
    params: Params, family: str
) -> None:
    """Further pretraining learns the corpus and keeps the names of all weights, and another run can
    begin with the result."""
    study = further(params, family)
    assert not [fault for fault in find_faults(study) if fault.startswith("models.")]
    write_texts("all")
    run_stage(study, train_tokenizer, family)
    assert Path("data/tokenizers", family, "config.json").is_file()
    run_stage(study, encode_corpus, "prose", family)
    metrics = pretrained(study)

    losses = [float(r["validation_loss"]) for r in history_of("further") if r["validation_loss"]]
    record, account = read_json(folder_of("further") / "run.json"), metrics["further"]
    assert (record["objective"], record["corpus"]) == (FURTHER[family], "prose")
    assert losses[-1] == account["validation_loss"]
    run = study.runs["further"]
    chance = np.log(public_checkpoint(run).vocab_size)
    assert losses[-1] < 0.9 * min(chance, published_loss(params, run))
    assert account["pretrain_tokens"] == 60 * 16 * 48 and account["pretrain_flops"] > 0
    assert account["lineage_tokens"] is account["lineage_flops"] is None
    one, other = (load_file(folder_of(key) / WEIGHTS) for key in ("public", "further"))
    if family == "t5":  # the other one gets a head
        assert account["num_params"] == metrics["public"]["num_params"]
        assert one.keys() == other.keys() and not all(torch.equal(one[k], other[k]) for k in one)
    again = load_file(folder_of("again") / WEIGHTS)
    assert all(torch.allclose(again[key], other[key], atol=1e-8) for key in other)

    alone = study_of(study, {"further": run.model_copy(update={"parent": "none"})})
    run_stage(alone, finetune, "tag")
    trials = records.read(Path("data/finetuned/tag/further/trials.csv"), records.TrialRecord)
    assert {(row.objective, row.corpus) for row in trials} == {(FURTHER[family], "prose")}


def test_in_context_learning_leaves_predictions_and_no_weights(params: Params) -> None:
    decoder = changed(params.runs["decoder_causal"], d_model=32, d_ff=64, num_steps=4)
    runs = {"decoder": decoder, "encoder": changed(params.runs["encoder_mlm"], num_steps=4)}

    def prompted(**runs: Run) -> Params:
        method = Method(method={"name": "in_context", "num_shots": 2})
        return study_of(params, runs, "section", methods={"prompted": method})

    pretrained(prompted(**runs))
    study = prompted(decoder=decoder)
    run_stage(study, finetune, "section")
    run_stage(study, evaluate, "section")
    trials = scores("section")
    assert [trial.finetune_seed for trial in trials] == params.finetune.seeds
    for trial in trials:
        assert trial.num_trained_params == trial.finetune_flops == trial.best_epoch == 0
        assert trial.weights_bytes == (folder_of("decoder") / WEIGHTS).stat().st_size
    costs = records.read(Path("data/timings/finetune/section/decoder.csv"), records.CostRecord)
    assert costs[0].latency_s and costs[0].latency_s > 1e-4, "no prompt was remembered"
    folder = Path("data/finetuned/section/decoder")
    assert records.read(folder / "history.csv", records.EpochRecord) == []
    files = sorted((folder / "weights").iterdir())
    assert [path.name for path in files] == [
        f"prompted-50-1-{trial.finetune_seed}.safetensors" for trial in trials
    ]
    assert not any(load_file(path) for path in files)
    predictions = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
    assert {row.prediction for row in predictions} <= {"yes", "no"}
    reason = reasons(prompted(**runs), "encoder", "section")["prompted"]
    assert "needs a causal model" in reason

    entry = about("section")
    write_json(
        paths.examples("section") / "task.json",
        entry | {"task": entry["task"] | {"verbalisers": ["x=y"]}},
    )
    with pytest.raises(ValueError, match=r"tasks\.section\.task\.verbalisers: 'x'"):
        run_stage(study, finetune, "section")
