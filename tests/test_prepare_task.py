"""A task keeps its test labels apart, its test texts out of train, and its samples nested."""

import json
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import prepare_task
from stages.core.artifacts import read_json, read_jsonl
from stages.core.code import code_hash
from stages.core.params import Params, Task
from stages.kinds._kind import KINDS, SPLITS
from stages.prepare_task import sharing, without_duplicates
from stages.sources._source import SOURCES, Labelled
from tests.published import DATASETS, needs_datasets
from tests.smoke import with_values

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
    numbers: dict[str, Any] = {"num_train": "all", "num_validation": 10, "num_test": "all"}
    entry: dict[str, Any] = {"task": {"name": task}, "source": source, "seed": 1}
    return Params.model_construct(tasks={"own": Task(**(entry | numbers | settings))})


def content() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in FOLDER.rglob("*") if p.is_file()}


def test_every_split_may_be_taken_whole() -> None:
    write_csv()
    prepare_task.main(params(num_validation="all"), "own")
    numbers = read_json(EXAMPLES / "task.json")["num_examples"]
    found = {split: len(read_jsonl(EXAMPLES / f"{split}.jsonl")) for split in numbers}
    assert found == numbers and numbers["validation"] > 10


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
        assert KINDS["language_modelling"].answer(row) == f"{len(row['text'])} 4"
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
    assert about["code"] == code_hash("tasks/classification")
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


def test_single_tags_are_no_spans() -> None:
    lines = [f"The\tDET\nroom{i}\tNOUN\n" for i in range(60)]
    Path("a.conll").write_text("\n".join(lines))
    settings: dict[str, Any] = {"source": {"path": "a.conll"}, "num_validation": 2}
    with pytest.raises(ValueError, match=r"tasks\.own\.task\.metric: entity_f1 .* tag 'DET'"):
        prepare_task.main(params("tagging", **settings), "own")
    assert not FOLDER.exists()
    counted = params("tagging", **settings)
    counted.tasks["own"].task["metric"] = "word_accuracy"
    prepare_task.main(counted, "own")
    assert read_json(EXAMPLES / "task.json")["labels"] == ["DET", "NOUN"]


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
    kind = KINDS["classification"]
    kept, removed = without_duplicates(examples, kind)
    inputs = {split: {kind.same_input(e.row) for e in kept[split]} for split in SPLITS}
    assert inputs == {split: {kind.split_key(e.row) for e in kept[split]} for split in SPLITS}
    assert not inputs["train"] & (inputs["validation"] | inputs["test"])
    assert not inputs["validation"] & inputs["test"]
    assert set.union(*inputs.values()) == {kind.same_input(e.row) for e in examples}
    assert len(kept["test"]) == sum(e.split == "test" for e in examples)
    assert sum(map(len, kept.values())) + sum(removed.values()) == len(examples)


