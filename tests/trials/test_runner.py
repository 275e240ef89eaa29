"""A trial adapts a model and predicts, its kept weights predict the same, processes that work side
by side change nothing, and what is known before training."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.evaluation.records import InputRecord
from stages.evaluation.transferability import ESTIMATES, EstimateRecord, h_score, logme, one_hot
from stages.tasks._task import TASKS as KINDS
from stages.tasks._task import Example
from stages.tasks.classification import Classification
from stages.text.batch import IGNORE_INDEX, PADDING
from stages.training.device import Device
from stages.trials import estimates, kept, new_rows, prediction, workers
from stages.trials.new_files import NewRow
from stages.trials.new_rows import Abstention
from stages.trials.prediction import IN_BATCHES, TIMED, WARM_UP, predict
from stages.trials.runner import Trial
from stages.trials.setup import TrialSetup
from stages.trials.store import ROOT
from tests.small import small_model, small_tokenizer, with_head
from tests.trials.small_trials import (
    CHECKPOINT,
    TASKS,
    TRAINING,
    plan_of,
    trials,
    write_checkpoint,
    write_task,
)

PROJECT = Path(__file__).parents[2]
CPU = Device("cpu", "float32", compile=False, threads=1)
PROBE: dict[str, Any] = {"linear_probe": {"method": {"name": "linear_probe", "C": [0.01, 1.0]}}}
TRAINED: dict[str, Any] = {
    name: {"method": {"name": name, **settings}, "training": TRAINING}
    for name, settings in {
        "full": {},
        "lora": {"rank": 2},
        "adapter": {"bottleneck": 4},
        "prompt": {"num_prompt_tokens": 3},
        "prefix": {"num_prefix_tokens": 3},
        "bitfit": {},
        "gradual_unfreezing": {},
        "setfit": {"num_pairs": 2, "C": [0.1, 1.0]},
    }.items()
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def predicted_again(trial: Trial) -> list[str]:
    """Returns the predictions of a kept trial, as ``predict`` makes them."""
    path = kept.path_of(trial.key)
    about = kept.read(path)
    setup = kept.setup_of(about, path)
    model = kept.rebuilt(about, setup, path)
    rows = setup.rows("test", seed=about.finetune_seed)
    answers = predict(setup.task, model, rows, setup.task.encode(rows), CPU)
    return [each.at(about.threshold) for each in answers]


def predictions(trial: Trial) -> list[str]:
    return [row.prediction for row in trial.predictions]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_kept_weights_predict_what_the_trial_predicted(family: str) -> None:
    write_checkpoint(family)
    write_task("classification")
    methods = TRAINED | PROBE
    if family == "t5":
        methods = {name: methods[name] for name in ("full", "lora", "linear_probe", "setfit")}
    done = trials(plan_of(methods), "classification")
    assert [trial.key.method for trial in done] == [*methods]
    for trial in done:
        assert predicted_again(trial) == predictions(trial), trial.key.method
        trained, operations = trial.record.num_trained_params, trial.record.finetune_flops
        # Each multiplication comes with an addition.
        assert operations is not None and operations > 0 and operations % 2 == 0
        assert (trained == trial.record.num_params) == (trial.key.method in ("full", "setfit"))


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_probe_of_every_kind_learns_and_is_kept(task: str) -> None:
    write_checkpoint("bert")
    write_task(task)
    (trial,) = trials(plan_of(PROBE), task)
    record = trial.record
    assert (record.num_tries, record.converged) == (2, 1) and record.finetune_flops > 0
    assert record.validation_score is not None and record.validation_score > 0.5
    assert predicted_again(trial) == predictions(trial)


@pytest.mark.slow
def test_trials_of_one_process_and_of_several_are_equal() -> None:
    """Budgets and seeds share states of validation and test rows, and nothing else. What is taken
    from the store equals what was computed."""
    write_checkpoint("bert")
    write_task("classification")
    methods = PROBE | {"setfit": TRAINED["setfit"]}
    several = plan_of(methods, label_budgets=[16, 32], seeds=[1, 2])
    done = trials(several, "classification")
    assert trials(several, "classification") == done
    together = {trial.key: trial for trial in done}
    for budget, seed in ((16, 2), (32, 1)):
        plan = plan_of(methods, label_budgets=[budget], seeds=[seed])
        shutil.rmtree(ROOT)  # the store
        for alone in trials(plan, "classification"):
            assert alone.record == together[alone.key].record
            assert alone.predictions == together[alone.key].predictions
    test = read_jsonl(Path("data/tasks/classification/examples/test.jsonl"))
    assert not any("label" in row for row in test)


def test_new_rows_are_counted_with_and_without_a_prediction() -> None:
    """One is sure, one lacks an input, and one is unsure."""
    given = [{"id": "0", "text": "a"}, None, {"id": "1", "text": "b"}]
    rows, abstention = [NewRow({}, {}, row) for row in given], Abstention(min_confidence=0.6)
    answers = [("calm", 0.9, None), ("loud", 0.5, None)]
    made = new_rows.predictions(lambda _: answers, KINDS["classification"], rows, abstention)
    assert [prediction.text for prediction in made] == ["calm", "", ""]
    assert (abstention.num_rows, abstention.num_unanswered, abstention.num_empty) == (2, 1, 1)


# Speed -------------------------------------------------------------------------------------------


def test_measured_speed_is_of_texts_alone_and_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock on which predicting n texts takes 10 + n ms. No text is predicted twice."""
    predicted, now = list[list[str]](), [0.0]
    task = Classification(["a", "b"], small_tokenizer(), 32)
    model = with_head(task, small_model("encoder"))

    def timed(_: Any, model: Any, rows: Any, examples: Any, device: Device) -> None:
        predicted.append([row["id"] for row in rows])
        assert predicted[-1] == [example.id for example in examples]
        now[0] += 0.01 + 0.001 * len(rows)

    monkeypatch.setattr(prediction, "predict", timed)
    monkeypatch.setattr(prediction.time, "perf_counter", lambda: now[0])
    for number, num_alone, num_together in (
        (600, WARM_UP + TIMED, IN_BATCHES),
        (9, 4, 5),
        (1, 1, 1),
    ):
        predicted.clear()
        rows = [{"id": f"row {i}"} for i in range(number)]
        examples = [Example(row["id"], np.ones(7), np.zeros(1)) for row in rows]
        measured = prediction.measured_speed(task, model, rows, examples, CPU)
        assert [len(ids) for ids in predicted] == [1] * num_alone + [num_together]
        per_s = num_together / (0.01 + 0.001 * num_together)
        assert measured == pytest.approx(
            {"latency_s": 0.011, "texts_per_s": per_s, "tokens_per_s": 7 * per_s}, rel=1e-2
        )
        ids = [each for some in predicted for each in some]
        assert number == 1 or len({*ids}) == len(ids)


