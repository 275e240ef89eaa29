"""Tasks as a corpus: their rows as text, in shares, without rows that another task tests on."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.core.artifacts import write_json, write_jsonl
from stages.sources._source import split_of
from stages.sources.tasks import Tasks
from stages.tasks._kind import SPLITS
from stages.tasks._task import TASKS

FOLDER = "data/tasks"


def write_task(key: str, texts: dict[str, list[str]], **task: Any) -> None:
    folder = Path(FOLDER, key, "examples")
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        rows = [
            {"id": f"{split} {i}", "text": text} | ({"label": "no"} if split != "test" else {})
            for i, text in enumerate(texts.get(split, []))
        ]
        write_jsonl(folder / f"{split}.jsonl", rows)
    settings = {"name": "classification"} | task
    record = {"task": settings, "kind": settings["name"], "labels": ["no", "yes"]}
    write_json(folder / "task.json", record)


@pytest.fixture
def written() -> None:
    """Writes two tasks. ``large`` trains on a test text and on a validation text of ``small``."""
    large = [f"text {i}" for i in range(8)]
    write_task("large", {"train": [*large, "a TEST", "to  judge"], "validation": ["v", "a test"]})
    write_task("small", {"train": ["x", "y"], "validation": ["to judge"], "test": ["a test"]})


def source(*tasks: str, **settings: Any) -> Tasks:
    return Tasks(path="data/tasks", tasks=[*tasks], **settings)


def test_documents_are_text_and_answer_without_what_another_task_tests_on(written, capsys) -> None:
    documents = list(source("large", "small").documents())
    by_split = Counter((document.id.split()[0], document.split) for document in documents)
    assert by_split == {
        ("large", "train"): 8,
        ("small", "train"): 2,
        ("large", "validation"): 1,
        ("small", "validation"): 1,
    }
    texts = {document.sentences[0] for document in documents}
    assert "large text: text 3" in texts and "small text: x" in texts
    assert not {text for text in texts if "test" in text.lower()}
    assert "large text: to  judge" not in texts
    assert {document.sentences[1] for document in documents} == {"no"}
    assert "large: 8 documents of 8 rows; 2 more are left out" in capsys.readouterr().out
    assert len({document.id for document in documents}) == len(documents)


def test_documents_of_a_small_task_are_repeated_each_as_often(written) -> None:
    documents = [
        d for d in source("large", "small", temperature=1e9).documents() if d.split == "train"
    ]
    assert Counter(d.id.split()[0] for d in documents) == {"large": 5, "small": 5}
    small = Counter(d.sentences[0] for d in documents if d.id.startswith("small"))
    assert small == {"small text: x": 3, "small text: y": 2}
    assert len({d.id for d in documents}) == len(documents)


def test_documents_without_answers_are_texts_of_train_rows_alone(tmp_path, monkeypatch) -> None:
    """Some documents are for validation even if the rows were split by the same hash."""
    monkeypatch.chdir(tmp_path)
    texts = [f"text {i}" for i in range(300)]
    of_split = {str(s): [text for text in texts if split_of(text) == s] for s in SPLITS}
    taken = of_split["test"][0].upper()
    write_task("large", of_split | {"train": [*of_split["train"], taken]})
    write_task("texts", {"train": ["by itself"]}, name="language_modelling")
    documents = list(source("large", "texts", answers=False).documents())
    assert {tuple(d.sentences) for d in documents} == {
        (text,) for text in [*of_split["train"], "by itself"]
    }
    assert len(documents) == len(of_split["train"]) + 1
    share = sum(d.split == "validation" for d in documents) / len(documents)
    assert {d.split for d in documents} == {"train", "validation"} and 0.05 < share < 0.2


@given(
    rows=st.lists(st.integers(1, 500), min_size=1, max_size=5),
    temperature=st.floats(1, 50),
    limit=st.one_of(st.just("all"), st.integers(1, 500)),
)
def test_mixed_shares_are_those_of_the_paper(rows, temperature, limit) -> None:
    keys = [f"task_{i}" for i in range(len(rows))]
    numbers = source(*keys, temperature=temperature, limit=limit).mixed(
        dict(zip(keys, rows, strict=True))
    )
    most = max(rows) if limit == "all" else limit
    rates = [min(number, most) ** (1 / temperature) for number in rows]
    for key, rate in zip(keys, rates, strict=True):
        assert abs(numbers[key] - sum(rows) * rate / sum(rates)) <= 1
    assert abs(sum(numbers.values()) - sum(rows)) <= len(rows)


def test_mixed_shares_in_proportion_repeat_and_leave_out_nothing() -> None:
    rows = {"a": 700, "b": 200, "c": 100}
    assert source(*rows).mixed(rows) == rows
    assert source(*rows, limit=100).mixed(rows) == {"a": 333, "b": 333, "c": 333}
    # The square roots of the rows are 26.46, 14.14 and 10, which sum to 50.60.
    assert source(*rows, temperature=2.0).mixed(rows) == {"a": 523, "b": 279, "c": 198}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": []}, "tasks: must name some"),
        ({"tasks": ["a", "a"]}, "tasks: must name some, none twice"),
        ({"tasks": ["a"], "limit": 0}, "limit: must be at least 1 or 'all', not 0"),
        ({"tasks": ["a"], "temperature": 0.5}, "temperature: must be at least 1, not 0.5"),
    ],
)
def test_tasks_refuse_settings_that_mean_nothing(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        Tasks(path="data/tasks", **settings)


def test_tasks_refuse_a_task_without_rows_or_answers_to_write(written) -> None:
    write_task("texts", {"train": ["a"]}, name="language_modelling")
    with pytest.raises(ValueError, match=r"tasks: texts is language_modelling"):
        list(source("texts").documents())
    write_task("taken", {"train": ["a test"]})
    with pytest.raises(ValueError, match="tasks: taken has no row"):
        list(source("taken", "small").documents())


def test_tasks_give_no_examples() -> None:
    source("a").check(None)
    with pytest.raises(ValueError, match="tasks gives text for a corpus"):
        source("a").check(TASKS["classification"])
