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


def prepare(
    task: str | Json = "classification", source: Mapping[str, Any] = {}, **settings: Any
) -> Prepared:
    numbers: dict[str, Any] = {"num_train": "all", "num_validation": 10, "num_test": "all"}
    entry: dict[str, Any] = {
        "task": {"name": task} if isinstance(task, str) else task,
        "source": {"name": "files", "path": "reviews.csv", **source},
        "seed": 1,
    }
    plan = TaskPlan(task=TaskEntry(**(entry | numbers | settings)), packages="", code={})
    prepare_task.main(plan, "own")
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
    """Returns the settings of a source with a file for each split."""
    for name, rows in splits.items():
        write_table(f"{name}.csv", header, rows)
    return {"path": ".", **{name: f"{name}.csv" for name in splits}}


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
    assert (FOLDER / "test_originals.jsonl").read_text() == "" and "times" not in about


def test_prepare_task_draws_nested_samples_that_depend_on_the_seed_alone() -> None:
    """A sample of classes has the shares of all rows, to within a row."""
    write_reviews()
    whole, again, other = (prepare(seed=seed).train for seed in (1, 1, 2))
    assert whole == again != other
    small = prepare(num_train=60).train
    assert small == whole[:60]
    shares = [Counter(row["label"] for row in rows) for rows in (whole, small)]
    for label, number in shares[0].items():
        assert shares[1][label] == pytest.approx(60 * number / len(whole), abs=1)
    assert len(prepare(num_train=len(whole)).train) == len(whole)


def test_prepare_task_writes_facts_of_train_alone() -> None:
    """The mean and the deviation of targets, and the times of splits that are drawn by time."""
    lines = [f"Sentence {i}.,Other {i}.,{i % 5}.5,20{10 + i // 20}-01-01" for i in range(200)]
    write_table("reviews.csv", "a,b,score,day", lines)
    columns = {"text": "a", "text_pair": "b", "target": "score"}
    made = prepare("regression", columns)
    about, targets = made.about, [row["target"] for row in made.train]
    assert about["target_mean"] == pytest.approx(statistics.fmean(targets))
    assert about["target_std"] == pytest.approx(statistics.pstdev(targets))
    assert all("target" not in row for row in made.test)
    assert prepare("regression", columns | {"time": "day"}).about["times"] == {
        "train": ["2010-01-01", "2017-01-01"],
        "validation": ["2018-01-01", "2018-01-01"],
        "test": ["2019-01-01", "2019-01-01"],
    }


def test_prepare_task_of_text_alone_has_the_text_as_its_answer() -> None:
    write_table("reviews.csv", "text", [f"Sentence {i}." for i in range(200)])
    made = prepare("language_modelling")
    assert {frozenset(row) for row in made.test} == {frozenset({"id", "text"})}
    assert [row["text"] for row in made.labels] == [row["text"] for row in made.test]
    assert made.about["labels"] == []


# Duplicates and groups

EXAMPLE = st.builds(
    lambda text, split: Labelled("row", split, {"text": text, "label": "x"}),
    st.sampled_from(["a b", "A B", " a  b", "b", "c", "d", "e", "f"]),
    st.sampled_from(SPLITS),
)


@given(st.lists(EXAMPLE))
def test_without_duplicates_has_no_held_out_text_in_train(examples: list[Labelled]) -> None:
    kind = TASKS["classification"]
    remaining, removed = without_duplicates(examples, kind)
    inputs = {split: {kind.same_input(e.row) for e in remaining[split]} for split in SPLITS}
    assert not inputs["train"] & (inputs["validation"] | inputs["test"])
    assert not inputs["validation"] & inputs["test"]
    assert set.union(*inputs.values()) == {kind.same_input(e.row) for e in examples}
    assert len(remaining["test"]) == sum(e.split == "test" for e in examples)
    assert sum(map(len, remaining.values())) + sum(removed.values()) == len(examples)


def test_prepare_task_removes_what_is_held_out_and_counts_it() -> None:
    train = ["A film.,1", "A  FILM.,0", "More.,1", "Less.,0", "Odd.,1", "Even.,0", "ODD.,1"]
    validation, test = ["A film.,1", "less.,0"], ["Less.,0", "Other.,1"]
    files = write_splits("text,label", train=train, validation=validation, test=test)
    made = prepare(source=files, num_validation=1)
    assert made.about["duplicates_removed"] == {"train": 3, "validation": 1}
    assert made.about["duplicates_within_train"] == 1
    assert made.about["num_examples"] == {"train": 4, "validation": 1, "test": 2}
    assert sorted(row["text"] for row in made.train) == ["Even.", "More.", "ODD.", "Odd."]


def squad(context: str, *questions: str) -> Json:
    answers = [{"text": context[:3], "answer_start": 0}]
    entries = [{"id": f"{context} {q}", "question": q, "answers": answers} for q in questions]
    return {"paragraphs": [{"context": context, "qas": entries}]}


