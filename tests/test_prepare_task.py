"""A task keeps its test labels apart, its test texts out of train, and its samples nested."""

import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import prepare_task
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.code import code_hash
from stages.core.params import Task
from stages.core.plans import TaskPlan
from stages.core.study_file import load
from stages.kinds._kind import KINDS, SPLITS, of_draw
from stages.prepare_task import sharing, without_duplicates
from stages.reporting.words.tables import task_rows
from stages.sources._source import SOURCES, Labelled
from tests.published import DATASETS, needs_datasets
from tests.smoke import with_values, write_plans

FOLDER = Path("data/tasks/own")
EXAMPLES = FOLDER / "examples"
LABELS = ["good", "bad", "fair"]
CLASSIFICATION = KINDS["classification"]


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
    return TaskPlan(task=Task(**(entry | numbers | settings)), packages="", code={})


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


def write_splits(train: Sequence[str], dev: Sequence[str], test: Sequence[str]) -> dict[str, str]:
    """Returns the settings of a source with three files."""
    for name, rows in (("train", train), ("dev", dev), ("test", test)):
        write_table(f"{name}.csv", "text,label", rows)
    return {"path": ".", "train": "train.csv", "validation": "dev.csv", "test": "test.csv"}


def contents() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in FOLDER.rglob("*") if p.is_file()}


def test_prepare_task_keeps_test_labels_apart() -> None:
    write_reviews()
    _, train, _, test, labels = prepare()
    assert {frozenset(row) for row in train} == {frozenset({"id", "text", "label"})}
    assert {frozenset(row) for row in test} == {frozenset({"id", "text"})}
    assert {frozenset(row) for row in labels} == {frozenset({"id", "label"})}
    assert [row["id"] for row in test] == [row["id"] for row in labels]
    lines = Path("reviews.csv").read_text().splitlines()
    for row, label in zip(test, labels, strict=True):
        assert lines[int(row["id"].split(":")[1]) - 1] == f"{row['text']},{label['label']}"


def test_prepare_task_describes_the_task() -> None:
    write_reviews()
    about, train, validation, test, _ = prepare(num_validation="all")
    assert about["kind"] == "classification" and about["metric"] == "macro_f1"
    assert about["labels"] == sorted(LABELS)
    assert about["code"] == code_hash("tasks/classification")
    sizes = {"train": len(train), "validation": len(validation), "test": len(test)}
    assert about["num_examples"] == sizes and len(validation) > 10
    assert about["num_labels"] == {
        split: Counter(row["label"] for row in rows)
        for split, rows in (("train", train), ("validation", validation))
    }


def test_prepare_task_draws_the_same_from_the_same_seed_alone() -> None:
    write_reviews()
    prepare()
    first = contents()
    prepare()
    assert contents() == first
    prepare(seed=2)
    assert contents() != first


def test_prepare_task_takes_the_first_of_more_examples() -> None:
    write_reviews()
    few, more = (prepare(num_train=number).train for number in (20, 100))
    assert len(few) == 20 and more[:20] == few


# Kinds of rows


def test_language_modelling_rows_are_their_own_answers() -> None:
    """Texts are normalised in one way for all tokenizers."""
    write_table("reviews.csv", "text,label", [f'"Review\n{i}  of \ufb01ve.",x' for i in range(300)])
    about, train, _, test, labels = prepare("language_modelling")
    assert test == labels
    for row in [*test, *train]:
        assert row.keys() == {"id", "text"} and row["text"].endswith(" of five.")
        assert KINDS["language_modelling"].answer(row) == f"{len(row['text'])} 4"
    assert about["labels"] == []
    assert (about["metric"], about["other_metric"]) == ("bits_per_byte", "word_perplexity")