# Processes ---------------------------------------------------------------------------------------


def process_of(job: int) -> tuple[int, int]:
    if job < 0:
        raise ValueError(f"{job} is below 0")
    return job, os.getpid()


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2])
def test_each_yields_the_result_or_the_mistake_of_every_job(at_once: int) -> None:
    by_job = dict(workers.each(process_of, [1, -2, 3, 4], at_once=at_once))
    assert str(by_job.pop(-2)) == "-2 is below 0"
    results = [result for result in by_job.values() if not isinstance(result, ValueError)]
    assert sorted(job for job, _ in results) == [1, 3, 4]
    assert {process == os.getpid() for _, process in results} == {at_once == 1}


@pytest.mark.slow
def test_each_leaves_no_process_when_the_caller_is_killed() -> None:
    script = "import time; from stages.trials import workers;"
    script += "[*workers.each(time.sleep, [61.25, 61.25], at_once=2)]"
    caller = subprocess.Popen([sys.executable, "-c", script], cwd=PROJECT)
    children: list[psutil.Process] = []
    while len(children) < 2:
        assert caller.poll() is None
        time.sleep(0.05)
        children = psutil.Process(caller.pid).children()
    caller.kill()
    caller.wait()
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert len(gone) == 2 and not alive


# Estimates from the states that a probe reads ----------------------------------------------------

FULL = {"full": TRAINED["full"]}


def estimated(task: str) -> list[EstimateRecord]:
    plan = plan_of(FULL, label_budgets=[40], max_tokens=64)
    return estimates.estimated(plan.finetune, plan.compute, CHECKPOINT, task)


