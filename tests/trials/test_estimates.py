"""Estimates come from the states that a probe reads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.code import hashes
from stages.core.keys import CheckpointKey
from stages.core.params import Params
from stages.evaluation.transferability import ESTIMATES, EstimateRecord, h_score, logme, one_hot
from stages.text.batch import PADDING
from stages.trials import estimates
from stages.trials.setup import TrialSetup
from tests.small_study import SCRATCH, write_pair

EXAMPLES = Path("data/tasks/section/examples")
Values = dict[str, float | None]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """An encoder and a decoder with random weights."""
    monkeypatch.chdir(tmp_path)
    return write_pair(tmp_path)


def estimated(params: Params, run: str = SCRATCH, task: str = "section") -> list[EstimateRecord]:
    return estimates.estimated(params.finetune, params.compute, CheckpointKey(run, 1), task)


def values(estimates: list[EstimateRecord]) -> Values:
    return {record.estimate: record.value for record in estimates}


def write_rows(rows: list[dict[str, Any]], **record: object) -> None:
    """Writes the training rows of "section", and replaces entries of its record."""
    write_jsonl(EXAMPLES / "train.jsonl", rows)
    write_json(EXAMPLES / "task.json", read_json(EXAMPLES / "task.json") | record)


def states_row_by_row(params: Params, run: str, task: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the states [N, D] and their labels, computed without batches, heads or hooks."""
    setup = TrialSetup(CheckpointKey(run, 1), task, max_tokens=params.finetune.max_tokens)
    backbone = setup.backbone(seed=params.finetune.seeds[0]).eval()
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
            labels += row["tags"][: len(words)]
    classes = sorted(setup.task.labels)
    return torch.cat(states).numpy(), np.array([classes.index(label) for label in labels])


@pytest.mark.parametrize("run", [SCRATCH, "decoder"])
@pytest.mark.parametrize("task", ["section", "tag"])
def test_estimated_measures_the_states_that_the_head_reads(
    params: Params, run: str, task: str
) -> None:
    states, classes = states_row_by_row(params, run, task)
    records = estimated(params, run, task)
    assert {record.num_states for record in records} == {len(classes)}
    values = {record.estimate: record.value for record in records}
    expected = {"h_score": h_score(states, classes), "logme": logme(states, one_hot(classes))}
    assert values == pytest.approx(expected, abs=1e-4)


def test_estimated_gives_a_reason_where_an_estimate_is_undefined(params: Params) -> None:
    rows = read_jsonl(EXAMPLES / "train.jsonl")
    write_rows([row | {"label": "calm"} for row in rows])  # one class
    one_class = estimated(params)
    record = {"task": {"name": "regression"}, "kind": "regression", "labels": []}
    targets = [row | {"target": float(row["label"] == "loud")} for row in rows]
    write_rows(targets, **record, target_mean=0.5, target_std=0.5)
    numbers = estimated(params)
    for records, defined in ((one_class, set()), (numbers, {"logme"})):
        assert [record.estimate for record in records] == [*ESTIMATES]
        assert {r.estimate for r in records if r.value is not None} == defined
        assert all((r.value is None) == bool(r.reason) for r in records)


def test_estimated_draws_a_part_of_many_words(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = estimated(params, task="tag")[0]
    monkeypatch.setattr(estimates, "MAX_STATES", every.num_states // 2)
    some = estimated(params, task="tag")[0]
    assert 0 < some.num_rows < every.num_rows
    assert every.num_states / 4 < some.num_states <= every.num_states // 2


def test_code_of_estimates_is_no_code_of_trials() -> None:
    """An edit of an estimate's code trains no trial again."""
    files = {"trials/estimates.py", "evaluation/transferability.py"}
    assert not files & hashes("trials/runner", "methods/full", "methods/linear_probe").keys()
    assert files <= hashes("trials/estimates").keys() & hashes("finetune").keys()
