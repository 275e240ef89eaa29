"""Estimates come from the states that a probe reads, and are computed once."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from stages import pretrain
from stages.core.artifacts import read_json, read_jsonl, remove, write_json, write_jsonl
from stages.core.code import hashes
from stages.core.params import Params
from stages.evaluation.estimates import ESTIMATES, LAYERS, EstimateRecord
from stages.evaluation.transferability import (
    h_score,
    logme,
    nearest_neighbours,
    one_hot,
)
from stages.matching.budget import plans
from stages.text.batch import PADDING
from stages.trials import estimates, store
from stages.trials.estimates import estimated
from stages.trials.setup import TrialSetup
from tests.small_hub import FAMILIES, checkpoint, revision_of
from tests.small_study import SCRATCH, write_pair

RUNS = (SCRATCH, "decoder")
Values = dict[tuple[str, str], float | None]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """An encoder and a decoder with random weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(store.VARIABLE, raising=False)
    params = write_pair(tmp_path)
    store.root().mkdir(parents=True)
    return params


def values(records: list[EstimateRecord]) -> Values:
    return {(record.estimate, record.layers): record.value for record in records}


def by_hand(
    params: Params,
    run: str,
    task: str,
    pooled: Callable[[torch.Tensor, np.ndarray | None], torch.Tensor],
) -> tuple[np.ndarray, np.ndarray]:
    """States of each layer [J, N, D] and labels, row by row, without batches, heads or hooks."""
    setup = TrialSetup(run, task, max_tokens=params.finetune.max_tokens)
    backbone = setup.backbone(seed=params.finetune.seeds[0]).eval()
    states, labels = [], []
    for row in read_jsonl(setup.examples / "train.jsonl"):
        (example,) = setup.task.encode([row])
        batch = setup.task.collate([example], rngs=[])
        assert (batch.document_ids != PADDING).all()
        with torch.no_grad():
            layers = backbone.layers(batch)[1:, 0]
        read = example.word_positions  # None of a text
        states.append(pooled(layers, read))
        tags = row.get("tags", [row.get("label")])
        labels += tags if read is None else tags[: len(read)]
    classes = sorted(setup.task.labels)
    return torch.cat(states, dim=1).numpy(), np.array([classes.index(each) for each in labels])


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("task", ["section", "tag"])
def test_states_are_those_that_the_head_reads_of_each_row(
    params: Params, run: str, task: str
) -> None:
    def pooled(layers: torch.Tensor, words: np.ndarray | None) -> torch.Tensor:
        if words is not None:
            return layers[:, torch.from_numpy(words)]
        return layers.mean(dim=1, keepdim=True)

    states, classes = by_hand(params, run, task, pooled)
    found = estimated(params, run, task).records
    assert {record.num_states for record in found} == {len(classes)}
    for estimate, compute in (
        ("h_score", lambda layer: h_score(layer, classes).value),
        ("h_score_above_chance", lambda layer: h_score(layer, classes).above_chance),
        ("logme", lambda layer: logme(layer, one_hot(classes))),
        ("knn", lambda layer: nearest_neighbours(layer, classes)),
    ):
        layers = [compute(layer) for layer in states]
        expected = layers[-1], compute(states.mean(axis=0)), max(layers)
        # States of a padded batch differ in the last bit, which may change a neighbour.
        tolerance = 0.02 if estimate == "knn" else 1e-4
        for name, value in zip(LAYERS, expected, strict=True):
            assert values(found)[estimate, name] == pytest.approx(value, abs=tolerance), name
        best = next(r for r in found if (r.estimate, r.layers) == (estimate, "best"))
        assert best.layer is not None and layers[best.layer - 1] == pytest.approx(
            max(layers), abs=tolerance
        )


def test_labels_that_follow_the_text_are_told_from_shuffled_ones(params: Params) -> None:
    """A random encoder tells capitals from others, and no labels without meaning."""
    real = values(estimated(params, SCRATCH, "section").records)
    path = Path("data/tasks/section/examples/train.jsonl")
    rows = read_jsonl(path)
    order = np.random.default_rng(1).permutation(len(rows))
    write_jsonl(
        path, [row | {"label": rows[i]["label"]} for row, i in zip(rows, order, strict=True)]
    )
    shuffled = values(estimated(params, SCRATCH, "section").records)
    for key, value in real.items():
        assert value is not None and (other := shuffled[key]) is not None
        assert value > other + 0.1, key


def test_a_number_is_estimated_by_logme_alone(params: Params) -> None:
    folder = Path("data/tasks/section/examples")
    rows = read_jsonl(folder / "train.jsonl")
    rated = [
        {"id": r["id"], "text": r["text"], "target": float(r["label"] == "loud")} for r in rows
    ]
    write_jsonl(folder / "train.jsonl", rated)
    about = read_json(folder / "task.json") | {"kind": "regression", "labels": []}
    about |= {"task": {"name": "regression"}, "target_mean": 0.5, "target_std": 0.5}
    write_json(folder / "task.json", about)
    found = estimated(params, SCRATCH, "section").records
    assert {r.estimate for r in found if r.value is not None} == {"logme"}
    assert all((r.value is None) == bool(r.reason) for r in found)


