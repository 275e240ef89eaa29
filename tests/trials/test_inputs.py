"""What a run reads of a task's rows, and where its labels are read."""

from pathlib import Path

import numpy as np
import pytest

from stages.core.artifacts import read_json, read_jsonl, write_json
from stages.core.params import Params
from stages.evaluation.records import InputRecord
from stages.text.batch import IGNORE_INDEX
from stages.trials import kept
from stages.trials.inputs import input_records
from stages.trials.setup import TrialSetup
from tests.small import small_tokenizer
from tests.small_study import SCRATCH, write_pair

MAX_TOKENS = 14


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """An encoder and a decoder from scratch."""
    monkeypatch.chdir(tmp_path)
    params = write_pair(tmp_path)
    settings = params.finetune.model_copy(update={"max_tokens": MAX_TOKENS})
    return params.model_copy(update={"finetune": settings})


def test_what_is_cut_is_counted_of_every_split(params: Params) -> None:
    found = input_records(params, "decoder", "tag", ["full", "linear_probe"])
    assert [record.split for record in found] == ["train", "validation", "test"]
    for record in found:
        rows = read_jsonl(Path(f"data/tasks/tag/examples/{record.split}.jsonl"))
        whole = np.array([len(small_tokenizer().encode([" ".join(r["words"])])[0]) for r in rows])
        surplus = np.maximum(whole + 2 - MAX_TOKENS, 0)
        assert record == InputRecord(
            run="decoder",
            split=record.split,
            read_at="last subword of a word",
            rows=len(rows),
            rows_cut=int((surplus > 0).sum()),
            tokens=int(whole.sum()) + 2 * len(rows),
            tokens_cut=int(surplus.sum()),
        )
        assert 0 < record.rows_cut < record.rows


def test_each_form_in_which_texts_are_read_is_counted(params: Params) -> None:
    """Of methods that share one there is one; each prompt has one of its own."""
    full = params.finetune.methods["full"]
    methods = {
        **params.finetune.methods,
        "as_text": full.model_copy(update={"text_to_text": True}),
        "prompted": full.model_copy(
            update={"method": {"name": "in_context", "num_shots": 3}, "training": None}
        ),
    }
    settings = params.finetune.model_copy(update={"methods": methods, "max_tokens": 40})
    params = params.model_copy(update={"finetune": settings})
    found = input_records(params, "decoder", "section", methods)
    states = [record.read_at for record in found]
    assert states == ["mean of tokens"] * 3 + ["written as text"] * 3 + ["prompt of prompted"]
    assert found[3].tokens > found[0].tokens  # the names of the task and of its columns
    assert found[6:] == input_records(params, "decoder", "section", ["prompted"])


def test_a_setup_reads_as_its_run_does(params: Params) -> None:
    (words,) = small_tokenizer().encode_words([["antidisestablishmentarian", "class"]])
    row = {"id": "1", "words": ["antidisestablishmentarian", "class"], "tags": ["O", "B-CODE"]}
    places = {}
    for run in (SCRATCH, "decoder"):
        setup = TrialSetup(run, "tag", max_tokens=64)
        (example,) = setup.task.encode([row])
        places[run] = np.flatnonzero(example.labels != IGNORE_INDEX).tolist()
    first, length = len(words[0]), len(words[0]) + len(words[1])
    assert first > 1 and places == {SCRATCH: [1, 1 + first], "decoder": [first, length]}


def test_a_run_that_was_pretrained_with_a_prefix_reads_both_ways(params: Params) -> None:
    path = Path("data/pretrained/decoder/run.json")
    write_json(path, read_json(path) | {"has_prefix": True})
    setup = TrialSetup("decoder", "tag", max_tokens=64)
    assert setup.task.has_prefix and setup.task.read_at == "first subword of a word"


def test_a_kept_trial_that_reads_elsewhere_is_refused(params: Params) -> None:
    setup = TrialSetup("decoder", "tag", max_tokens=64)
    trial = kept.KeptTrial(
        run="decoder",
        task="tag",
        method="full",
        label_budget="64",
        finetune_seed=1,
        component={"name": "full"},
        task_settings={},
        initial_weights=None,
        text_to_text=False,
        max_tokens=64,
        precision="float32",
        lr=0.001,
        threshold=0.0,
        drawn_weights="",
        **kept.fingerprints(setup) | {"read_at": "first subword of a word"},
    )
    with pytest.raises(ValueError, match=r"trial\.safetensors: predicts from the first subword"):
        kept.setup_of(trial, Path("trial.safetensors"))
