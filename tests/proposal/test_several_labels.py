"""Any number of labels for each text: from which columns, and when not."""

import json
from pathlib import Path

import pytest

from stages import prepare_task
from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.core.params import load
from stages.proposal.propose import Proposal
from tests.labelled_files import NUM, objects, proposed, table, texts

MOODS = (["sad"], ["sad", "angry"], [], ["glad"], ["glad", "calm", "sad"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").write_text("")


def rows(num: int = NUM) -> list[tuple[str, list[str]]]:
    return [(text, MOODS[i % len(MOODS)]) for i, (text, _) in enumerate(texts(num))]


def in_cells(sign: str) -> str:
    quoted = [(text, f'"{sign.join(labels)}"') for text, labels in rows()]
    return table([("comment", "moods"), *quoted])


def read_as(proposal: Proposal) -> set[tuple[str, ...]]:
    """The labels of the train rows that the written study prepares."""
    Path("params.yaml").write_text(proposal.text)
    params = load(Path("params.yaml"))
    assert not [*find_faults(params)]
    prepare_task.main(params, proposal.study.name)
    train = read_jsonl(paths.examples(proposal.study.name) / "train.jsonl")
    return {tuple(row["labels"]) for row in train}


def shown(proposal: Proposal) -> str:
    return " ".join([*proposal.notes.seen, *proposal.notes.unclear])


@pytest.mark.parametrize("sign", [",", "|", ";"])
def test_labels_in_a_cell(sign: str) -> None:
    Path("moods.csv").write_text(in_cells(sign))
    proposal = proposed("moods.csv")
    assert proposal.study.kind == "multi_label" and "one_vs_rest" in proposal.text
    assert (("label_separator" in proposal.text) == (sign != ",")) and "moods" in shown(proposal)
    assert "--task classification --column label=moods" in shown(proposal)
    assert read_as(proposal) == {tuple(sorted(labels)) for labels in MOODS}


def test_labels_in_a_list() -> None:
    Path("moods.jsonl").write_text(objects([{"text": t, "labels": each} for t, each in rows()]))
    proposal = proposed("moods.jsonl")
    assert proposal.study.kind == "multi_label" and "label_separator" not in proposal.text
    assert read_as(proposal) == {tuple(sorted(labels)) for labels in MOODS}


def test_one_label_a_row_stays_one() -> None:
    places = [
        (text, f'"{("Rome, Italy", "Bern, Swiss")[i % 2]}"') for i, (text, _) in enumerate(rows())
    ]
    Path("places.csv").write_text(table([("text", "place"), *places]))
    assert proposed("places.csv").study.kind == "classification"


def test_a_column_that_is_named_the_label_comes_first() -> None:
    both: list[Json] = [
        {"text": text, "keywords": MOODS[i % 5], "label": label}
        for i, (text, label) in enumerate(texts())
    ]
    Path("both.jsonl").write_text(objects(both))
    assert proposed("both.jsonl").study.kind == "classification"
    asked = proposed("both.jsonl", task="multi_label")
    assert asked.study.kind == "multi_label" and json.dumps("keywords")[1:-1] in asked.text


def test_each_combination_is_a_class_where_one_asks_for_it() -> None:
    Path("moods.csv").write_text(in_cells("|").replace('""', '"none"'))
    found = proposed("moods.csv", task="classification", columns={"label": ["moods"]})
    assert found.study.kind == "classification"
    assert "--task multi_label" in shown(found)


@pytest.mark.parametrize("target", ["target", "score"])
def test_a_number_that_is_named_the_target_comes_first(target: str) -> None:
    both = [
        {"text": text, target: i / 7, "genres": ["war, drama", "war"][i % 2]}
        for i, (text, _) in enumerate(texts())
    ]
    Path("both.jsonl").write_text(objects(both))
    assert proposed("both.jsonl").study.kind == "regression"


def test_a_text_that_is_named_the_summary_is_written() -> None:
    both = [
        {"article": f"{text}, he said and went.", "summary": f"{text}", "keywords": MOODS[i % 5]}
        for i, (text, _) in enumerate(texts())
    ]
    Path("both.jsonl").write_text(objects(both))
    assert proposed("both.jsonl").study.kind == "seq2seq"