@pytest.mark.parametrize("tags", [("O", "B-PLACE"), ("DET", "NOUN")])
def test_tagging_rows_need_a_metric_that_suits_their_tags(tags: tuple[str, str]) -> None:
    lines = [f"The\t{tags[0]}\nroom{i}\t{tags[1]}\n" for i in range(60)]
    Path("a.conll").write_text("\n".join(lines))
    settings: dict[str, Any] = {"source": {"path": "a.conll"}, "num_validation": 2}
    metric = "entity_f1"
    if "DET" in tags:
        with pytest.raises(ValueError, match=r"tasks\.own\.task\.metric: entity_f1 .* tag 'DET'"):
            prepare("tagging", **settings)
        assert not FOLDER.exists()
        metric = "word_accuracy"
    made = prepare({"name": "tagging", "metric": metric}, **settings)
    assert made.about["labels"] == sorted(tags) and made.about["metric"] == metric
    assert made.test[0].keys() == {"id", "words"} and made.labels[0]["tags"] == [*tags]


def test_regression_rows_have_their_mean_and_standard_deviation_in_train() -> None:
    lines = [f"Sentence {i}.,Other {i}.,{i % 5}.5" for i in range(200)]
    write_table("reviews.csv", "a,b,score", lines)
    made = prepare("regression", {"text": "a", "text_pair": "b", "target": "score"})
    about, targets = made.about, [row["target"] for row in made.train]
    assert {*targets} == {0.5, 1.5, 2.5, 3.5, 4.5} and about["labels"] == []
    assert about["target_mean"] == pytest.approx(statistics.fmean(targets))
    assert about["target_std"] == pytest.approx(statistics.pstdev(targets))
    assert (about["metric"], about["other_metric"]) == ("pearson", "spearman")
    assert all("target" not in row for row in made.test)
    write_table("reviews.csv", "text,target", [f"Text {i}.,2" for i in range(200)])
    with pytest.raises(ValueError, match=r"^tasks\.own\.source\.target: "):
        prepare("regression")


