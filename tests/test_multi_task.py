"""One model that learns two tasks as text, from their rows to the scores of each."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from stages import encode_corpus, evaluate, prepare_corpus
from stages.commands import predict
from stages.core.artifacts import read_json, write_json, write_jsonl
from stages.core.params import Corpus, Method, Params
from stages.core.plans import CorpusPlan, EncodingPlan, EvaluationPlan
from stages.core.seeding import stream
from stages.core.study_file import load
from stages.evaluation import records
from stages.evaluation.doubtful_labels import DoubtfulLabel
from tests.small import small_tokenizer
from tests.small_study import fine_tune, pretrain_run, write_inputs
from tests.smoke import alone, plans

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
WORDS = ["class", "def", "for", "from", "if", "import", "return", "value"]


def rows_of(task: str, number: int, *, seed: int) -> list[dict[str, Any]]:
    """Returns texts whose label says whether both of two words are "class" or neither is, or whose
    tags say which words are."""
    rng = stream(seed, task)
    rows = list[dict[str, Any]]()
    for i in range(number):
        words = [str(word) for word in rng.choice(WORDS[:2], size=2)]
        ends, name = str(rng.choice(WORDS[2:])), f"{seed}{i}"  # no two rows are equal
        if task == "first":
            label = "some_class" if words[0] == "class" else "none"
            text = " ".join([words[0], words[0], ends, name])
            rows.append({"id": str(i), "text": text, "label": label})
        else:
            tags = ["B-X" if word == "class" else "O" for word in words]
            rows.append({"id": str(i), "words": [*words, name], "tags": [*tags, "O"]})
    return rows


def write_task(task: str, name: str, labels: list[str], metrics: list[str], target: str) -> None:
    examples = Path("data/tasks", task, "examples")
    examples.mkdir(parents=True)
    write_jsonl(examples / "train.jsonl", rows_of(task, 200, seed=1))
    write_jsonl(examples / "validation.jsonl", rows_of(task, 30, seed=2))
    test = rows_of(task, 40, seed=3)
    hidden = [{k: v for k, v in row.items() if k != target} for row in test]
    write_jsonl(examples / "test.jsonl", hidden)
    gold = [{"id": row["id"], target: row[target]} for row in test]
    write_jsonl(Path("data/tasks", task, "test_labels.jsonl"), gold)
    metric, other = metrics
    record = {"task": {"name": name}, "kind": name, "labels": labels}
    record |= {"metric": metric, "other_metric": other, "split_seeds": []}
    write_json(examples / "task.json", record)
    records.write(Path("data/baselines", task, "trials.csv"), records.TrialRecord, [])
    predictions = Path("data/baselines", task, "predictions.csv.gz")
    records.write(predictions, records.PredictionRecord, [])
    records.write(predictions.with_name("doubtful_labels.csv"), DoubtfulLabel, [])


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A run that has learnt a mixture of two tasks, used as it is and fine-tuned on each task as
    text."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_task(
            "first", "classification", ["none", "some_class"], ["accuracy", "macro_f1"], "label"
        )
        write_task("which", "tagging", ["B-X", "O"], ["word_accuracy", "entity_f1"], "tags")
        tokenizer, nothing = Path("data/tokenizers/unigram"), Path("data/encoded/none/unigram")
        for made in (tokenizer, nothing.parent):
            made.mkdir(parents=True)
        small_tokenizer().save_to(tokenizer)
        nothing.write_text("nothing\n")
        params = mixture()
        planned = plans(params)
        corpus, encoding = (
            planned["prepare_corpus", "mixture"],
            planned["encode_corpus", "mixture", "unigram"],
        )
        assert isinstance(corpus, CorpusPlan) and isinstance(encoding, EncodingPlan)
        prepare_corpus.main(corpus, "mixture")
        encode_corpus.main(encoding, "mixture", "unigram")
        write_inputs(params)
        for run in params.models:
            pretrain_run(params, run)
        for run, task in (("both", "first"), ("both", "which"), ("scratch", "first")):
            fine_tune(alone(params, run), task)
    return folder


def mixture() -> Params:
    smoke = load(ROOT / "studies/smoke.yaml")
    scratch = smoke.models["encoder_scratch"]
    model = {"name": "t5", "d_model": 64, "num_layers": 1, "num_heads": 2, "d_ff": 128}
    scratch = scratch.model_copy(update={"architecture": model})
    training = scratch.training.model_copy(
        update={
            "num_steps": 240,
            "optimizer": {"name": "muon"},
            "lr": 9e-3,
            "batch_rows": 8,
            "micro_batch_rows": 8,
        }
    )
    both = {"corpus": "mixture", "objective": {"name": "multi_task"}, "training": training}
    full = smoke.finetune.methods["full"]
    assert full.training is not None
    tuned = full.training.model_copy(update={"num_epochs": 1, "batch_examples": 16, "lr": 1e-3})
    methods = {
        "as_it_is": Method(method={"name": "none"}, text_to_text=True),
        "text": Method(method={"name": "full"}, text_to_text=True, training=tuned),
    }
    source = {"name": "tasks", "path": "data/tasks", "tasks": ["first", "which"]}
    tagging = smoke.tasks["tag"].model_copy(update={"task": {"name": "tagging"}})
    section = smoke.tasks["section"].model_copy(update={"task": {"name": "classification"}})
    tuning = {"methods": methods, "label_budgets": ["all"], "seeds": [1], "max_tokens": 32}
    return smoke.model_copy(
        update={
            "compute": smoke.compute.model_copy(update={"threads": 1}),
            "corpora": {
                "mixture": Corpus(source=source, max_tokens="all", decontaminate_against="none")
            },
            "tasks": {"first": section, "which": tagging},
            "models": {"both": scratch.model_copy(update=both), "scratch": scratch},
            "pretrain": smoke.pretrain.model_copy(update={"matched": "none", "reference": "both"}),
            "finetune": smoke.finetune.model_copy(update=tuning),
        }
    )


def test_multi_task_run_answers_both_tasks_as_text(study, monkeypatch) -> None:
    monkeypatch.chdir(study)
    trials = {}
    for task, runs in (("first", ["both", "scratch"]), ("which", ["both"])):
        evaluate.main(EvaluationPlan(models=runs, code={}), task)
        for trial in records.read(Path(f"data/evaluated/{task}/trials.csv"), records.ScoredTrial):
            trials[trial.model, task, trial.method] = trial
    assert trials["both", "first", "as_it_is"].value > 0.9  # by chance half
    assert trials["both", "which", "as_it_is"].value > 0.8  # all O is two thirds
    assert trials["scratch", "first", "as_it_is"].value < 0.1
    assert trials["both", "first", "text"].value > 0.9
    as_it_is = trials["both", "first", "as_it_is"]
    assert as_it_is.num_trained_params == as_it_is.finetune_flops == as_it_is.best_epoch == 0
    text = trials["both", "first", "text"]
    assert text.num_trained_params == text.num_params  # there is no head
    assert as_it_is.objective == "multi_task" and as_it_is.corpus == "mixture"
    assert read_json(Path("data/corpora/mixture/corpus.json"))["train"]["documents"] == 400


@pytest.mark.parametrize("method", ["as_it_is", "text"])
def test_predict_gives_labels_and_tags_of_new_text(method, study, monkeypatch, capsys) -> None:
    """The fine-tuned run predicts, and so does the run as it is, of which no weights are kept."""
    monkeypatch.chdir(study)
    for task, text, expected in (
        ("first", "class class for 37", {"label": "some_class"}),
        ("which", "def class 37", {"words": ["def", "class", "37"], "tags": ["O", "B-X", "O"]}),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        monkeypatch.setattr(
            sys, "argv", ["predict", "--model", "both", "--task", task, "--method", method]
        )
        predict.main()
        assert json.loads(capsys.readouterr().out) == {"line": 1} | expected
