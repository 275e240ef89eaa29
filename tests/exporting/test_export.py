"""Exported checkpoints and trials compute in transformers what they compute here."""

import importlib
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.core.keys import TrialKey
from stages.evaluation import records
from stages.exporting.export import HEAD, export_checkpoint, export_trial
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

FAMILIES = ("bert", "modernbert", "gpt2", "llama", "t5", "bart")
METHODS: dict[str, Any] = {
    "full": {"training": TRAINING},
    "lora": {"method": {"name": "lora", "rank": 2, "targets": "all"}, "training": TRAINING},
    "adapter": {"training": TRAINING},
    "linear_probe": {},
    "setfit": {"training": TRAINING},
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
def fine_tuned(family: str, method: str, task: str, **settings: Any) -> tuple[TrialKey, Any, Batch]:
    """Fine-tunes; returns the trial, its model as ``predict`` builds it, and some test rows."""
    write_checkpoint(family)
    write_task(task, **settings)
    (outcome,) = trials(plan_of({method: METHODS[method]}), task)
    path = kept.path_of(outcome.key)
    trial = kept.read(path)
    setup = kept.setup_of(trial, path)
    examples = setup.task.encode(setup.rows("test", seed=1)[:5])
    return (
        outcome.key,
        kept.rebuilt(trial, setup, path).eval(),
        setup.task.collate(examples, rngs=[]),
    )


def loaded(folder: Path) -> Any:
    """Loads the model with the code of the model card."""
    code = ModelCard.load(folder / "README.md").text
    line = next(line for line in code.splitlines() if line.endswith(".eval()"))
    name = line.partition(" = ")[2].partition(".")[0]
    start = next(each for each in code.splitlines() if each.endswith(f"import {name}"))
    module = importlib.import_module(start.split()[1])
    return getattr(module, name).from_pretrained(folder).eval()


def inputs_of(batch: Batch) -> dict[str, torch.Tensor]:
    mask = (batch.document_ids != PADDING).long()
    return {"input_ids": batch.input_ids, "attention_mask": mask}


def close(a: torch.Tensor, b: torch.Tensor, batch: Batch) -> None:
    real = batch.document_ids != PADDING
    if a.shape[:2] == real.shape:
        a, b = a[real], b[real]
    torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_export_of_a_checkpoint_has_its_states_and_tokenizer(family: str) -> None:
    model = write_checkpoint(family).eval()
    export_checkpoint(CHECKPOINT, OUT)
    theirs = transformers.AutoModel.from_pretrained(OUT).eval()
    text = "class method OBJECT"
    tokenizer = transformers.AutoTokenizer.from_pretrained(OUT)
    ids = tokenizer(text, return_tensors="pt").input_ids
    batch = Batch(input_ids=ids, document_ids=torch.ones_like(ids), num_targets={})
    reader = theirs.get_encoder() if theirs.config.is_encoder_decoder else theirs
    close(reader(**inputs_of(batch)).last_hidden_state, model(batch), batch)
    assert tokenizer.decode(ids[0], skip_special_tokens=True).strip() == text


PAIRS = [*zip(FAMILIES, cycle(["full", "lora"]), strict=False)]


@pytest.mark.parametrize(("family", "method"), PAIRS)
@torch.no_grad()
def test_export_of_a_trial_has_the_states_that_predict_uses(family: str, method: str) -> None:
    key, model, batch = fine_tuned(family, method, "classification")
    export_trial(key, OUT)
    states = loaded(OUT)(**inputs_of(batch)).last_hidden_state
    expected = model.backbone(batch)
    close(states, expected, batch)
    head, mask = load_file(OUT / HEAD), inputs_of(batch)["attention_mask"][..., None]
    pooled = (states * mask).sum(1) / mask.sum(1)
    close(pooled @ head["weight"].T + head["bias"], model.head(expected, batch.document_ids), batch)
    assert read_json(OUT / "labels.json")["labels"] == ["calm", "loud"]
    assert len(transformers.AutoTokenizer.from_pretrained(OUT)("a class").input_ids) > 2


@pytest.mark.parametrize("family", ["bert", "llama"])
@torch.no_grad()
def test_export_of_tagging_is_a_model_for_tokens(family: str) -> None:
    key, model, batch = fine_tuned(family, "full", "tagging")
    export_trial(key, OUT)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(OUT).eval()
    close(theirs(**inputs_of(batch)).logits, model.head(model.backbone(batch)), batch)
    assert theirs.config.id2label == {0: "B-X", 1: "O"} and not (OUT / HEAD).exists()


def test_export_refuses_a_method_that_adds_modules_and_a_folder_that_exists() -> None:
    key, _, _ = fine_tuned("bert", "adapter", "classification")
    with pytest.raises(ValueError, match=r"methods\.adapter"):
        export_trial(key, OUT)
    OUT.mkdir()
    with pytest.raises(ValueError, match="out: exists"):
        export_checkpoint(CHECKPOINT, OUT)


def test_card_has_the_scores_of_the_tables() -> None:
    key, _, _ = fine_tuned("bert", "full", "classification")
    row = {"model": key.model, "task": key.task, "method": key.method, "label_budget": "32"}
    row |= {"metric": "macro_f1", "mean": 0.4567, "low": 0.4, "high": 0.5}
    paths.REPORTS.mkdir()
    records.write_table(paths.REPORTS / "scores.csv", [*row], [row, row | {"method": "lora"}])
    export_trial(key, OUT)
    card: Any = ModelCard.load(OUT / "README.md")
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("macro_f1", 0.4567)
    assert "| classification | full | 32 | macro_f1 | 45.7 | 40.0 to 50.0 |" in card.text
    assert len(read_jsonl(paths.examples(key.task) / "train.jsonl")) == 40 and "40" in card.text
