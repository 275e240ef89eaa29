"""The stages that train, one after the other, on a little text."""

import csv
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import average_precision_score

from stages import encode_corpus, evaluate, finetune, pretrain, train_tokenizer
from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl, write_json, write_jsonl
from stages.core.keys import CheckpointKey
from stages.core.params import Method, Model, Params, Pretraining, PublishedTokenizer
from stages.core.study_file import load
from stages.evaluation import records
from stages.evaluation.calibration import at_temperature
from stages.evaluation.doubtful_labels import DoubtfulLabel
from stages.models._backbone import MODELS, Backbone
from stages.objectives._objective import OBJECTIVES, Objective
from stages.tasks._task import SPLITS, TASKS, Predicted
from stages.text.batch import Batch
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.training.checkpoint import WEIGHTS
from stages.training.device import resolve
from stages.training.loop import mean_loss
from stages.training.pretraining import PretrainingData
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
) -> None:
    """Writes a prepared task and an empty table of its baselines."""
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
    records.write(baselines / "doubtful_labels.csv", DoubtfulLabel, [])


def study_of(params: Params, runs: Mapping[str, Model], *tasks: str, **changes: Any) -> Params:
    """Returns the study with these runs and tasks. ``changes`` are settings of ``finetune``."""
    entry = params.tasks["tag"]
    named = {t: entry.model_copy(update={"task": about(t)["task"]}) for t in tasks}
    update = {
        "models": dict(runs),
        "pretrain": Pretraining(matched="none", reference=next(iter(runs))),
    }
    update |= {"finetune": params.finetune.model_copy(update=changes)}
    return params.model_copy(update=update | ({"tasks": named} if tasks else {}))


def about(task: str) -> Json:
    return read_json(paths.examples(task) / "task.json")


def pretrained(params: Params, *only: str) -> dict[str, Json]:
    """Pretrains the runs of a study, or some of them; returns their metrics."""
    write_inputs(params)
    for run in only or params.models:
        run_stage(params, pretrain, run)
    return {run: read_json(folder_of(run) / "metrics.json") for run in only or params.models}


def folder_of(run: str) -> Path:
    return paths.pretrained(CheckpointKey(run, 1))


def history_of(run: str) -> list[dict[str, str]]:
    with paths.progress(CheckpointKey(run, 1), "history").open() as file:
        return [*csv.DictReader(file)]


def scores(task: str) -> list[records.ScoredTrial]:
    return records.read(paths.EVALUATED / task / "trials.csv", records.ScoredTrial)


def changed(run: Model, **settings: Any) -> Model:
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

    study = study_of(params, {"encoder_mlm": params.models["encoder_mlm"]}, "tag")
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
    runs = {"encoder_scratch": params.models["encoder_scratch"]}
    study = study_of(params, runs, "rare", label_budgets=["all"], seeds=[1])
    pretrained(study)
    for stage in (finetune, evaluate):
        run_stage(study, stage, "rare")
    folder = Path("data/finetuned/rare/encoder_scratch")
    predictions = records.read(folder / "predictions.csv.gz", records.PredictionRecord)
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


def backbone_of(run: Model) -> Backbone:
    return MODELS.build(run.architecture, VOCAB_SIZE, where="model")


def objective_of(run: Model) -> Objective:
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
        ("encoder_decoder_span", "denoising"),
    ],
)
def test_pretraining_continues_from_the_parent_of_the_same_seed(
    params: Params, name: str, objective: str
) -> None:
    """The first loss is that of the parent's weights on the first batch of the child. A child that
    does not train keeps the weights. Costs add up from parent to child."""
    parent = changed(params.models[name], d_model=32, d_ff=64, num_steps=4, seeds=[1, 2])
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
        model.load(paths.pretrained(CheckpointKey("parent", seed)))
        losses.append(mean_loss(headless(model), objective_of(child), batches, device))
    with paths.progress(CheckpointKey("child", 2), "history").open() as file:
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
    runs = {"encoder_mlm": changed(params.models["encoder_mlm"], lr=1e30)}
    with pytest.raises(ValueError, match=r"^models\.encoder_mlm\.training\.lr: training diverged"):
        pretrained(study_of(params, runs))
    assert not paths.PRETRAINED.exists() and not Path(".scratch/checkpoints").exists()


def test_pretraining_keeps_the_best_rate(params: Params) -> None:
    """History, weights and tokens are those of the best rate alone, costs those of all rates."""
    rates = [1e-4, 1e-2, 1e30]
    tuned = changed(params.models["decoder_causal"], d_model=32, d_ff=64, num_steps=8, lr=rates)
    alone = changed(tuned, lr=1e-2)
    study = study_of(
        params, {"tuned": tuned, "alone": alone, "child": changed(alone, parent="tuned")}
    )
    metrics = pretrained(study)
    account, single = metrics["tuned"], metrics["alone"]
    assert account["lr"] == single["lr"] == 1e-2
    assert account["rates"]["0.0001"] > account["rates"]["0.01"] == single["validation_loss"]
    assert account["rates"]["1e+30"] is None
    one, other = (load_file(folder_of(run) / WEIGHTS) for run in ("tuned", "alone"))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert history_of("tuned") == history_of("alone")
    assert account["pretrain_tokens"] == single["pretrain_tokens"] == 8 * 16 * MAX_TOKENS
    assert account["flops_of_kept_rate"] == single["pretrain_flops"]
    assert 2 < account["pretrain_flops"] / single["pretrain_flops"] < 3  # one diverged
    lineage = account["pretrain_flops"] + metrics["child"]["pretrain_flops"]
    assert metrics["child"]["lineage_flops"] == lineage


