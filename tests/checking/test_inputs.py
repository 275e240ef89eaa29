"""Faults of corpora, tokenizers, tasks and settings of fine-tuning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stages.core.artifacts import Json
from stages.tasks._kind import SPLITS
from tests.smoke import DELETED, Fault, faults_of, paths_of, short_smoke_with, smoke_with


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"tokenizers.unigram.vocab_size": 300}, "tokenizers.unigram.vocab_size", "361"),
        ({"tokenizers.unigram.vocab_size": 10**11}, "tokenizers.unigram.vocab_size", "less"),
        ({"tokenizers.unigram.corpus": "pros"}, "tokenizers.unigram.corpus", "unknown"),
        ({"corpora.prose.source.path": "nowhere.txt"}, "corpora.prose.source", "nowhere.txt"),
        ({"corpora.prose.source.name": "installed"}, "corpora.prose.source.name", "unknown"),
        ({"corpora.prose.source.packages": ["pandsa"]}, "corpora.prose.source", "pandsa"),
        ({"tasks.tag.task.name": "taging"}, "tasks.tag.task.name", "unknown"),
        ({"tasks.tag.task": {"name": "span_qa", "stride": 500}}, "tasks.tag.task", "stride"),
        ({"tasks.tag.task.label_subwords": "some"}, "tasks.tag.task.label_subwords", "'first'"),
        ({"finetune.label_budgets": [500]}, "finetune.label_budgets", "tasks.tag.num_train"),
        ({"finetune.label_budgets": [50, 50]}, "finetune.label_budgets", "repeat"),
        ({"finetune.seeds": [1, 1]}, "finetune.seeds", "repeat"),
        ({"finetune.methods.full.method.name": "ful"}, "finetune.methods.full.method.name", "full"),
        ({"baselines.tfidf.x": 1}, "baselines.tfidf.x", "unknown"),
    ],
)
def test_faults_of_inputs_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    faults = faults_of(smoke_with(changes))
    assert any(fault.path == path and word in fault.message for fault in faults), faults


@pytest.mark.parametrize(
    ("budgets", "num_train", "message"),
    [
        ([10, 5000], "all", "5000 labels, but tasks.section has 30"),
        ([10, 30], "all", ""),
        ([10, 31], "all", "31 labels, but tasks.section has 30"),
        (["all"], "all", ""),
        ([10, 5000], 20, "5000 is more than tasks.section.num_train"),
    ],
)
def test_task_faults_count_the_rows_of_local_files(
    tmp_path: Path, budgets: list[Any], num_train: Any, message: str
) -> None:
    for split, number in (("train", 30), ("validation", 90), ("test", 90)):
        rows = (f"text {i},{i % 2}\n" for i in range(number))
        (tmp_path / f"{split}.csv").write_text("text,label\n" + "".join(rows))
    splits = {split: f"{split}.csv" for split in ("train", "validation", "test")}
    source = {"name": "files", "path": str(tmp_path)} | splits
    changes = {"tasks.section.source": source, "finetune.label_budgets": budgets}
    changes |= {"tasks.section.num_train": num_train, "tasks.tag.num_train": "all"}
    faults = [f for f in faults_of(smoke_with(changes)) if "section" in f.message]
    assert [(fault.path, fault.message) for fault in faults] == (
        [("finetune.label_budgets", message)] if message else []
    )


def test_corpus_faults_of_tasks_that_are_a_corpus() -> None:
    """A corpus has tasks of the study with answers to write."""
    where = "corpora.mix.source"
    corpus = {"max_tokens": "all", "decontaminate_against": "none"}

    def faults(**source: Any) -> list[Fault]:
        entry = {"name": "tasks", "path": "data/tasks"} | source
        changes: dict[str, Any] = {"corpora.mix": corpus | {"source": entry}}
        text = smoke_with({})["tasks"]["section"] | {"task": {"name": "language_modelling"}}
        changes["tasks.text"] = text
        # Only faults of the corpus count: no method fits this task.
        return [
            fault for fault in faults_of(smoke_with(changes)) if fault.path.startswith("corpora")
        ]

    assert faults(tasks=["tag", "section"]) == []
    [fault] = faults(tasks=["tagg"])
    assert fault.path.startswith(where) and "'tag'" in fault.message
    [fault] = faults(tasks=["tag"], temperature=0.0)
    assert fault.path.startswith(where) and "temperature" in f"{fault.path} {fault.message}"
    [fault] = faults(tasks=["tag"], path="data/labels")
    assert fault.path == f"{where}.path"
    [fault] = faults(tasks=["tag", "text"])
    assert fault.path.startswith(where) and "text" in fault.message


def test_corpus_faults_of_what_a_corpus_is_decontaminated_against() -> None:
    where = "corpora.prose.decontaminate_against"
    assert faults_of(smoke_with({where: "tasks"})) == []
    for wrong in (["tag"], "tag", DELETED):
        assert paths_of(smoke_with({where: wrong})) == [where]
    source = {"name": "tasks", "path": "data/tasks", "tasks": ["tag"]}
    mix = {"source": source, "max_tokens": "all", "decontaminate_against": "tasks"}
    assert paths_of(smoke_with({"corpora.mix": mix})) == ["corpora.mix.decontaminate_against"]


def test_faults_of_draws_of_the_same_rows_refuse_a_second_one(tmp_path: Path) -> None:
    """An average would treat the two draws as independent."""
    reviews = tmp_path / "reviews.csv"
    reviews.write_text("text,label\n" + "".join(f"Text {i}.,{i % 2}\n" for i in range(300)))
    source = {"name": "files", "path": str(reviews)}
    entry = {"task": {"name": "classification"}, "num_train": "all", "num_validation": "all"}
    entry |= {"num_test": "all", "seed": 1}

    def faults(second: Json) -> list[Fault]:
        tasks = {"tasks.tag": entry | {"source": source}, "tasks.section": entry | second}
        return [f for f in faults_of(smoke_with(tasks)) if "split_seed" in f.path]

    (fault,) = faults({"source": source | {"split_seed": 2}})
    assert fault.path == "tasks.section.source.split_seed"
    assert "tag has the same rows in another draw" in fault.message
    assert faults({"source": source | {"split_seed": 2, "path": str(tmp_path)}}) == []


def test_task_faults_of_seeds_that_draw_the_splits(tmp_path: Path) -> None:
    header, rows = "text,label,day,fold", range(300)
    lines = [f"Text {i}.,{i % 2},2020-01-{1 + i % 28:02},{SPLITS[i % 3]}" for i in rows]
    (tmp_path / "reviews.csv").write_text("\n".join([header, *lines]))
    own = {"name": "files", "path": str(tmp_path / "reviews.csv")}

    def faults(source: Json, seeds: Sequence[int] = (1, 2, 3), **more: Json) -> list[Fault]:
        entry = {"task": {"name": "classification"}, "source": source, "split_per_seed": True}
        tasks = {"section": entry, **more}
        study = short_smoke_with(
            {"tasks": tasks, "baselines": ["tfidf"], "finetune.seeds": [*seeds]}
        )
        return faults_of(study | {"samples": {f"num_{split}": "all" for split in SPLITS}})

    assert faults(own) == []
    files = {"path": str(tmp_path), "train": "reviews.csv", "test": "reviews.csv"}
    docs = {"name": "installed_docs", "path": "requirements.lock", "packages": ["pandas"]}
    for source, seeds, words in (
        (own, [1], "finetune.seeds lists one seed"),
        (own | {"time": "day"}, [1, 2], "test rows are given or drawn by time"),
        (own | {"split": "fold"}, [1, 2], "test rows are given or drawn by time"),
        (own | {"split_seed": 3}, [1, 2], "leave out source.split_seed"),
        (docs | {"annotation": "sections"}, [1, 2], "only the sources files and hub"),
    ):
        (fault,) = faults(source, seeds)
        assert fault.path == "tasks.section.split_per_seed" and words in fault.message
    assert "tasks.section.split_per_seed" in {f.path for f in faults(own | files)}
    (fault,) = faults(own, again={"task": {"name": "classification"}, "source": own})
    assert "section has the same rows in another draw" in fault.message
