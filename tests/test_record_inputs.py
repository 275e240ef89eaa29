"""The records of what corpora and models read, on which their stages depend."""

import json
from pathlib import Path

import pytest

from stages import record_inputs
from stages.core.artifacts import read_json, sha256_of_tree
from stages.core.plans import InputsPlan
from stages.core.study_file import typed
from stages.planning.stage_plans import corpus_inputs, model_inputs
from tests.smoke import short_smoke_with

UNIGRAM, PROSE, MINILM = (
    "data/tokenizers/unigram",
    "data/encoded/prose/unigram",
    "data/checkpoints/minilm",
)
INPUTS = {
    "mlm": [UNIGRAM, PROSE],
    "scratch": [UNIGRAM],
    "fetched": ["data/tokenizers/none", MINILM],
}
PLAN = InputsPlan(inputs=INPUTS, tasks=["tag", "type"], label_budgets=[50, "all"], code={})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (f"{UNIGRAM}/model", f"{PROSE}/train/tokens.npy", f"{MINILM}/model.safetensors"):
        write(name, name)
    write("data/tokenizers/none", "nothing")
    for task, number in (("tag", 50), ("type", 60)):
        about = {"num_examples": {"train": number, "test": 10}}
        write(f"data/tasks/{task}/examples/task.json", json.dumps(about))


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def recorded() -> dict[str, bytes]:
    record_inputs.main(PLAN, "models")
    return {path.stem: path.read_bytes() for path in Path("data/inputs/models").iterdir()}


def test_record_inputs_changes_only_for_models_that_read_what_changed() -> None:
    write("data/inputs/models/old.json", "of a model that is no longer listed")
    before = recorded()
    assert before.keys() == INPUTS.keys()
    hashes = {path: sha256_of_tree(Path(path)) for path in (UNIGRAM, PROSE)}
    assert read_json(Path("data/inputs/models/mlm.json")) == hashes
    for name, changed in (
        (f"{PROSE}/train/tokens.npy", {"mlm"}),
        (f"{UNIGRAM}/model", {"mlm", "scratch"}),
        ("data/encoded/code/unigram/train/tokens.npy", set()),
        (f"{MINILM}/model.safetensors", {"fetched"}),
    ):
        write(name, "other")
        after = recorded()
        assert {model for model in before if before[model] != after[model]} == changed
        before = after


def test_record_inputs_refuses_a_label_budget_that_a_task_cannot_fill() -> None:
    """The budget is refused before any training: every pretraining depends on this stage."""
    fault = r"^finetune\.label_budgets: 55 labels, but tasks\.tag has 50$"
    with pytest.raises(ValueError, match=fault):
        record_inputs.main(PLAN.model_copy(update={"label_budgets": [10, 55]}), "models")
    assert not Path("data/inputs").exists()


def test_inputs_are_those_of_a_model_and_its_parents() -> None:
    study = typed(
        short_smoke_with(
            {
                "models.child": {"parent": "encoder_mlm", "corpus": "more"},
                "corpora.more": {
                    "source": {"name": "files", "path": "more.txt"},
                    "max_tokens": "all",
                    "decontaminate_against": "tasks",
                },
            }
        )
    )
    models, corpora = model_inputs(study), corpus_inputs(study)
    assert models["encoder_mlm"] == [UNIGRAM, PROSE] and models["encoder_scratch"] == [UNIGRAM]
    assert models["child"] == [UNIGRAM, "data/encoded/more/unigram", PROSE]
    assert corpora["prose"] == [] and "data/tasks/tag/examples" in corpora["more"]