def reasons(study: Params, run: str, task: str) -> dict[str, str]:
    """Returns why each skipped method does not fit the run or the task."""
    skipped = finetune.skipped_methods(finetune_plan(study, task), run, task)
    return {row.method: row.reason for row in skipped}


def public(params: Params, path: Path, revision: str, *tasks: str, **changes: Any) -> Params:
    """Returns the study with one run, a public checkpoint."""
    model = {"name": "hub", "path": str(path), "revision": revision}
    changes_of_run = {"architecture": model, "tokenizer": "none"}
    run = params.models["encoder_scratch"].model_copy(update=changes_of_run)
    return study_of(params, {"public": run}, *tasks, **changes)


def test_published_checkpoint_and_its_random_twin_are_fine_tuned_from_their_copies(
    params: Params, tmp_path: Path
) -> None:
    """The twin has the published configuration, and other weights in each trial."""
    origin = Path(shutil.copytree(checkpoint("bert"), tmp_path / "origin"))
    with pytest.raises(ValueError, match=r"^models\.public\.architecture\.revision: "):
        pretrained(public(params, origin, "0" * 12))
    published = public(params, origin, revision_of(origin)).models["public"]
    random = published.architecture | {"weights": "random"}
    runs = {"public": published, "twin": published.model_copy(update={"architecture": random})}
    study = study_of(params, runs, "tag")
    account, of_twin = pretrained(study).values()
    assert account["num_params"] == of_twin["num_params"] > account["num_embedding_params"] > 0
    unknown = {key for key, value in account.items() if value is None}
    amounts = ("tokens", "flops", "bytes")
    assert unknown == {f"{of}_{amount}" for of in ("pretrain", "lineage") for amount in amounts}
    assert of_twin["lineage_tokens"] == of_twin["lineage_flops"] == 0

    shutil.rmtree(origin)  # data/pretrained has all that fine-tuning needs
    for stage in (finetune, evaluate):
        run_stage(study, stage, "tag")
    full, _, _, probe, twin, *_ = scores("tag")
    assert (full.model, full.architecture, full.objective) == ("public", "encoder", "hub")
    assert (full.corpus, full.pretrain_tokens) == (str(origin), None)
    assert full.num_trained_params == full.num_params > probe.num_trained_params
    assert 0 < probe.finetune_flops < full.finetune_flops
    assert (twin.model, twin.method, twin.pretrain_tokens) == ("twin", "full", 0)
    assert (twin.num_params, twin.finetune_flops) == (full.num_params, full.finetune_flops)
    drawn = [
        TrialSetup(CheckpointKey("twin", 1), "tag", max_tokens=64).backbone(seed=s) for s in (1, 2)
    ]
    first, second = (next(iter(backbone.parameters())) for backbone in drawn)
    assert not torch.equal(first, second)


def test_public_checkpoint_is_pretrained_further(params: Params) -> None:
    """Further pretraining learns the corpus and keeps the names of all weights, and another run can
    begin with the result; one whose rate is nearly 0 does not change it."""
    folder = checkpoint("t5")
    published = public(params, folder, revision_of(folder), "tag")
    entry = published.models["public"]
    objective = {"name": "span_corruption"}
    run = changed(entry, corpus="prose", tokenizer="t5", parent="public", objective=objective)
    longer = {"max_tokens": 48, "num_steps": 60, "lr": 5e-3}
    run = run.model_copy(update={"training": run.training.model_copy(update=longer)})
    again = changed(run, parent="further", num_steps=1, lr=1e-12)
    pinned = {key: entry.architecture[key] for key in ("path", "revision")}
    tokenizer = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    study = study_of(params, {"public": entry, "further": run, "again": again}, "tag")
    study = study.model_copy(update={"tokenizers": {"t5": tokenizer}})
    assert not [fault for fault in find_faults(study) if fault.startswith("models.")]
    write_texts("all")
    run_stage(study, train_tokenizer, "t5")
    run_stage(study, encode_corpus, "prose", "t5")
    metrics = pretrained(study)

    losses = [float(r["validation_loss"]) for r in history_of("further") if r["validation_loss"]]
    record, account = read_json(folder_of("further") / "run.json"), metrics["further"]
    assert (record["objective"], record["corpus"]) == ("span_corruption", "prose")
    assert losses[-1] == account["validation_loss"]
    assert losses[-1] < 0.9 * float(history_of("further")[0]["loss"])
    assert account["pretrain_tokens"] == 60 * 16 * 48 and account["pretrain_flops"] > 0
    assert account["lineage_tokens"] is account["lineage_flops"] is None
    assert account["num_params"] == metrics["public"]["num_params"]
    one, other = (load_file(folder_of(key) / WEIGHTS) for key in ("public", "further"))
    assert one.keys() == other.keys() and not all(torch.equal(one[k], other[k]) for k in one)
    unchanged = load_file(folder_of("again") / WEIGHTS)
    assert all(torch.allclose(unchanged[key], other[key], atol=1e-8) for key in other)


def test_in_context_learning_leaves_predictions_and_no_weights(params: Params) -> None:
    decoder = changed(params.models["decoder_causal"], d_model=32, d_ff=64, num_steps=4)
    runs = {"decoder": decoder, "encoder": changed(params.models["encoder_mlm"], num_steps=4)}

    def prompted(**runs: Model) -> Params:
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
