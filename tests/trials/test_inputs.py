"""How much of a task's rows a checkpoint reads, and where its labels are read."""

from pathlib import Path

import numpy as np
import pytest

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, write_json
from stages.core.keys import CheckpointKey
from stages.core.params import Params
from stages.evaluation.records import InputRecord
from stages.text.batch import IGNORE_INDEX
from stages.trials.estimates import input_records
from stages.trials.kept import fingerprint
from stages.trials.setup import TrialSetup
from tests.small import small_tokenizer
from tests.small_study import SCRATCH, tuned, write_pair

MAX_TOKENS = 14
DECODER = CheckpointKey("decoder", 1)


@pytest.fixture(autouse=True)
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


def test_setup_reads_labels_where_its_model_does() -> None:
    """A causal model reads a word at its last subword, unless it was pretrained with a prefix. Kept
    weights belong to one of these."""
    (words,) = small_tokenizer().encode_words([["antidisestablishmentarian", "class"]])
    row = {"id": "1", "words": ["antidisestablishmentarian", "class"], "tags": ["O", "B-CODE"]}

    def read(run: str) -> tuple[list[int], str]:
        setup = TrialSetup(CheckpointKey(run, 1), "tag", max_tokens=64)
        (example,) = setup.task.encode([row])
        places = np.flatnonzero(example.labels != IGNORE_INDEX).tolist()
        return places, fingerprint(setup)

    first, length = len(words[0]), len(words[0]) + len(words[1])
    assert first > 1
    (encoder, _), (decoder, before) = read(SCRATCH), read("decoder")
    assert (encoder, decoder) == ([1, 1 + first], [first, length])
    path = paths.pretrained(DECODER) / "run.json"
    write_json(path, read_json(path) | {"has_prefix": True})
    with_prefix, after = read("decoder")
    assert with_prefix == encoder and after != before
