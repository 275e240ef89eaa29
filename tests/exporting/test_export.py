"""Exported checkpoints and trials compute in transformers what they compute here."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.keys import TrialKey
from stages.evaluation import records
from stages.exporting.export import HEAD, export_checkpoint, export_trial, find_checkpoint
from stages.text.batch import PADDING, Batch
from stages.trials import kept
from tests.trials.small_trials import (
    CHECKPOINT,
    TRAINING,
    plan_of,
    trials,
    write_checkpoint,
    write_task,
)

pytestmark = pytest.mark.slow

METHODS: dict[str, Any] = {
    "full": {"training": TRAINING},
    "lora": {"method": {"name": "lora", "rank": 2, "targets": "all"}, "training": TRAINING},
    "adapter": {"training": TRAINING},
}
OUT = Path("out")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, without a network."""

    def no_network(*_: Any) -> None:
        raise AssertionError("neither writing nor loading an export may ask the network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.socket.connect", no_network)


@torch.enable_grad()
def fine_tuned(family: str, method: str, task: str) -> tuple[TrialKey, Any, Batch]:
    """Fine-tunes; returns the trial, its model as ``predict`` builds it, and some test rows."""
    write_checkpoint(family)
    write_task(task)
    (outcome,) = trials(plan_of({method: METHODS[method]}), task)
    path = kept.path_of(outcome.key)
    trial = kept.read(path)
    setup = kept.setup_of(trial, path)
    batch = setup.task.collate(setup.task.encode(setup.rows("test", seed=1)[:5]), rngs=[])
    return outcome.key, kept.rebuilt(trial, setup, path).eval(), batch


def loaded() -> Any:
    """Loads the model with the code of the model card."""
    code = ModelCard.load(OUT / "README.md").text.splitlines()
    line = next(line for line in code if line.endswith(".eval()"))
    name = line.partition(" = ")[2].partition(".")[0]
    start = next(each for each in code if each.endswith(f"import {name}"))
    return getattr(importlib.import_module(start.split()[1]), name).from_pretrained(OUT).eval()


def inputs_of(batch: Batch) -> dict[str, torch.Tensor]:
    mask = (batch.document_ids != PADDING).long()
    return {"input_ids": batch.input_ids, "attention_mask": mask}


def close(a: torch.Tensor, b: torch.Tensor, batch: Batch) -> None:
    real = batch.document_ids != PADDING
    if a.shape[:2] == real.shape:
        a, b = a[real], b[real]
    torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("family", ["modernbert", "llama", "t5"])
@torch.no_grad()
def test_export_of_a_checkpoint_has_its_states_and_tokenizer(family: str) -> None:
    model = write_checkpoint(family).eval()
    export_checkpoint(find_checkpoint(CHECKPOINT.model, None), OUT)
    theirs, text = loaded(), "class method OBJECT"
    tokenizer = transformers.AutoTokenizer.from_pretrained(OUT)
    ids = tokenizer(text, return_tensors="pt").input_ids
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    reader = theirs.get_encoder() if theirs.config.is_encoder_decoder else theirs
    close(reader(**inputs_of(batch)).last_hidden_state, model(batch), batch)
    assert tokenizer.decode(ids[0], skip_special_tokens=True).strip() == text
    with pytest.raises(ValueError, match=r"no such checkpoint; seeds: \[1\]"):
        find_checkpoint(CHECKPOINT.model, 2)


@pytest.mark.parametrize(
    ("family", "method", "task"),
    [
        *((family, "full", "classification") for family in ("bert", "gpt2", "t5")),
        *((family, "lora", "classification") for family in ("modernbert", "llama", "bart")),
        *((family, "full", "tagging") for family in ("bert", "llama")),
    ],
)
@torch.no_grad()
def test_export_of_a_trial_has_the_outputs_that_predict_uses(family, method, task) -> None:
    """A tagger is a model for tokens. The head of a classifier is a file, and its card has the
    scores of the report."""
    key, model, batch = fine_tuned(family, method, task)
    row = {"model": key.model, "task": key.task, "method": key.method, "label_budget": "32"}
    row |= {"metric": "macro_f1", "mean": 0.4567, "low": 0.4, "high": 0.5}
    paths.REPORTS.mkdir()
    records.write_table(paths.REPORTS / "scores.csv", [*row], [row, row | {"method": "other"}])
    export_trial(key, OUT)
    theirs, states = loaded(), model.backbone(batch)
    output = theirs(**inputs_of(batch))
    if task == "tagging":
        close(output.logits, model.head(states), batch)
        assert theirs.config.id2label == {0: "B-X", 1: "O"} and not (OUT / HEAD).exists()
    else:
        close(output.last_hidden_state, states, batch)
        head, mask = load_file(OUT / HEAD), inputs_of(batch)["attention_mask"][..., None]
        pooled = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
        expected = model.head(states, batch.document_ids)
        close(pooled @ head["weight"].T + head["bias"], expected, batch)
        assert read_json(OUT / "labels.json")["labels"] == ["calm", "loud"]
    assert len(transformers.AutoTokenizer.from_pretrained(OUT)("a class").input_ids) > 2
    card: Any = ModelCard.load(OUT / "README.md")
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("macro_f1", 0.4567)
    assert f"| {task} | {method} | 32 | macro_f1 | 45.7 | 40.0 to 50.0 |" in card.text


def test_export_refuses_a_method_that_adds_modules_and_a_folder_that_exists() -> None:
    key, _, _ = fine_tuned("bert", "adapter", "classification")
    with pytest.raises(ValueError, match=r"methods\.adapter"):
        export_trial(key, OUT)
    OUT.mkdir()
    with pytest.raises(ValueError, match="out: exists"):
        export_checkpoint(CHECKPOINT, OUT)
