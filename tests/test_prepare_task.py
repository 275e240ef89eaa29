"""A task keeps its test labels apart, its test texts out of train, and its samples nested."""

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import prepare_task
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.params import TaskEntry
from stages.core.plans import TaskPlan
from stages.prepare_task import without_duplicates
from stages.sources._source import SOURCES, Labelled
from stages.tasks._labelled_rows import of_draw
from stages.tasks._task import SPLITS, TASKS

FOLDER = Path("data/tasks/own")
EXAMPLES = FOLDER / "examples"
LABELS = ["good", "bad", "fair"]
CLASSIFICATION = TASKS["classification"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Prepared(NamedTuple):
    """What the stage has written."""

    about: Json
    train: list[Json]
    validation: list[Json]
    test: list[Json]
    labels: list[Json]


def plan(task: str | Json, source: Json, **settings: Any) -> TaskPlan:
    numbers: dict[str, Any] = {"num_train": "all", "num_validation": 10, "num_test": "all"}
    entry: dict[str, Any] = {
        "task": {"name": task} if isinstance(task, str) else task,
        "source": {"name": "files", "path": "reviews.csv", **source},
        "seed": 1,
    }
    return TaskPlan(task=TaskEntry(**(entry | numbers | settings)), packages="", code={})


def prepare(
    task: str | Json = "classification", source: Mapping[str, Any] = {}, **settings: Any
) -> Prepared:
    prepare_task.main(plan(task, {**source}, **settings), "own")
    about, labels = read_json(EXAMPLES / "task.json"), read_jsonl(FOLDER / "test_labels.jsonl")
    train, validation, test = (read_jsonl(EXAMPLES / f"{split}.jsonl") for split in SPLITS)
    return Prepared(about, train, validation, test, labels)


def write_table(name: str, header: str, rows: Sequence[str]) -> None:
    Path(name).write_text("\n".join([header, *rows]) + "\n")


def write_reviews(number: int = 300) -> None:
    """Reviews, the last two of which repeat the first two."""
    rows = [f"Review number {i} of it.,{LABELS[i * i % 7 % 3]}" for i in range(number)]
    write_table("reviews.csv", "text,label", [*rows, rows[0], rows[1].lower()])


def write_splits(header: str, **splits: Sequence[str]) -> dict[str, str]:
    """Returns the settings of a source with three files."""
    for name, rows in splits.items():
        write_table(f"{name}.csv", header, rows)
    return {"path": ".", "train": "train.csv", "validation": "dev.csv", "test": "test.csv"}


def test_prepare_task_describes_the_task_and_keeps_test_labels_apart() -> None:
    write_reviews()
    about, train, validation, test, labels = prepare(num_validation="all")
    assert about["kind"] == "classification" and about["metric"] == "macro_f1"
    assert about["labels"] == sorted(LABELS)
    sizes = {"train": len(train), "validation": len(validation), "test": len(test)}
    assert about["num_examples"] == sizes and len(validation) > 10
    assert about["num_labels"] == {
        split: Counter(row["label"] for row in rows)
        for split, rows in (("train", train), ("validation", validation))
    }
    assert {frozenset(row) for row in train} == {frozenset({"id", "text", "label"})}
    assert {frozenset(row) for row in test} == {frozenset({"id", "text"})}
    assert {frozenset(row) for row in labels} == {frozenset({"id", "label"})}
    assert [row["id"] for row in test] == [row["id"] for row in labels]
    lines = Path("reviews.csv").read_text().splitlines()
    for row, label in zip(test, labels, strict=True):
        assert lines[int(row["id"].split(":")[1]) - 1] == f"{row['text']},{label['label']}"


def test_prepare_task_draws_the_same_from_the_same_seed_alone() -> None:
    write_reviews()
    drawn = list[list[Json]]()
    for seed in (1, 1, 2):
        drawn.append(prepare(seed=seed).train)
    assert drawn[0] == drawn[1] != drawn[2]


def test_regression_rows_have_their_mean_and_standard_deviation_in_train() -> None:
    lines = [f"Sentence {i}.,Other {i}.,{i % 5}.5" for i in range(200)]
    write_table("reviews.csv", "a,b,score", lines)
    made = prepare("regression", {"text": "a", "text_pair": "b", "target": "score"})
    about, targets = made.about, [row["target"] for row in made.train]
    assert about["target_mean"] == pytest.approx(statistics.fmean(targets))
    assert about["target_std"] == pytest.approx(statistics.pstdev(targets))
    assert all("target" not in row for row in made.test)


def squad(context: str, *questions: str, answered: bool = True) -> Json:
    answers = [{"text": context[:3], "answer_start": 0}] if answered else []
    entries = [{"id": f"{context} {q}", "question": q, "answers": answers} for q in questions]
    return {"paragraphs": [{"context": context, "qas": entries}]}


# Duplicates

EXAMPLE = st.builds(
    lambda text, split: Labelled("row", split, {"text": text, "label": "x"}),
    st.sampled_from(["a b", "A B", " a  b", "b", "c", "d", "e", "f"]),
    st.sampled_from(SPLITS),
)


@given(st.lists(EXAMPLE))
def test_without_duplicates_has_no_held_out_text_in_train(examples: list[Labelled]) -> None:
    kind = CLASSIFICATION
    kept, removed = without_duplicates(examples, kind)
    inputs = {split: {kind.same_input(e.row) for e in kept[split]} for split in SPLITS}
    assert not inputs["train"] & (inputs["validation"] | inputs["test"])
    assert not inputs["validation"] & inputs["test"]
    assert set.union(*inputs.values()) == {kind.same_input(e.row) for e in examples}
    assert len(kept["test"]) == sum(e.split == "test" for e in examples)
    assert sum(map(len, kept.values())) + sum(removed.values()) == len(examples)


def test_prepare_task_refuses_a_group_that_is_also_in_a_given_split() -> None:
    rows = [f"Review number {i} of it.,{LABELS[i % 3]},user{i}" for i in range(60)]
    files = write_splits("text,label,user", train=rows, dev=[], test=["A late one.,good,user7"])
    del files["validation"]
    with pytest.raises(ValueError, match="group: 1 of 60 groups .* such as 'user7' in "):
        prepare(source=files | {"group": "user"})


def test_prepare_task_writes_the_draw_of_each_seed() -> None:
    """Each seed has the rows of a task whose only draw is that seed's."""
    write_reviews(400)
    made = prepare(num_validation="all", split_seeds=[1, 2, 3])
    parts = [made.train, made.validation, made.test]
    sizes = list[dict[str, int]]()
    for seed in (1, 2, 3):
        one = prepare(source={"split_seed": seed}, num_validation="all")
        sizes.append(one.about["num_examples"])
        for rows, alone in zip(parts, (one.train, one.validation, one.test), strict=True):
            assert {row["id"] for row in rows if seed in row["draws"]} == {r["id"] for r in alone}
        assert one.about["split_seeds"] == [] and "draws" not in one.train[0]
    assert made.about["num_examples"] == {s: min(size[s] for size in sizes) for s in SPLITS}
    assert {row["id"] for row in made.labels} == {row["id"] for row in made.test}
    assert not any("label" in row for row in made.test)
    # The order of a draw does not depend on the other seeds.
    fewer = prepare(num_validation="all", split_seeds=[3, 2]).train
    assert [r["id"] for r in of_draw(fewer, 2)] == [r["id"] for r in of_draw(made.train, 2)]


def test_prepare_task_removes_what_is_held_out_and_counts_it() -> None:
    train = ["A film.,1", "A  FILM.,0", "More.,1", "Less.,0", "Odd.,1", "Even.,0", "ODD.,1"]
    dev, test = ["A film.,1", "less.,0"], ["Less.,0", "Other.,1"]
    files = write_splits("text,label", train=train, dev=dev, test=test)
    made = prepare(source=files, num_validation=1)
    assert made.about["duplicates_removed"] == {"train": 3, "validation": 1}
    assert made.about["duplicates_within_train"] == 1
    assert made.about["num_examples"] == {"train": 4, "validation": 1, "test": 2}
    assert sorted(row["text"] for row in made.train) == ["Even.", "More.", "ODD.", "Odd."]


def test_prepare_task_removes_questions_about_a_held_out_context() -> None:
    articles = {
        "train": [squad("Ada wrote.", "Who?", "What?"), squad("Bob sang.", "Who?")],
        "dev": [squad("Eve drew.", "Who?")],
        "test": [squad("ada  wrote.", "Why?")],
    }
    for split, of_split in articles.items():
        Path(f"{split}.json").write_text(json.dumps({"data": of_split}))
    files = {"path": ".", "train": "train.json", "validation": "dev.json", "test": "test.json"}
    made = prepare("span_qa", files, num_validation=1)
    assert made.about["duplicates_removed"] == {"train": 2, "validation": 0}
    (row,), (hidden,) = made.train, made.test
    assert row["context"] == "Bob sang." and row["answers"] == [{"text": "Bob", "answer_start": 0}]
    assert hidden.keys() == {"id", "question", "context"}
    assert made.labels[0].keys() == {"id", "answers"}


def test_test_originals_are_apart_from_what_the_source_changed(monkeypatch) -> None:
    write_reviews()
    source = SOURCES.find("files", where="source")
    examples = source.examples

    def masked(self: Any, kind: Any) -> Any:
        for number, example in enumerate(examples(self, kind)):
            row = example.row if number % 2 else example.row | {"text": f"masked {number}"}
            yield example._replace(row=row, original={"text": example.row["text"]})

    monkeypatch.setattr(source, "examples", masked)
    test = {row["id"]: row for row in prepare().test}
    originals = {row["id"]: row for row in read_jsonl(FOLDER / "test_originals.jsonl")}
    assert {*originals} == {id for id, row in test.items() if row["text"].startswith("masked")}
    assert 0 < len(originals) < len(test)
    assert all(row["text"].startswith("Review") for row in originals.values())


# Mistakes


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("classification", {"num_validation": 999}, "tasks.own.num_validation: 999 requested, but"),
        ("tagging", {}, "tasks.own.source: reviews.csv line 2: no column 'words'; there are: text"),
        ("classification", {"source": {"path": "none.csv"}}, "tasks.own.source: path: no such"),
    ],
)
def test_prepare_task_names_the_setting_of_a_mistake(task, settings, message) -> None:
    write_reviews()
    with pytest.raises(ValueError) as error:
        prepare(task, **settings)
    assert message in str(error.value)
    assert not FOLDER.exists()