def states_row_by_row(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the states [N, D] and their labels, computed without batches, heads or hooks."""
    setup = TrialSetup(CHECKPOINT, task, max_tokens=64)
    backbone = setup.backbone(seed=1).eval()
    states, labels = [], []
    for row in read_jsonl(setup.examples / "train.jsonl"):
        (example,) = setup.task.encode([row])
        with torch.no_grad():
            batch = setup.task.collate([example], rngs=[])
            assert (batch.document_ids != PADDING).all()
            read = backbone(batch)[0]
        words = example.word_positions
        if words is None:  # a text
            states.append(read.mean(dim=0, keepdim=True))
            labels.append(row["label"])
        else:
            states.append(read[torch.from_numpy(words)])
            labels += row["tags"]
    classes = sorted(setup.task.labels)
    return torch.cat(states).numpy(), np.array([classes.index(label) for label in labels])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_estimated_measures_the_states_that_the_head_reads(family: str, task: str) -> None:
    write_checkpoint(family)
    write_task(task)
    states, classes = states_row_by_row(task)
    records = estimated(task)
    assert {(record.num_rows, record.num_states) for record in records} == {(40, len(classes))}
    assert all(record.flops > 0 for record in records)
    values = {record.estimate: record.value for record in records}
    expected = {"h_score": h_score(states, classes), "logme": logme(states, one_hot(classes))}
    assert values == pytest.approx(expected, rel=1e-4)


def test_estimated_gives_a_reason_where_an_estimate_is_undefined() -> None:
    write_checkpoint("bert")
    for task in ("classification", "regression", "multi_label"):
        write_task(task)
    train = paths.examples("classification") / "train.jsonl"
    write_jsonl(train, [row | {"label": "calm"} for row in read_jsonl(train)])  # one class
    for task, defined in (
        ("classification", set()),
        ("regression", {"logme"}),
        ("multi_label", set()),
    ):
        records = estimated(task)
        assert [record.estimate for record in records] == [*ESTIMATES]
        assert {r.estimate for r in records if r.value is not None} == defined
        assert all((r.value is None) == bool(r.reason) for r in records)


def test_estimated_draws_a_part_of_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint("bert")
    write_task("tagging")
    every = estimated("tagging")[0]
    monkeypatch.setattr(estimates, "MAX_STATES", every.num_states // 2)
    some = estimated("tagging")[0]
    assert 0 < some.num_rows < every.num_rows
    assert every.num_states / 4 < some.num_states <= every.num_states // 2


# Inputs ------------------------------------------------------------------------------------------


def test_input_records_count_what_is_cut_of_every_split_and_of_prompts() -> None:
    write_checkpoint("gpt2")
    for task in ("tagging", "classification"):
        write_task(task)
    most = 9
    finetune = plan_of(FULL | {"linear_probe": {}}, max_tokens=most).finetune
    records = estimates.input_records(finetune, CHECKPOINT, "tagging", ["full", "linear_probe"])
    assert [record.split for record in records] == ["train", "validation", "test"]
    for record in records:
        rows = read_jsonl(paths.examples("tagging") / f"{record.split}.jsonl")[:32]
        whole = np.array([len(small_tokenizer().encode([" ".join(r["words"])])[0]) for r in rows])
        surplus = np.maximum(whole + 2 - most, 0)
        assert record == InputRecord(
            **CHECKPOINT._asdict(),
            split=record.split,
            read_at="last subword of a word",
            rows=len(rows),
            rows_cut=int((surplus > 0).sum()),
            tokens=int(whole.sum()) + 2 * len(rows),
            tokens_cut=int(surplus.sum()),
        )
        assert 0 < record.rows_cut < record.rows
    shots = {f"shots_{n}": {"method": {"name": "in_context", "num_shots": n}} for n in (0, 4)}
    finetune = plan_of(FULL | shots, max_tokens=80).finetune
    records = estimates.input_records(finetune, CHECKPOINT, "classification", ["full", *shots])
    of_prompts = {r.read_at: r for r in records if r.read_at.startswith("prompt")}
    assert [*of_prompts] == ["prompt of shots_0", "prompt of shots_4"]
    none, four = of_prompts.values()
    assert (none.split, none.rows, none.rows_cut) == ("test", 16, 0)
    assert four.rows_cut > 0 and four.tokens > none.tokens


def test_setup_reads_labels_where_its_model_does() -> None:
    """A causal model reads a word at its last subword, unless it was pretrained with a prefix. Kept
    weights belong to one of these."""
    words = ["antidisestablishmentarian", "class"]
    lengths = [len(ids) for ids in small_tokenizer().encode_words([words])[0]]
    row: dict[str, Any] = {"id": "1", "words": words, "tags": ["O", "B-X"]}
    write_task("tagging")
    write_checkpoint("gpt2")
    path = paths.pretrained(CHECKPOINT) / "run.json"
    places = []
    for has_prefix in (False, True):
        write_json(path, read_json(path) | {"has_prefix": has_prefix})
        setup = TrialSetup(CHECKPOINT, "tagging", max_tokens=64)
        (example,) = setup.task.encode([row])
        places.append(
            (np.flatnonzero(example.labels != IGNORE_INDEX).tolist(), kept.fingerprint(setup))
        )
    (causal, before), (prefix, after) = places
    assert lengths[0] > 1 and before != after
    assert (causal, prefix) == ([lengths[0], sum(lengths)], [1, 1 + lengths[0]])
