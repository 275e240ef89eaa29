"""A task keeps its test labels apart, its test texts out of train, and its samples nested."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import prepare_task
from stages.artifacts import read_json, read_jsonl, sha256
from stages.code import code_of
from stages.params import Params, Task
from stages.prepare_task import check_answers, stratified_order, without_duplicates
from stages.seeding import stream
from stages.sources._source import SPLITS, Document, Labelled, same_input
from stages.text.labelled import answer

FOLDER = Path("data/tasks/own")
EXAMPLES = FOLDER / "examples"
LABELS = ["good", "bad", "fair"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_csv(number: int = 300) -> None:
    rows = [f"Review number {i} of it.,{LABELS[i * i % 7 % 3]}" for i in range(number)]
    Path("reviews.csv").write_text("\n".join(["text,label", *rows, rows[0], rows[1].lower()]))


def params(task: str = "classification", **settings: Any) -> Params:
    """The part of params.yaml that the stage reads."""
    source = {"name": "files", "path": "reviews.csv", **settings.pop("source", {})}
    numbers = {"num_train": "all", "num_validation": 10, "num_test": "all", **settings}
    entry = Task(**{"task": {"name": task}, "source": source, "seed": 1, **numbers})
    return Params.model_construct(tasks={"own": entry})


def content() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in FOLDER.rglob("*") if p.is_file()}


def test_test_labels_stand_apart() -> None:
    write_csv()
    prepare_task.main(params(), "own")
    test = read_jsonl(EXAMPLES / "test.jsonl")
    labels = read_jsonl(FOLDER / "test_labels.jsonl")
    assert {frozenset(row) for row in test} == {frozenset({"id", "text"})}
    assert {frozenset(row) for row in labels} == {frozenset({"id", "label"})}
    assert [row["id"] for row in test] == [row["id"] for row in labels]
    assert {frozenset(row) for row in read_jsonl(EXAMPLES / "train.jsonl")} == {
        frozenset({"id", "text", "label"})
    }
    lines = Path("reviews.csv").read_text().splitlines()
    for row, label in zip(test, labels, strict=True):
        assert lines[int(row["id"].split(":")[1]) - 1] == f"{row['text']},{label['label']}"


def test_a_text_that_is_its_own_answer_stands_on_both_sides() -> None:
    """In one form for all tokenizers."""
    Path("reviews.csv").write_text(
        "text,label\n" + "".join(f'"Review\n{i}  of \ufb01ve.",x\n' for i in range(300))
    )
    prepare_task.main(params("language_modelling"), "own")
    test = read_jsonl(EXAMPLES / "test.jsonl")
    assert test == read_jsonl(FOLDER / "test_labels.jsonl")
    for row in [*test, *read_jsonl(EXAMPLES / "train.jsonl")]:
        assert row.keys() == {"id", "text"} and row["text"].endswith(" of five.")
        assert answer(row) == f"{len(row['text'])} 4"
    about = read_json(EXAMPLES / "task.json")
    assert (about["labels"], about["metric"], about["other_metric"]) == (
        [],
        "bits_per_byte",
        "word_perplexity",
    )


def test_the_task_describes_itself() -> None:
    write_csv()
    prepare_task.main(params(), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["kind"] == "classification" and about["metric"] == "macro_f1"
    assert about["labels"] == sorted(LABELS)
    assert about["code"] == sha256(*code_of("tasks/classification"))
    for split in ("train", "validation"):
        rows = read_jsonl(EXAMPLES / f"{split}.jsonl")
        assert about["num_examples"][split] == len(rows)
        assert about["num_labels"][split] == Counter(row["label"] for row in rows)


def test_tagging() -> None:
    lines = [f"The\tO\nroom{i}\tB-PLACE\n" for i in range(60)]
    Path("a.conll").write_text("\n".join(lines))
    prepare_task.main(params("tagging", source={"path": "a.conll"}, num_validation=2), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["labels"] == ["B-PLACE", "O"] and about["metric"] == "entity_f1"
    assert set(read_jsonl(EXAMPLES / "test.jsonl")[0]) == {"id", "words"}
    assert read_jsonl(FOLDER / "test_labels.jsonl")[0]["tags"] == ["O", "B-PLACE"]


def test_twice_is_the_same_and_another_seed_is_not() -> None:
    write_csv()
    prepare_task.main(params(), "own")
    first = content()
    prepare_task.main(params(), "own")
    assert content() == first
    prepare_task.main(params(seed=2), "own")
    assert content() != first


def test_fewer_examples_are_the_first_of_more() -> None:
    write_csv()
    found = []
    for number in (20, 100):
        prepare_task.main(params(num_train=number), "own")
        found.append((EXAMPLES / "train.jsonl").read_text().splitlines())
    assert len(found[0]) == 20 and found[1][:20] == found[0]


EXAMPLE = st.builds(
    lambda text, split: Labelled("row", split, {"text": text, "label": "x"}),
    st.sampled_from(["a b", "A B", " a  b", "b", "c", "d", "e", "f"]),
    st.sampled_from(SPLITS),
)


@given(st.lists(EXAMPLE))
def test_no_held_out_text_is_in_train(examples: list[Labelled]) -> None:
    kept, removed = without_duplicates(examples)
    inputs = {split: {same_input(e.row) for e in kept[split]} for split in SPLITS}
    assert not inputs["train"] & (inputs["validation"] | inputs["test"])
    assert not inputs["validation"] & inputs["test"]
    assert set.union(*inputs.values()) == {same_input(e.row) for e in examples}
    assert len(kept["test"]) == sum(e.split == "test" for e in examples)
    assert sum(map(len, kept.values())) + sum(removed.values()) == len(examples)


@given(st.lists(st.sampled_from(LABELS), min_size=1, max_size=60), st.integers(0, 3))
def test_every_prefix_is_a_sample(labels: list[str], seed: int) -> None:
    examples = [Labelled(str(i), "train", {"label": label}) for i, label in enumerate(labels)]
    order = stratified_order(examples, stream(seed, "sample", "train"))
    assert sorted(order) == list(range(len(labels)))
    totals = Counter(labels)
    assert {labels[i] for i in order[: len(totals)]} == set(totals)
    for n in range(1, len(labels) + 1):
        counts = Counter(labels[i] for i in order[:n])
        for label, total in totals.items():
            assert abs(counts[label] - n * total / len(labels)) <= len(totals)


def test_the_order_is_random() -> None:
    examples = [Labelled(str(i), "train", {"label": "x"}) for i in range(1000)]
    order = stratified_order(examples, stream(1, "sample", "train"))
    assert order != sorted(order)
    assert abs(sum(order[:500]) / 500 - 499.5) < 60


def test_removed_duplicates_are_counted() -> None:
    rows = "A film.,1\nA  FILM.,0\nMore.,1\nLess.,0\nOdd.,1\nEven.,0\n"
    Path("train.csv").write_text("text,label\n" + rows)
    Path("dev.csv").write_text("text,label\nA film.,1\nless.,0\n")
    Path("test.csv").write_text("text,label\nLess.,0\nOther.,1\n")
    files = {"path": ".", "train": "train.csv", "validation": "dev.csv", "test": "test.csv"}
    prepare_task.main(params(source=files, num_validation=1), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["duplicates_removed"] == {"train": 3, "validation": 1}
    assert about["num_examples"] == {"train": 3, "validation": 1, "test": 2}
    texts = {json.loads(line)["text"] for line in (EXAMPLES / "train.jsonl").open()}
    assert texts == {"More.", "Odd.", "Even."}


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("clasification", {}, "tasks.own.task.name: unknown 'clasification'; did you mean 'classi"),
        ("tagging", {}, "tasks.own.task: tagging needs words and tags, but reviews.csv:2 has text"),
        ("classification", {"num_train": 9999}, "tasks.own.num_train: 9999 asked for, but train"),
        ("classification", {"source": {"label": "gold"}}, "reviews.csv line 2: no column 'gold'"),
        ("classification", {"source": {"path": "none.csv"}}, "tasks.own.source: path: no such"),
    ],
)
def test_mistakes_are_named(task: str, settings: dict, message: str) -> None:
    write_csv()
    with pytest.raises(ValueError) as error:
        prepare_task.main(params(task, **settings), "own")
    assert message in str(error.value)
    assert not FOLDER.exists()


def test_a_label_that_train_lacks_is_named_with_its_row() -> None:
    Path("train.csv").write_text("text,label\nA film.,1\nMore.,0\n")
    Path("dev.csv").write_text("text,label\nOther.,1\nWorse.,-1\n")
    Path("test.csv").write_text("text,label\nLast.,0\n")
    files = {"path": ".", "train": "train.csv", "validation": "dev.csv", "test": "test.csv"}
    with pytest.raises(
        ValueError, match="no example of train has the label '-1' of validation row dev.csv:3"
    ):
        prepare_task.main(params(source=files, num_validation=2), "own")


def test_one_label_is_no_task() -> None:
    rows = "".join(f"Film {i}.,1\n" for i in range(50))
    Path("reviews.csv").write_text("text,label\n" + rows)
    with pytest.raises(ValueError, match="all examples of train have the label '1'"):
        prepare_task.main(params(num_validation=1), "own")
    Path("reviews.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match="tasks.own.source: no labelled example was found"):
        prepare_task.main(params(), "own")


ANSWERS = [{"text": "Ada", "answer_start": 7}]
QUESTIONS = [
    Labelled(f"q{i}", split, {"question": f"{i}?", "context": "It was Ada.", "answers": ANSWERS})
    for split, numbers in zip(SPLITS, (range(5), range(5, 7), range(7, 9)), strict=True)
    for i in numbers
]


class Questions:
    """A source of them."""

    def check(self, *, labelled: bool) -> None: ...

    def documents(self) -> Iterator[Document]:
        return iter([])

    def examples(self) -> Iterator[Labelled]:
        return iter(QUESTIONS)

    def versions(self) -> dict[str, str]:
        return {}


def test_answers_of_test_stand_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_task, "build", lambda *_, **__: Questions())
    prepare_task.main(params("span_qa", num_validation=2), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["labels"] == [] and about["kind"] == "span_qa"
    assert (about["metric"], about["other_metric"]) == ("squad_f1", "exact_match")
    for split in ("train", "validation"):
        assert all(row["answers"] == ANSWERS for row in read_jsonl(EXAMPLES / f"{split}.jsonl"))
    test = read_jsonl(EXAMPLES / "test.jsonl")
    assert {frozenset(row) for row in test} == {frozenset({"id", "question", "context"})}
    gold = [(row["id"], answer(row)) for row in read_jsonl(FOLDER / "test_labels.jsonl")]
    assert gold == [(row["id"], '["Ada"]') for row in test]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            [{"text": "Ada", "answer_start": 6}],
            "own.source: the context of row q has, where answer_start is 6, ' Ad', not the answer",
        ),
        ([{"text": "", "answer_start": 2}], "row q has, where answer_start is 2, '', not the"),
        ([{"text": "Ada", "answer_start": -4}], "row q has, where answer_start is -4"),
        ("Ada", "own.source: the answers of row q must be a list of text and answer_start"),
        ([], "own.task.no_answer: is false, but the question of row q has none"),
    ],
)
def test_an_answer_that_is_not_where_it_says_is_named_with_its_row(answers, message) -> None:
    wrong = Labelled("q", "train", QUESTIONS[0].row | {"answers": answers})
    with pytest.raises(ValueError, match=re.escape(message)):
        check_answers([*QUESTIONS, wrong], no_answer=False, where="own")


def test_a_question_may_have_no_answer_if_the_task_says_so() -> None:
    none = Labelled("q", "train", QUESTIONS[0].row | {"answers": []})
    check_answers([*QUESTIONS, none], no_answer=True, where="own")