def test_a_task_whose_labels_are_positions_has_reasons(params: Params) -> None:
    folder = Path("data/tasks/section/examples")
    asked = [
        {
            "id": row["id"],
            "question": "which word",
            "context": row["text"],
            "answers": [{"text": row["text"][:3], "answer_start": 0}],
        }
        for row in read_jsonl(folder / "train.jsonl")
    ]
    write_jsonl(folder / "train.jsonl", asked)
    about = read_json(folder / "task.json") | {"kind": "span_qa", "labels": []}
    settings = {"name": "span_qa", "stride": 8, "max_question_tokens": 16}
    write_json(folder / "task.json", about | {"task": settings})
    found = estimated(params, SCRATCH, "section").records
    assert len(found) == len(ESTIMATES) * len(LAYERS)
    assert all(record.value is None and record.reason for record in found)


def test_one_class_says_nothing(params: Params) -> None:
    path = Path("data/tasks/section/examples/train.jsonl")
    write_jsonl(path, [row | {"label": "calm"} for row in read_jsonl(path)])
    found = estimated(params, SCRATCH, "section").records
    assert all(record.value is None and record.reason for record in found)


def test_what_was_computed_is_taken_from_the_store(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = estimated(params, SCRATCH, "section")
    computed = []
    monkeypatch.setattr(estimates, "_records", lambda *given: computed.append(given) or [])
    assert estimated(params, SCRATCH, "section") == first and not computed
    assert not store.listed()  # none of the trials
    (file,) = (store.root() / "estimates").iterdir()
    file.write_text(file.read_text()[:-20])
    estimated(params, SCRATCH, "section")
    assert len(computed) == 1
    estimated(params, "decoder", "section")
    remove(store.root() / "estimates")
    estimated(params, SCRATCH, "section")
    assert len(computed) == 3


def test_methods_change_no_estimate_and_the_rows_do(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimated(params, SCRATCH, "section")
    computed = []
    monkeypatch.setattr(estimates, "_records", lambda *given: computed.append(given) or [])

    def of(**changes: object) -> int:
        settings = params.finetune.model_copy(update=changes)
        estimated(params.model_copy(update={"finetune": settings}), SCRATCH, "section")
        return len(computed)

    assert of(methods={}) == 0
    assert of(seeds=[1, 2]) == 0 and of(label_budgets=[8, 64]) == 0
    assert of(label_budgets=[32]) == 1 and of(seeds=[2]) == 2 and of(max_tokens=32) == 3


def test_many_labelled_words_are_a_drawn_part(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = estimated(params, SCRATCH, "tag").records[0]
    monkeypatch.setattr(estimates, "MOST_STATES", every.num_states // 2)
    remove(store.root() / "estimates")
    some = estimated(params, SCRATCH, "tag").records[0]
    assert 0 < some.num_rows < every.num_rows
    assert every.num_states / 4 < some.num_states <= every.num_states // 2


def test_trials_do_not_run_the_code_of_estimates() -> None:
    """So that no edit of theirs makes a trial train again."""
    theirs = {"trials/estimates.py", "evaluation/estimates.py", "evaluation/transferability.py"}
    assert not theirs & hashes("trials/runner", "methods/full", "methods/linear_probe").keys()
    assert theirs <= hashes("trials/estimates").keys()
    assert theirs <= hashes("finetune").keys()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bilstm", "encoder_decoder", "bert", "gpt2", "t5"])
def test_every_architecture_has_estimates_of_its_layers(params: Params, model: str) -> None:
    """Ours and public ones; of a model with a decoder those of its encoder."""
    run = params.pretrain[SCRATCH]
    if model in FAMILIES:
        folder = checkpoint(model)
        settings = {"name": "hub", "path": str(folder), "revision": revision_of(folder)}
        run = run.model_copy(update={"model": settings, "tokenizer": "none"})
    else:
        sizes = {"d_model": 32, "num_layers": 2} if model == "bilstm" else run.model
        run = run.model_copy(update={"model": {**sizes, "name": model}})
    changed = params.model_copy(update={"pretrain": {"other": run, SCRATCH: run}})
    changed = changed.model_copy(
        update={"budget": params.budget.model_copy(update={"matched": "none"})}
    )
    write_json(Path("data/plans/other.json"), asdict(plans(changed)["other"]))
    pretrain.main(changed, "other")
    for task in ("section", "tag"):
        found = estimated(changed, "other", task).records
        assert all(record.value is not None for record in found)
        layers = {record.layer for record in found if record.layer is not None}
        assert layers <= set(range(1, run.model.get("num_layers", 2) + 1))
