"""The record of what each run reads, on which its pretraining depends."""

import json
from pathlib import Path

import pytest

from stages import record_inputs
from stages.core.artifacts import read_json, sha256_of_tree
from stages.core.plans import InputsPlan, RunInputs

RUNS = {
    name: RunInputs(corpus=corpus, tokenizer=tokenizer, checkpoint=checkpoint)
    for name, corpus, tokenizer, checkpoint in (
        ("bert", "prose", "unigram", "none"),
        ("scratch", "none", "unigram", "none"),
        ("public", "none", "none", "none"),  # of the hub
        ("fetched", "none", "none", "minilm"),
        ("further", "prose", "bpe", "minilm"),
    )
}
PLAN = InputsPlan(runs=RUNS, tasks=["tag", "type"], label_budgets=[50, "all"], code={})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two corpora, each encoded with two tokenizers, and two public checkpoints."""
    monkeypatch.chdir(tmp_path)
    for tokenizer in ("unigram", "bpe"):
        write(f"tokenizers/{tokenizer}/model", tokenizer)
        for corpus in ("prose", "code"):
            write(f"encoded/{corpus}/{tokenizer}/train/tokens.npy", corpus)
    for checkpoint in ("minilm", "other"):
        write(f"checkpoints/{checkpoint}/model.safetensors", checkpoint)
    write("tokenizers/none", "nothing")
    for task, number in (("tag", 50), ("type", 60)):
        about = {"num_examples": {"train": number, "test": 10}}
        write(f"tasks/{task}/examples/task.json", json.dumps(about))


def write(name: str, text: str) -> None:
    path = Path("data", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def recorded() -> dict[str, bytes]:
    record_inputs.main(PLAN)
    return {path.stem: path.read_bytes() for path in Path("data/inputs").iterdir()}


def test_record_inputs_hashes_what_each_run_reads() -> None:
    write("inputs/old.json", "of a run that is no longer listed")
    assert recorded().keys() == RUNS.keys()
    unigram, prose = Path("data/tokenizers/unigram"), Path("data/encoded/prose/unigram")
    hashes = {str(path): sha256_of_tree(path) for path in (unigram, prose)}
    assert read_json(Path("data/inputs/bert.json")) == hashes
    assert read_json(Path("data/inputs/scratch.json")) == {str(unigram): hashes[str(unigram)]}
    assert [*read_json(Path("data/inputs/public.json"))] == ["data/tokenizers/none"]
    assert [*read_json(Path("data/inputs/further.json"))] == [
        "data/tokenizers/bpe",
        "data/encoded/prose/bpe",
        "data/checkpoints/minilm",
    ]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("encoded/prose/unigram/train/tokens.npy", {"bert"}),
        ("tokenizers/unigram/model", {"bert", "scratch"}),
        ("encoded/code/unigram/train/tokens.npy", set()),
        ("encoded/prose/bpe/train/tokens.npy", {"further"}),
        ("checkpoints/minilm/model.safetensors", {"fetched", "further"}),
        ("checkpoints/other/model.safetensors", set()),
    ],
)
def test_record_inputs_changes_only_for_runs_that_read_what_changed(
    name: str, changed: set[str]
) -> None:
    before = recorded()
    write(name, "other")
    after = recorded()
    assert {run for run in before if before[run] != after[run]} == changed


def test_record_inputs_refuses_a_label_budget_that_a_task_cannot_fill() -> None:
    """The budget is refused before any training: every pretraining depends on this stage."""
    fault = r"^finetune\.label_budgets: 55 labels, but tasks\.tag has 50$"
    with pytest.raises(ValueError, match=fault):
        record_inputs.main(PLAN.model_copy(update={"label_budgets": [10, 55]}))
    assert not Path("data/inputs").exists()
