"""How much of a task's rows a checkpoint reads, and where its labels are read."""

from pathlib import Path

import numpy as np
import pytest

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, write_json
from stages.core.keys import RunKey
from stages.core.params import Params
from stages.evaluation.records import InputRecord
from stages.text.batch import IGNORE_INDEX
from stages.trials import kept
from stages.trials.inputs import input_records
from stages.trials.setup import TrialSetup
from tests.small import small_tokenizer
from tests.small_study import SCRATCH, tuned, write_pair

MAX_TOKENS = 14
DECODER = RunKey("decoder", 1)


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """An encoder and a decoder from scratch."""
    monkeypatch.chdir(tmp_path)
    return tuned(write_pair(tmp_path), max_tokens=MAX_TOKENS)


def test_input_records_count_what_is_cut_of_every_split(params: Params) -> None:
    records = input_records(params.finetune, DECODER, "tag", ["full", "linear_probe"])
    assert [record.split for record in records] == ["train", "validation", "test"]
    for record in records:
        rows = read_jsonl(Path(f"data/tasks/tag/examples/{record.split}.jsonl"))
        whole = np.array([len(small_tokenizer().encode([" ".join(r["words"])])[0]) for r in rows])
        surplus = np.maximum(whole + 2 - MAX_TOKENS, 0)
        assert record == InputRecord(
            **DECODER._asdict(),
            split=record.split,
            read_at="last subword of a word",
            rows=len(rows),
            rows_cut=int((surplus > 0).sum()),
            tokens=int(whole.sum()) + 2 * len(rows),
            tokens_cut=int(surplus.sum()),
        )
        assert 0 < record.rows_cut < record.rows


def test_input_records_count_each_form_in_which_texts_are_read(params: Params) -> None:
    """Methods that read the same form share its records; a method that prompts has its own."""
    full = params.finetune.methods["full"]
    methods = {
        **params.finetune.methods,
        "as_text": full.model_copy(update={"text_to_text": True}),
        "prompted": full.model_copy(
            update={"method": {"name": "in_context", "num_shots": 3}, "training": None}
        ),
    }
    finetune = tuned(params, methods=methods, max_tokens=40).finetune
    records = input_records(finetune, DECODER, "section", methods)
    states = [record.read_at for record in records]
    assert states == ["mean of tokens"] * 3 + ["written as text"] * 3 + ["prompt of prompted"]
    assert records[3].tokens > records[0].tokens  # the names of the task and of its columns
    assert records[6:] == input_records(finetune, DECODER, "section", ["prompted"])


@pytest.mark.usefixtures("params")
def test_setup_reads_labels_where_its_model_does() -> None:
    (words,) = small_tokenizer().encode_words([["antidisestablishmentarian", "class"]])
    row = {"id": "1", "words": ["antidisestablishmentarian", "class"], "tags": ["O", "B-CODE"]}
    places = {}
    for run in (SCRATCH, "decoder"):
        setup = TrialSetup(RunKey(run, 1), "tag", max_tokens=64)
        (example,) = setup.task.encode([row])
        places[run] = np.flatnonzero(example.labels != IGNORE_INDEX).tolist()
    first, length = len(words[0]), len(words[0]) + len(words[1])
    assert first > 1 and places == {SCRATCH: [1, 1 + first], "decoder": [first, length]}


@pytest.mark.usefixtures("params")
def test_setup_reads_both_ways_after_a_pretraining_with_a_prefix() -> None:
    path = paths.pretrained(DECODER) / "run.json"
    write_json(path, read_json(path) | {"has_prefix": True})
    setup = TrialSetup(DECODER, "tag", max_tokens=64)
    assert setup.task.has_prefix and setup.task.read_at == "first subword of a word"


@pytest.mark.usefixtures("params")
def test_setup_of_refuses_a_kept_trial_that_reads_elsewhere() -> None:
    setup = TrialSetup(DECODER, "tag", max_tokens=64)
    trial = kept.KeptTrial(
        **DECODER._asdict(),
        task="tag",
        method="full",
        label_budget="64",
        finetune_seed=1,
        component={"name": "full"},
        text_to_text=False,
        max_tokens=64,
        precision="float32",
        threshold=0.0,
        drawn_weights="",
        **kept.fingerprints(setup) | {"read_at": "first subword of a word"},
    )
    with pytest.raises(ValueError, match=r"trial\.safetensors: predicts from the first subword"):
        kept.setup_of(trial, Path("trial.safetensors"))
