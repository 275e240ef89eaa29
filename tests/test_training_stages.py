"""The stages that train, one after the other, on a little text."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from stages import encode_corpus, evaluate, finetune, pretrain, train_tokenizer
from stages.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.evaluation import trials
from stages.params import Params, load
from stages.training.budget import plans
from tests.small import documents
from tests.small_hub import checkpoint, revision_of
from tests.test_params import edited

SMOKE_EDITS = {"threads: 2": "threads: 1", "vocab_size: 2048": "vocab_size: 600"}


@pytest.fixture
def params(tmp_path, monkeypatch) -> Params:
    """The smoke study on topics of the language reference; tags are of words in capitals."""
    path = edited(tmp_path, "num_steps: 40", "num_steps: 6")
    text = path.read_text()
    for old, new in SMOKE_EDITS.items():
        text = text.replace(old, new, 1)
    path.write_text(text)
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
    task = {"task": {"name": "tagging"}, "labels": ["B-CODE", "O"], "metric": "entity_f1"}
    write_json(examples / "task.json", task)
    params = load(path)
    write_plans(params)
    return params


def write_plans(params: Params) -> None:
    """As check_params does."""
    for key, plan in plans(params).items():
        write_json(Path(f"data/plans/{key}.json"), asdict(plan))


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
    history = Path("data/pretrained/encoder_mlm/history.csv").read_text().splitlines()
    assert len(history) == 1 + 6

    finetune.main(params, "encoder_mlm", "tag")
    folder = Path("data/finetuned/tag/encoder_mlm")
    rows = trials.read(folder / "trials.csv", trials.Trial)
    assert [(row.method, row.finetune_seed) for row in rows] == [
        ("full", 1),
        ("full", 2),
        ("linear_probe", 1),
        ("linear_probe", 2),
    ]
    full, _, probe, _ = rows
    assert probe.num_trained_params < full.num_trained_params
    assert probe.finetune_flops < full.finetune_flops
    predictions = trials.read(folder / "predictions.csv.gz", trials.Prediction)
    test = Path("data/tasks/tag/examples/test.jsonl").read_text().splitlines()
    assert len(predictions) == len(rows) * len(test)
    words = {row["id"]: row["words"] for row in map(json.loads, test)}
    assert all(len(p.prediction.split()) == len(words[p.id]) for p in predictions)
    kept = sorted(path.name for path in (folder / "weights").iterdir())
    assert kept == ["full-50-1.safetensors", "linear_probe-50-1.safetensors"]


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
    task = {"task": {"name": "classification"}, "labels": ["no", "yes"], "metric": "macro_f1"}
    write_json(examples / "task.json", task | {"kind": "classification"})

    test = read_jsonl(tags / "test.jsonl")
    gold = [{"id": row["id"], "tags": ["O"] * len(row["words"])} for row in test]
    write_jsonl(Path("data/tasks/tag/test_labels.jsonl"), gold)
    write_json(tags / "task.json", read_json(tags / "task.json") | {"kind": "tagging"})
    for name in ("tag", "section"):
        trials.write(Path(f"data/baselines/{name}/trials.csv"), trials.Trial, [])
        path = Path(f"data/baselines/{name}/predictions.csv.gz")
        trials.write(path, trials.BaselinePrediction, [])


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
    assert account["pretrain_tokens"] is None and account["pretrain_flops"] is None
    assert len(Path("data/pretrained/public/history.csv").read_text().splitlines()) == 1

    shutil.rmtree(origin)  # all that fine-tuning needs stands in data/pretrained/public
    for task, metric in (("tag", "entity_f1"), ("section", "macro_f1")):
        finetune.main(pinned, "public", task)
        evaluate.main(pinned, task)
        scored = trials.read(Path(f"data/evaluated/{task}/trials.csv"), trials.Scored)
        assert len(scored) == 4 and {trial.metric for trial in scored} == {metric}
        full, probe = scored[0], scored[-1]
        assert (full.architecture, full.objective, full.corpus) == (
            architecture,
            "hub",
            str(origin),
        )
        assert (full.pretrain_tokens, full.d_model, full.num_layers) == (None, 32, 2)
        assert full.num_trained_params > full.num_params > probe.num_trained_params
        assert 0 < probe.finetune_flops < full.finetune_flops


def test_texts_longer_than_a_public_checkpoint_takes_are_refused(params, tmp_path) -> None:
    """What is known when it was downloaded."""
    add_classification()
    pinned = public(params, checkpoint("bert"), revision_of(checkpoint("bert")))
    pretrain.main(pinned, "public")
    longer = params.finetune.model_copy(update={"max_tokens": 65})
    with pytest.raises(ValueError, match=r"finetune\.max_tokens: 65 is more than .*64"):
        finetune.main(pinned.model_copy(update={"finetune": longer}), "public", "tag")