def test_prepare_task_removes_questions_about_a_held_out_context() -> None:
    articles = {
        "train": [squad("Ada wrote.", "Who?", "What?"), squad("Bob sang.", "Who?")],
        "validation": [squad("Eve drew.", "Who?")],
        "test": [squad("ada  wrote.", "Why?")],
    }
    for split, of_split in articles.items():
        Path(f"{split}.json").write_text(json.dumps({"data": of_split}))
    files = {"path": ".", **{split: f"{split}.json" for split in articles}}
    made = prepare("span_qa", files, num_validation=1)
    assert made.about["duplicates_removed"] == {"train": 2, "validation": 0}
    (row,), (hidden,) = made.train, made.test
    assert row["context"] == "Bob sang." and row["answers"] == [{"text": "Bob", "answer_start": 0}]
    assert hidden.keys() == {"id", "question", "context"}
    assert made.labels[0].keys() == {"id", "answers"}


def test_prepare_task_counts_rows_that_share_one_of_two_texts_with_a_later_split() -> None:
    splits = {
        "train": ["One.,Two.,a", "Three.,Four.,b", "Five.,Six.,a"],
        "validation": ["Three.,Eight.,b", "Nine.,Ten.,a"],
        "test": ["One.,Eleven.,a", "Twelve.,Thirteen.,b"],
    }
    files = write_splits("text,text_pair,label", **splits)
    about = prepare(source=files | {"text_pair": "text_pair"}, num_validation="all").about
    assert about["share_a_text"] == {"train": 2, "validation": 0}
    assert about["num_examples"] == {"train": 3, "validation": 2, "test": 2}


def test_prepare_task_keeps_groups_in_one_split_and_names_those_of_test() -> None:
    rows = [f"Review number {i} of it.,{LABELS[i % 3]},user{i // 5}" for i in range(300)]
    write_table("reviews.csv", "text,label,user", rows)
    made = prepare(source={"group": "user"})
    users = {row.split(",")[0]: row.split(",")[2] for row in rows}
    parts = [{users[row["text"]] for row in part} for part in (made.train, made.test)]
    assert not parts[0] & parts[1]
    assert {row["group"] for row in made.test} == parts[1]
    files = write_splits("text,label,user", train=rows[:60], test=["A late one.,good,user7"])
    with pytest.raises(ValueError, match="group: 1 of 12 groups .* such as 'user7' in test and "):
        prepare(source=files | {"group": "user"})
    write_table("reviews.csv", "text,label,user", rows[:10])
    with pytest.raises(ValueError, match="group: 2 groups are too few"):
        prepare(source={"group": "user"})


# Draws


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


def test_facts_of_several_draws_are_of_rows_that_all_of_them_train_on() -> None:
    write_table("reviews.csv", "text,target", [f"Sentence {i}.,{i % 7}" for i in range(200)])
    made = prepare("regression", num_validation="all", split_seeds=[1, 2])
    targets = [row["target"] for row in made.train if row["draws"] == [1, 2]]
    assert 0 < len(targets) < len(made.train)
    assert made.about["target_mean"] == pytest.approx(statistics.fmean(targets))


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
    ("settings", "message"),
    [
        ({"num_validation": 999}, "num_validation: 999 requested, but"),
        ({"task": {"name": "tagging"}}, "source: reviews.csv line 2: no column 'words'"),
        ({"source": {"path": "none.csv"}}, "source: path: no such"),
        ({"source": {"label": "signs"}}, r"source.no_label: is '-' \(100 rows\)"),
        ({"source": {"label": "cases"}}, "source.label_case: labels look alike"),
    ],
)
def test_prepare_task_names_the_setting_of_a_mistake(settings: Json, message: str) -> None:
    """Labels that can be read in two ways are refused until a setting decides."""
    rows = [f"Review {i} of it.,{'ab'[i % 2]},{'ab-'[i % 3]},{'aAb'[i % 3]}" for i in range(300)]
    write_table("reviews.csv", "text,label,signs,cases", rows)
    with pytest.raises(ValueError, match=f"tasks.own.{message}"):
        prepare(**settings)
    assert not FOLDER.exists()
    for source, labels in (
        ({"label": "signs", "no_label": ["-"]}, ["a", "b"]),
        ({"label": "cases", "label_case": "keep"}, ["A", "a", "b"]),
    ):
        assert prepare(source=source).about["labels"] == labels


def test_prepare_task_needs_every_label_in_train_and_leaves_rare_ones_out_if_told() -> None:
    common = [f"Review {i} of it.,{LABELS[i % 2]}" for i in range(60)]
    write_table("reviews.csv", "text,label", [*common, *(f"Rare {i}.,rare{i}" for i in range(9))])
    named = "no example of train has the label 'rare.'; `min_rows_per_class: 2`"
    with pytest.raises(ValueError, match=named):
        prepare(num_validation="all")
    prepared = prepare(num_validation="all", min_rows_per_class=2)
    assert prepared.about["labels"] == ["bad", "good"]
    assert sum(prepared.about["num_examples"].values()) == 60
    assert prepare(num_validation="all", min_rows_per_class=30).about["labels"] == ["bad", "good"]
    train, held_out = ["A.,good", "B.,bad"], {"validation": ["C.,fair"], "test": ["D.,bad"]}
    with pytest.raises(ValueError, match="no example of train has the label 'fair'; `min_rows"):
        prepare(source=write_splits("text,label", train=train, **held_out), num_validation="all")
    with pytest.raises(ValueError, match="all examples of train have the label 'good'"):
        prepare(source=write_splits("text,label", train=train[:1], **held_out), num_validation=1)