def test_multiple_choice_rows_have_choices_of_a_list_or_of_columns() -> None:
    choices = ["He ate.", "Wet."]
    rows = [
        {"premise": f"It rained {i}.", "first": choices[0], "second": choices[1]}
        | {"choices": choices, "answer": 1 + i % 2}
        for i in range(100)
    ]
    Path("copa.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"path": "copa.jsonl", "text": "premise", "label": "answer", "first_choice": 1}
    of_columns, of_list = (
        prepare("multiple_choice", columns | {"choices": named}).train
        for named in (["first", "second"], "choices")
    )
    assert of_columns == of_list
    for row in of_list:
        assert row["choices"] == choices
        assert int(row["label"]) == int(row["text"].split()[-1][:-1]) % 2
    with pytest.raises(ValueError, match=r"^tasks\.own\.source: copa\.jsonl .*'third'"):
        prepare("multiple_choice", columns | {"choices": ["first", "third"]})


def test_multi_label_rows_may_have_no_label() -> None:
    cells = ["sad", "sad|angry", "", "glad"]
    write_table("reviews.csv", "text,labels", [f"Text {i}.,{cells[i % 4]}" for i in range(200)])
    made = prepare("multi_label", {"label_separator": "|"})
    assert made.about["labels"] == ["angry", "glad", "sad"]
    metrics = made.about["metric"], made.about["other_metric"]
    assert metrics == ("micro_f1", "macro_f1_of_labels")
    label_sets = {tuple(row["labels"]) for row in made.train}
    assert label_sets == {("sad",), ("angry", "sad"), (), ("glad",)}
    assert all("labels" not in row for row in made.test)


def squad(context: str, *questions: str, answered: bool = True) -> Json:
    answers = [{"text": context[:3], "answer_start": 0}] if answered else []
    entries = [{"id": f"{context} {q}", "question": q, "answers": answers} for q in questions]
    return {"paragraphs": [{"context": context, "qas": entries}]}


@pytest.mark.parametrize("no_answer", [False, True])
def test_span_qa_rows_may_have_no_answer_if_the_task_says_so(no_answer: bool) -> None:
    articles = [squad(f"It was Ada {i}.", "Who?", answered=False) for i in range(60)]
    Path("qa.json").write_text(json.dumps({"data": articles}))
    task, source = {"name": "span_qa", "no_answer": no_answer}, {"path": "qa.json"}
    if no_answer:
        labels = prepare(task, source, num_validation=2).labels
        assert labels and {KINDS["span_qa"].answer(row) for row in labels} == {"[]"}
    else:
        with pytest.raises(ValueError, match=r"tasks\.own\.task\.no_answer: .*Who\?"):
            prepare(task, source, num_validation=2)


@pytest.mark.parametrize("positive", ["good", "none", "other"])
def test_positive_f1_is_of_a_label_that_train_has(positive: str) -> None:
    write_reviews()
    task = {"name": "classification", "metric": "positive_f1", "positive": positive}
    if positive == "good":
        about = prepare(task).about
        assert (about["metric"], about["other_metric"]) == ("f1_of_good", "accuracy")
    else:
        with pytest.raises(ValueError, match=r"^tasks\.own\.task\.positive"):
            prepare(task)


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


def test_prepare_task_refuses_groups_too_few_for_three_splits() -> None:
    rows = [f"Review number {i} of it.,{LABELS[i % 3]},user{i % 3}" for i in range(30)]
    write_table("reviews.csv", "text,label,user", rows)
    with pytest.raises(
        ValueError,
        match=r"tasks.own.source.group: 3 groups are too few to draw .*"
        r"\(2 in train, 1 in validation, 0 in test\)",
    ):
        prepare(source={"group": "user"})


def test_prepare_task_refuses_a_group_that_is_also_in_a_given_split() -> None:
    rows = [f"Review number {i} of it.,{LABELS[i % 3]},user{i}" for i in range(60)]
    write_table("train.csv", "text,label,user", rows)
    write_table("test.csv", "text,label,user", ["A late review.,good,user7"])
    source = {"path": ".", "train": "train.csv", "test": "test.csv", "group": "user"}
    with pytest.raises(ValueError, match="group: 1 of 60 groups .* such as 'user7' in "):
        prepare(source=source)


def test_prepare_task_tells_the_times_of_splits() -> None:
    rows = [f"Review {i} of it.,{LABELS[i % 3]},{2000 + i * 7 % 20}" for i in range(200)]
    write_table("reviews.csv", "text,label,year", rows)
    made = prepare(source={"time": "year"}, num_validation="all")
    year = {f"Review {i} of it.": 2000 + i * 7 % 20 for i in range(200)}
    assert {year[row["text"]] for row in made.train} == {*range(2000, 2016)}
    assert {year[row["text"]] for row in made.test} == {2018, 2019}
    assert made.about["num_examples"] == {"train": 160, "validation": 20, "test": 20}
    times = {"train": ["2000", "2015"], "validation": ["2016", "2017"], "test": ["2018", "2019"]}
    assert made.about["times"] == times
    shown = "train 2000 to 2015; validation 2016 to 2017; test 2018 to 2019"
    assert task_rows({"own": made.about})[0]["splits by time"] == shown
    assert "times" not in prepare().about
    with pytest.raises(ValueError, match=r"^tasks\.own\.source: reviews\.csv line 2: text is 'Rev"):
        prepare(source={"time": "text"})


def test_prepare_task_makes_another_draw_with_another_split_seed() -> None:
    write_reviews(600)
    draws = [prepare(source={"split_seed": seed}, num_validation="all") for seed in (0, 1)]
    rows = [
        {row["text"].lower() for part in (d.train, d.validation, d.test) for row in part}
        for d in draws
    ]
    assert rows[0] == rows[1]
    first, second = ({row["id"] for row in draw.test} for draw in draws)
    assert 0 < len(first & second) < len(first) / 2
    assert first == {row["id"] for row in prepare(num_validation="all").test}
    with pytest.raises(ValueError, match=r"tasks\.own\.source: split_seed: .* are given"):
        prepare(source={**write_splits(["A.,1"], ["B.,1"], ["C.,0"]), "split_seed": 2})


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
    assert made.about["split_seeds"] == [1, 2, 3]
    assert made.about["num_examples"] == {s: min(size[s] for size in sizes) for s in SPLITS}
    assert {row["id"] for row in made.labels} == {row["id"] for row in made.test}
    assert not any("label" in row for row in made.test)
    # The order of a draw does not depend on the other seeds.
    fewer = prepare(num_validation="all", split_seeds=[3, 2]).train
    assert [r["id"] for r in of_draw(fewer, 2)] == [r["id"] for r in of_draw(made.train, 2)]


def test_prepare_task_names_the_seed_whose_splits_have_too_few_rows() -> None:
    write_reviews(12)
    with pytest.raises(
        ValueError, match=r"num_\w+: .* \(split_per_seed: in the splits of seed \d\)"
    ):
        prepare(num_validation=1, split_seeds=[1, 2, 3, 4, 5])


def test_prepare_task_removes_what_is_held_out_and_counts_it() -> None:
    train = ["A film.,1", "A  FILM.,0", "More.,1", "Less.,0", "Odd.,1", "Even.,0", "ODD.,1"]
    files = write_splits(train, ["A film.,1", "less.,0"], ["Less.,0", "Other.,1"])
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


def test_sharing_counts_premises_that_given_splits_share() -> None:
    """A row with both texts of a test row is removed; a row with the premise alone is counted."""
    texts = [
        ("train", "A", "one"),
        ("train", "A", "two"),
        ("train", "B", "one"),
        ("validation", "C", "one"),
        ("validation", "a", "three"),
        ("test", "A", "one"),
    ]
    examples = [
        Labelled(f"{split} {a} {b}", split, {"text": a, "text_pair": b, "label": "good"})  # type: ignore[arg-type]
        for split, a, b in texts
    ]
    kept, removed = without_duplicates(examples, CLASSIFICATION)
    assert removed == {"train": 1, "validation": 0}
    assert sharing(kept, CLASSIFICATION) == {"train": 1, "validation": 1}


@pytest.mark.slow
@needs_datasets
def test_prepare_task_removes_what_published_splits_share() -> None:
    """SST-2 has 3 sentences of train in other splits, too, and 9 sentences in train twice, one of
    which is among the 3."""
    files = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    source = {"path": f"{DATASETS}/sst2", "columns": ["text", "label"], **files}
    about = prepare(source=source, num_validation=800).about
    assert about["duplicates_removed"]["train"] == 3
    assert about["duplicates_within_train"] == 8


@needs_datasets
def test_without_duplicates_has_no_published_question_about_a_paragraph_of_another_split() -> None:
    """XQuAD asks about paragraphs of SQuAD's dev set."""
    files = {"train": "squad-v2.0-dev-half.json", "test": "xquad.en.json"}
    settings = {"path": f"{DATASETS}/qa", "unanswerable": "drop", **files}
    source = SOURCES.build({"name": "files", **settings}, where="tasks.own.source")
    kept, removed = without_duplicates(source.examples(KINDS["span_qa"]), KINDS["span_qa"])
    contexts = {split: {e.row["context"] for e in kept[split]} for split in SPLITS}
    assert not (contexts["train"] | contexts["validation"]) & contexts["test"]
    assert len(contexts["test"]) == 240 and sum(removed.values()) >= 78


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
    seen = b"".join(path.read_bytes() for path in EXAMPLES.iterdir())
    assert not any(row["text"].encode() in seen for row in originals.values())


# Mistakes


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("classification", {"num_validation": 999}, "tasks.own.num_validation: 999 requested, but"),
        ("classification", {"num_train": 9999}, "tasks.own.num_train: 9999 requested, but train"),
        ("clasification", {}, "tasks.own.task.name: unknown 'clasification'; did you mean 'classi"),
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


ONE_LABEL = "text,label\n" + "".join(f"Film {i}.,1\n" for i in range(50))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,label\nx,1\ny\n", "reviews.csv line 3: 1 cells, but 2 columns"),
        (b"text,label\nx,1\n\xff,0\n", "reviews.csv line 3: byte 0xff is not"),
        (b"text,label\n", "no labelled example was found"),
        (ONE_LABEL.encode(), "all examples of train have the label '1'"),
    ],
)
def test_prepare_task_leaves_nothing_of_data_that_cannot_be_read(content, message) -> None:
    Path("reviews.csv").write_bytes(content)
    with pytest.raises(ValueError) as error:
        prepare(num_validation=1)
    assert str(error.value).startswith(f"tasks.own.source: {message}")
    assert not any(Path.cwd().rglob("*.json*"))