def test_removed_duplicates_are_counted() -> None:
    rows = "A film.,1\nA  FILM.,0\nMore.,1\nLess.,0\nOdd.,1\nEven.,0\n"
    Path("train.csv").write_text("text,label\n" + rows)
    Path("dev.csv").write_text("text,label\nA film.,1\nless.,0\n")
    Path("test.csv").write_text("text,label\nLess.,0\nOther.,1\n")
    files = {"path": ".", "train": "train.csv", "validation": "dev.csv", "test": "test.csv"}
    prepare_task.main(params(source=files, num_validation=1), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["duplicates_removed"] == {"train": 3, "validation": 1}
    assert about["duplicates_within_train"] == 0
    assert about["num_examples"] == {"train": 3, "validation": 1, "test": 2}
    texts = {json.loads(line)["text"] for line in (EXAMPLES / "train.jsonl").open()}
    assert texts == {"More.", "Odd.", "Even."}


def test_duplicates_within_train_are_kept_and_counted() -> None:
    Path("train.csv").write_text("text,label\nA film.,1\nA FILM.,0\nMore.,1\na  film.,0\n")
    Path("rest.csv").write_text("text,label\nLess.,1\n")
    Path("test.csv").write_text("text,label\nLast.,0\n")
    files = {"path": ".", "train": "train.csv", "validation": "rest.csv", "test": "test.csv"}
    prepare_task.main(params(source=files, num_validation=1), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["duplicates_within_train"] == 2 and about["num_examples"]["train"] == 4


def test_questions_about_a_held_out_context_are_removed() -> None:
    def questions(context: str, *asked: str) -> dict[str, Any]:
        answer = {"text": context[:3], "answer_start": 0}
        qas = [{"id": f"{context} {q}", "question": q, "answers": [answer]} for q in asked]
        return {"paragraphs": [{"context": context, "qas": qas}]}

    for split, articles in {
        "train": [questions("Ada wrote.", "Who?", "What?"), questions("Bob sang.", "Who?")],
        "dev": [questions("Eve drew.", "Who?")],
        "test": [questions("ada  wrote.", "Why?")],
    }.items():
        Path(f"{split}.json").write_text(json.dumps({"data": articles}))
    files = {"path": ".", "train": "train.json", "validation": "dev.json", "test": "test.json"}
    prepare_task.main(params("span_qa", source=files, num_validation=1), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["duplicates_removed"] == {"train": 2, "validation": 0}
    (row,) = read_jsonl(EXAMPLES / "train.jsonl")
    assert row["context"] == "Bob sang." and row["answers"] == [{"text": "Bob", "answer_start": 0}]
    (hidden,) = read_jsonl(EXAMPLES / "test.jsonl")
    assert hidden.keys() == {"id", "question", "context"}
    assert read_jsonl(FOLDER / "test_labels.jsonl")[0].keys() == {"id", "answers"}


def test_numbers_are_kept_with_their_mean_and_standard_deviation_in_train() -> None:
    lines = [f"Sentence {i}.,Other {i}.,{i % 5}.5" for i in range(200)]
    Path("pairs.csv").write_text("\n".join(["a,b,score", *lines]))
    columns = {"path": "pairs.csv", "text": "a", "text_pair": "b", "target": "score"}
    prepare_task.main(params("regression", source=columns), "own")
    about = read_json(EXAMPLES / "task.json")
    targets = [row["target"] for row in read_jsonl(EXAMPLES / "train.jsonl")]
    assert {*targets} == {0.5, 1.5, 2.5, 3.5, 4.5} and about["labels"] == []
    assert about["target_mean"] == pytest.approx(statistics.fmean(targets))
    assert about["target_std"] == pytest.approx(statistics.pstdev(targets))
    assert (about["metric"], about["other_metric"]) == ("pearson", "spearman")
    assert all("target" not in row for row in read_jsonl(EXAMPLES / "test.jsonl"))


def test_targets_that_are_all_the_same_are_refused() -> None:
    Path("same.csv").write_text("\n".join(["text,target", *(f"Text {i}.,2" for i in range(200))]))
    with pytest.raises(ValueError, match=r"^tasks\.own\.source\.target: "):
        prepare_task.main(params("regression", source={"path": "same.csv"}), "own")


def test_choices_may_be_a_list_or_several_columns() -> None:
    rows = [
        {"premise": f"It rained {i}.", "choice1": "He ate.", "choice2": "Wet.", "answer": 1 + i % 2}
        for i in range(100)
    ]
    lists = [{**row, "choices": [row["choice1"], row["choice2"]]} for row in rows]
    Path("copa.jsonl").write_text("\n".join(map(json.dumps, lists)))
    columns = {"path": "copa.jsonl", "text": "premise", "label": "answer", "first_choice": 1}
    written = []
    for choices in (["choice1", "choice2"], "choices"):
        prepare_task.main(params("multiple_choice", source=columns | {"choices": choices}), "own")
        written.append(read_jsonl(EXAMPLES / "train.jsonl"))
    assert written[0] == written[1]
    for row in written[0]:
        assert row["choices"] == ["He ate.", "Wet."]
        assert int(row["label"]) == int(row["text"].split()[-1][:-1]) % 2
    with pytest.raises(ValueError, match=r"^tasks\.own\.source: copa\.jsonl .*'choice3'"):
        source = columns | {"choices": ["choice1", "choice3"]}
        prepare_task.main(params("multiple_choice", source=source), "own")


@pytest.mark.parametrize("positive", ["good", "none", "other"])
def test_the_f1_of_a_label_is_that_of_one_that_train_has(positive: str) -> None:
    write_csv()
    asked = params()
    asked.tasks["own"].task.update({"metric": "positive_f1", "positive": positive})
    if positive == "good":
        prepare_task.main(asked, "own")
        about = read_json(EXAMPLES / "task.json")
        assert (about["metric"], about["other_metric"]) == ("f1_of_good", "accuracy")
    else:
        with pytest.raises(ValueError, match=r"^tasks\.own\.task\.positive"):
            prepare_task.main(asked, "own")


def test_translations() -> None:
    for split in ("train", "dev", "test"):
        Path(f"{split}.en").write_text(f"A {split}.\nMore {split}.\n")
        Path(f"{split}.de").write_text(f"Ein {split}.\nMehr {split}.\n")
    files = {"path": ".", "train": "train", "validation": "dev", "test": "test"}
    languages = {"format": "parallel", "text": "en", "target": "de"}
    prepare_task.main(params("seq2seq", source=files | languages, num_validation=2), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["num_examples"] == {"train": 2, "validation": 2, "test": 2}
    assert about["labels"] == [] and about["metric"] == "bleu"
    assert read_jsonl(EXAMPLES / "test.jsonl")[0].keys() == {"id", "text"}


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("classification", {"num_validation": 999}, "tasks.own.num_validation: 999 requested, but"),
        ("clasification", {}, "tasks.own.task.name: unknown 'clasification'; did you mean 'classi"),
        ("tagging", {}, "tasks.own.source: reviews.csv line 2: no column 'words'; there are: text"),
        ("classification", {"num_train": 9999}, "tasks.own.num_train: 9999 requested, but train"),
        (
            "classification",
            {"source": {"label": "gold"}},
            "own.source: reviews.csv line 2: no column",
        ),
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


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        (
            "classification",
            "a.csv",
            b"text,label\nx,1\ny\n",
            "a.csv line 3: 1 cells, but 2 columns",
        ),
        ("classification", "a.csv", b"text,label\nx,1\n\xff,0\n", "a.csv line 3: byte 0xff is not"),
        ("classification", "a.parquet", b"PAR1", "a.parquet: no whole parquet file"),
        ("classification", "a.csv", b"text,label\n", "no labelled example was found"),
        ("tagging", "a.conll", b"Ada\tO\nwrote\n", "a.conll line 2: 1 cells, but 2 columns"),
        (
            "tagging",
            "a.jsonl",
            b'{"words": ["Ada"], "tags": ["O", "O"]}',
            "a.jsonl line 1: 1 words need as many tags, not 2",
        ),
        (
            "span_qa",
            "a.json",
            b'{"data": [{"paragraphs": [{"context": "Ada.", "qas": [{"id": 7, "question": "Who?", '
            b'"answers": [{"text": "Bob", "answer_start": 0}]}]}]}]}',
            "a.json question 7: answers: 'Bob' is not in the context at character 0; the context",
        ),
        (
            "span_qa",
            "a.jsonl",
            b'{"id": 1, "question": "Who?", "context": "Ada.", "answer": "Ada"}',
            "a.jsonl line 1: no column 'answers'; there are: id, question, context, answer",
        ),
    ],
)
def test_data_that_cannot_be_read_leaves_nothing(
    task: str, name: str, content: bytes, message: str
) -> None:
    Path(name).write_bytes(content)
    with pytest.raises(ValueError) as error:
        prepare_task.main(params(task, source={"path": name}), "own")
    assert str(error.value).startswith(f"tasks.own.source: {message}")
    assert not Path("data").exists() or not any(Path("data").rglob("*.json*"))


@pytest.mark.slow
def test_a_mistake_ends_the_process_with_2_and_one_line(tmp_path: Path) -> None:
    with_values(tmp_path, {"tasks.section.source": {"name": "files", "path": "reviews.csv"}})
    Path("reviews.csv").write_text("text,label\nGood.,1\nBad.\n")
    run = subprocess.run(
        [sys.executable, "-m", "stages.prepare_task", "section"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2 and run.stderr == (
        "error: tasks.section.source: reviews.csv line 3: 1 cells, but 2 columns: text, label\n"
    )
    assert not Path("data").exists()


def test_a_dataset_out_of_reach_is_named_with_its_task(monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "cache")
    Path("requirements.lock").touch()
    hub = {"name": "hub", "path": "requirements.lock", "dataset": "own/reviews"}
    with pytest.raises(ValueError, match="^tasks.own.source: dataset: own/reviews at revision 0"):
        prepare_task.main(params(source=hub | {"revision": "0" * 40}), "own")


@pytest.mark.slow
@needs_datasets
def test_what_published_splits_share_is_removed_and_counted() -> None:
    """Of SST-2's train 3 sentences stand in the other splits, and 9 are there twice, of which one
    is among the 3."""
    files = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    source = {"path": f"{DATASETS}/sst2", "columns": ["text", "label"], **files}
    prepare_task.main(params(source=source, num_validation=800), "own")
    about = read_json(EXAMPLES / "task.json")
    assert about["duplicates_removed"]["train"] == 3
    assert about["duplicates_within_train"] == 8


@needs_datasets
def test_no_published_question_is_about_a_paragraph_of_another_split() -> None:
    """XQuAD asks about paragraphs of SQuAD's dev set."""
    files = {"train": "squad-v2.0-dev-half.json", "test": "xquad.en.json"}
    settings = {"path": f"{DATASETS}/qa", "unanswerable": "drop", **files}
    source = SOURCES.build({"name": "files", **settings}, where="tasks.own.source")
    kept, removed = without_duplicates(source.examples(KINDS["span_qa"]), KINDS["span_qa"])
    contexts = {split: {e.row["context"] for e in kept[split]} for split in SPLITS}
    assert not (contexts["train"] | contexts["validation"]) & contexts["test"]
    assert len(contexts["test"]) == 240 and sum(removed.values()) >= 78


def test_one_label_is_no_task() -> None:
    rows = "".join(f"Film {i}.,1\n" for i in range(50))
    Path("reviews.csv").write_text("text,label\n" + rows)
    with pytest.raises(ValueError, match="all examples of train have the label '1'"):
        prepare_task.main(params(num_validation=1), "own")
    Path("reviews.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match="tasks.own.source: no labelled example was found"):
        prepare_task.main(params(), "own")


@pytest.mark.parametrize("no_answer", [False, True])
def test_a_question_may_have_no_answer_if_the_task_says_so(no_answer) -> None:
    paragraphs = [
        {"context": f"It was Ada {i}.", "qas": [{"id": f"q{i}", "question": "Who?", "answers": []}]}
        for i in range(60)
    ]
    Path("qa.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    task = params("span_qa", num_validation=2, source={"path": "qa.json"})
    settings = {"task": {"name": "span_qa", "no_answer": no_answer}}
    task = task.model_copy(update={"tasks": {"own": task.tasks["own"].model_copy(update=settings)}})
    if no_answer:
        prepare_task.main(task, "own")
        test = read_jsonl(FOLDER / "test_labels.jsonl")
        assert test and {KINDS["span_qa"].answer(row) for row in test} == {"[]"}
    else:
        with pytest.raises(ValueError, match=r"tasks\.own\.task\.no_answer: .*q\d+"):
            prepare_task.main(task, "own")


NLI = KINDS["classification"]


def test_pairs_with_one_premise_are_drawn_into_one_split() -> None:
    lines = [
        f"Premise {i}.,Hypothesis {j}.,{LABELS[(i + j) % 3]}" for i in range(90) for j in (1, 2)
    ]
    Path("reviews.csv").write_text("\n".join(["text,text_pair,label", *lines]))
    source = {"name": "files", "path": "reviews.csv"}
    found = [*SOURCES.build(source, where="source").examples(NLI)]
    splits: dict[str, set[str]] = {}
    for example in found:
        splits.setdefault(example.row["text"], set()).add(example.split)
    assert all(len(of_premise) == 1 for of_premise in splits.values())
    assert set.union(*splits.values()) == {*SPLITS}


def test_premises_that_given_splits_share_are_counted_and_their_rows_kept() -> None:
    """A row with both texts of a test row is removed; one with its premise alone is counted."""

    def example(split: Any, premise: str, hypothesis: str) -> Labelled:
        row = {"text": premise, "text_pair": hypothesis, "label": "good"}
        return Labelled(f"{split} {premise} {hypothesis}", split, row)

    examples = [
        example("train", "A", "one"),
        example("train", "A", "two"),
        example("train", "B", "one"),
        example("validation", "C", "one"),
        example("validation", "a", "three"),
        example("test", "A", "one"),
    ]
    kept, removed = without_duplicates(examples, NLI)
    assert removed == {"train": 1, "validation": 0}
    assert sharing(kept, NLI) == {"train": 1, "validation": 1}


def test_test_rows_that_the_source_changed_are_written_as_they_were_apart_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_csv()
    source = SOURCES.find("files", where="source")
    examples = source.examples

    def masked(self: Any, kind: Any) -> Any:
        for number, each in enumerate(examples(self, kind)):
            was = {"text": each.row["text"]}
            row = each.row if number % 2 else each.row | {"text": f"masked {number}"}
            yield each._replace(row=row, original=was)

    monkeypatch.setattr(source, "examples", masked)
    prepare_task.main(params(), "own")
    test = {row["id"]: row for row in read_jsonl(EXAMPLES / "test.jsonl")}
    was = {row["id"]: row for row in read_jsonl(FOLDER / "test_originals.jsonl")}
    assert {*was} == {id for id, row in test.items() if row["text"].startswith("masked")}
    assert 0 < len(was) < len(test)
    assert all(row["text"].startswith("Review") for row in was.values())
    seen = b"".join(path.read_bytes() for path in EXAMPLES.iterdir())
    assert not any(row["text"].encode() in seen for row in was.values())


def test_labels_stand_between_separators_and_a_text_may_have_none() -> None:
    cells = ["sad", "sad|angry", "", "glad"]
    lines = [f"Text {i}.,{cells[i % 4]}" for i in range(200)]
    Path("moods.csv").write_text("\n".join(["text,labels", *lines]))
    prepare_task.main(
        params("multi_label", source={"path": "moods.csv", "label_separator": "|"}), "own"
    )
    about = read_json(EXAMPLES / "task.json")
    assert about["labels"] == ["angry", "glad", "sad"]
    assert (about["metric"], about["other_metric"]) == ("micro_f1", "macro_f1_of_labels")
    found = {tuple(row["labels"]) for row in read_jsonl(EXAMPLES / "train.jsonl")}
    assert found == {("sad",), ("angry", "sad"), (), ("glad",)}
    assert all("labels" not in row for row in read_jsonl(EXAMPLES / "test.jsonl"))
