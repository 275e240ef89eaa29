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
from stages.tasks._task import SPLITS, TASKS


def write_task(key: str, texts: dict[str, list[str]], name: str = "classification") -> None:
    folder = Path("data/tasks", key, "examples")
    folder.mkdir(parents=True)
    for split in SPLITS:
        rows = [
            {"id": f"{split} {i}", "text": text} | ({"label": "no"} if split != "test" else {})
            for i, text in enumerate(texts.get(split, []))
        ]
        write_jsonl(folder / f"{split}.jsonl", rows)
    record = {"task": {"name": name}, "kind": name, "labels": ["no", "yes"]}
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
    kept = [("large", "train")] * 8 + [("small", "train")] * 2
    kept += [("large", "validation"), ("small", "validation")]
    assert Counter((d.id.split()[0], d.split) for d in documents) == Counter(kept)
    texts = {document.sentences[0] for document in documents}
    assert {"large text: text 3", "small text: x", "small text: to judge"} <= texts
    assert not {text for text in texts if "test" in text.lower() or "to  judge" in text}
    assert {document.sentences[1] for document in documents} == {"no"}
    assert "large: 8 documents of 8 rows; 2 more are left out" in capsys.readouterr().out
    assert len({document.id for document in documents}) == len(documents)


def test_documents_of_a_small_task_are_repeated_each_as_often(written) -> None:
    documents = [*source("large", "small", temperature=1e9).documents()]
    train = Counter(d.sentences[0] for d in documents if d.split == "train")
    assert [n for text, n in train.items() if text.startswith("large")] == [1] * 5
    assert (train["small text: x"], train["small text: y"]) == (3, 2)
    assert len({d.id for d in documents}) == len(documents)


def test_documents_without_answers_are_texts_of_train_rows_alone(written) -> None:
    """Some documents are for validation even if the rows were split by the same hash."""
    texts = [f"text {i}" for i in range(300)]
    of_split = {str(s): [text for text in texts if split_of(text) == s] for s in SPLITS}
    taken = of_split["test"][0].upper()
    write_task("one", of_split | {"train": [*of_split["train"], taken]})
    write_task("texts", {"train": ["by itself"]}, name="language_modelling")
    documents = list(source("one", "texts", answers=False).documents())
    assert sorted(d.sentences for d in documents) == sorted(
        [text] for text in [*of_split["train"], "by itself"]
    )
    share = sum(d.split == "validation" for d in documents) / len(documents)
    assert {d.split for d in documents} == {"train", "validation"} and 0.05 < share < 0.2


@given(
    rows=st.lists(st.integers(1, 500), min_size=1, max_size=5),
    temperature=st.floats(1, 50),
    limit=st.one_of(st.just("all"), st.integers(1, 500)),
)
def test_mixed_shares_are_those_of_the_paper(rows, temperature, limit) -> None:
    numbers = {f"task_{i}": number for i, number in enumerate(rows)}
    mixed = source(*numbers, temperature=temperature, limit=limit).mixed(numbers)
    most = max(rows) if limit == "all" else limit
    rates = [min(number, most) ** (1 / temperature) for number in rows]
    for number, rate in zip(mixed.values(), rates, strict=True):
        assert abs(number - sum(rows) * rate / sum(rates)) <= 1
    assert abs(sum(mixed.values()) - sum(rows)) <= len(rows)


def test_mixed_shares_in_proportion_repeat_and_leave_out_nothing() -> None:
    rows = {"a": 700, "b": 200, "c": 100}
    assert source(*rows).mixed(rows) == rows
    assert source(*rows, limit=100).mixed(rows) == {"a": 333, "b": 333, "c": 333}
    # The square roots of the rows are 26.46, 14.14 and 10, which sum to 50.60.
    assert source(*rows, temperature=2.0).mixed(rows) == {"a": 523, "b": 279, "c": 198}


def test_tasks_refuse_what_gives_no_text_or_no_examples(written) -> None:
    for tasks, settings, message in (
        (["a", "a"], {}, "tasks: must name some, none twice"),
        (["a"], {"limit": 0}, "limit: must be at least 1 or 'all', not 0"),
        (["a"], {"temperature": 0.5}, "temperature: must be at least 1, not 0.5"),
    ):
        with pytest.raises(ValueError, match=message):
            source(*tasks, **settings)
    write_task("taken", {"train": ["a test"]})
    with pytest.raises(ValueError, match="tasks: taken has no row"):
        list(source("taken", "small").documents())
    kinds = {"texts": TASKS["language_modelling"]}
    (fault,) = source("texts").corpus_faults(kinds, decontaminated=False)
    assert "texts is language_modelling" in fault
    source("a").check(None)
    with pytest.raises(ValueError, match="tasks gives text for a corpus"):
        source("a").check(TASKS["classification"])