def test_prepare_task_names_a_label_that_train_lacks_with_its_row() -> None:
    files = write_splits(["A film.,1", "More.,0"], ["Other.,1", "Worse.,2"], ["Last.,0"])
    message = "no example of train has the label '2' of validation row dev.csv:3; .*: '2' .1."
    with pytest.raises(ValueError, match=message):
        prepare(source=files, num_validation=2)


def test_prepare_task_names_all_rare_classes_and_leaves_them_out_if_told() -> None:
    common = [f"Review {i} of it.,{LABELS[i % 2]}" for i in range(60)]
    rare = [f"Other {i} of it.,rare{i}" for i in range(9)]
    write_table("reviews.csv", "text,label", [*common, *rare])
    named = "min_rows_per_class: 2.*'rare0' .1., .*'rare8' .1."
    with pytest.raises(ValueError, match=named):
        prepare(num_validation="all")
    prepared = prepare(num_validation="all", min_rows_per_class=2)
    assert prepared.about["labels"] == ["bad", "good"]
    assert sum(prepared.about["num_examples"].values()) == 60
    rows = [f"{row},{label}" for row, _, label in (row.rpartition(",") for row in [*common, *rare])]
    write_table("reviews.csv", "text,labels", rows)
    prepared = prepare("multi_label", num_validation="all", min_rows_per_class=2)
    assert prepared.about["labels"] == ["bad", "good"]
    assert sum(prepared.about["num_examples"].values()) == 69  # some without a label