def test_prepare_task_names_a_rare_class_and_leaves_rare_ones_out_if_told() -> None:
    common = [f"Review {i} of it.,{LABELS[i % 2]}" for i in range(60)]
    rare = [f"Other {i} of it.,rare{i}" for i in range(9)]
    write_table("reviews.csv", "text,label", [*common, *rare])
    named = "no example of train has the label 'rare.'; `min_rows_per_class: 2`"
    with pytest.raises(ValueError, match=named):
        prepare(num_validation="all")
    prepared = prepare(num_validation="all", min_rows_per_class=2)
    assert prepared.about["labels"] == ["bad", "good"]
    assert sum(prepared.about["num_examples"].values()) == 60


@pytest.mark.parametrize(
    ("odd", "message", "settings", "labels"),
    [
        ("-", r"tasks.own.source.no_label: is '-' \(20 rows\)", {"no_label": ["-"]}, ["good"]),
        ("Good", "label_case: keep", {"label_case": "keep"}, ["Good", "good"]),
    ],
)
def test_prepare_task_refuses_labels_of_two_readings_until_a_setting_decides(
    odd: str, message: str, settings: Json, labels: list[str]
) -> None:
    rows = [f"Review {i} of it.,{('good', odd, 'bad')[i % 3]}" for i in range(60)]
    write_table("reviews.csv", "text,label", rows)
    with pytest.raises(ValueError, match=message):
        prepare(num_validation="all")
    prepared = prepare(source=settings, num_validation="all")
    assert prepared.about["labels"] == sorted([*labels, "bad"])