@pytest.mark.parametrize(
    ("odd", "message", "settings", "labels"),
    [
        ("-", r"tasks.own.source.no_label: is '-' \(20 rows\)", {"no_label": ["-"]}, ["good"]),
        ("nan", "no_label: is 'nan'", {"no_label": "none"}, ["good", "nan"]),
        ("Good", r"label_case: .*'Good' \(20 rows\)", {"label_case": "fold"}, ["good"]),
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


@pytest.mark.slow
def test_prepare_task_ends_with_2_and_one_line_after_a_mistake(tmp_path: Path) -> None:
    changes = {"tasks.section.source": {"name": "files", "path": "reviews.csv"}}
    write_plans(load(with_values(tmp_path, changes)))
    write_table("reviews.csv", "text,label", ["Good.,1", "Bad."])
    command = [sys.executable, "-m", "stages.prepare_task", "section"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2 and run.stderr == (
        "error: tasks.section.source: reviews.csv line 3: 1 cells, but 2 columns: text, label\n"
    )
    assert not Path("data/tasks").exists()


def test_prepare_task_names_a_split_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source of one's own may call validation "dev"."""
    write_reviews(20)
    source = SOURCES.find("files", where="source")
    examples = source.examples

    def named_dev(self: Any, kind: Any) -> Any:
        return (Labelled(each.id, cast(Any, "dev"), each.row) for each in examples(self, kind))

    monkeypatch.setattr(source, "examples", named_dev)
    fault = r"^tasks\.own\.source: reviews\.csv:\d+ has the split 'dev'; valid: train, validation"
    with pytest.raises(ValueError, match=fault):
        prepare()
