"""Faults of corpora, tokenizers, tasks and settings of fine-tuning."""

from pathlib import Path
from typing import Any

import pytest

from stages.core.artifacts import Json
from stages.tasks._task import SPLITS
from tests.smoke import Fault, faults_of, paths_of, short_smoke_with, smoke_with


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"tokenizers.unigram.vocab_size": 300}, "tokenizers.unigram.vocab_size", "361"),
        ({"tokenizers.unigram.corpus": "pros"}, "tokenizers.unigram.corpus", "unknown"),
        ({"corpora.prose.source.path": "nowhere.txt"}, "corpora.prose.source", "nowhere.txt"),
        ({"corpora.prose.source.name": "installed"}, "corpora.prose.source.name", "unknown"),
        ({"corpora.prose.source.packages": ["pandsa"]}, "corpora.prose.source", "pandsa"),
        (
            {"corpora.prose.decontaminate_against": ["tag"]},
            "corpora.prose.decontaminate_against",
            "",
        ),
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
    ("budget", "num_train", "message"),
    [
        (30, "all", ""),
        (31, "all", "31 labels, but tasks.section has 30"),
        (5000, 20, "5000 is more than tasks.section.num_train"),
    ],
)
def test_task_faults_count_the_rows_of_local_files(
    tmp_path: Path, budget: int, num_train: Any, message: str
) -> None:
    for split in SPLITS:
        rows = (f"text {i},{i % 2}\n" for i in range(30 if split == "train" else 90))
        (tmp_path / f"{split}.csv").write_text("text,label\n" + "".join(rows))
    splits = {split: f"{split}.csv" for split in SPLITS}
    source = {"name": "files", "path": str(tmp_path)} | splits
    changes = {"tasks.section.source": source, "finetune.label_budgets": [10, budget]}
    changes |= {"tasks.section.num_train": num_train, "tasks.tag.num_train": "all"}
    faults = [f for f in faults_of(smoke_with(changes)) if "section" in f.message]
    assert faults == ([Fault("finetune.label_budgets", message)] if message else [])


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"tasks": ["tag", "section"]}, ""),
        ({"tasks": ["tagg"]}, "corpora.mix.source.tasks"),
        ({"tasks": ["tag"], "path": "data/labels"}, "corpora.mix.source.path"),
        ({"tasks": ["tag", "text"]}, "corpora.mix.source.tasks"),  # it has no answers to write
    ],
)
def test_corpus_faults_of_tasks_that_are_a_corpus(source: Json, path: str) -> None:
    tasks = {"name": "tasks", "path": "data/tasks"} | source
    entry = {"max_tokens": "all", "decontaminate_against": "none", "source": tasks}
    text = smoke_with({})["tasks"]["section"] | {"task": {"name": "language_modelling"}}
    paths = paths_of(smoke_with({"corpora.mix": entry, "tasks.text": text}))
    assert [p for p in paths if p.startswith("corpora")] == ([path] if path else [])
    if not path:
        entry["decontaminate_against"] = "tasks"
        assert "corpora.mix.decontaminate_against" in paths_of(smoke_with({"corpora.mix": entry}))


@pytest.mark.parametrize(
    ("source", "seeds", "words"),
    [
        ({}, [1, 2, 3], ""),
        ({}, [1], "finetune.seeds lists one seed"),
        ({"time": "day"}, [1, 2], "test rows are given or drawn by time"),
        ({"split": "fold"}, [1, 2], "test rows are given or drawn by time"),
        ({"split_seed": 3}, [1, 2], "leave out source.split_seed"),
    ],
)
def test_task_faults_of_seeds_that_draw_the_splits(
    tmp_path: Path, source: Json, seeds: list[int], words: str
) -> None:
    """A second task of the same rows is refused: an average would treat the two as independent."""
    lines = [f"Text {i}.,{i % 2},2020-01-{1 + i % 28:02},{SPLITS[i % 3]}" for i in range(300)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label,day,fold", *lines]))
    own = {"name": "files", "path": str(tmp_path / "reviews.csv")}
    entry = {"task": {"name": "classification"}, "source": own | source, "split_per_seed": True}

    def faults(**tasks: Json) -> list[Fault]:
        changes = {"tasks": tasks, "baselines": ["tfidf"], "finetune.seeds": seeds}
        study = short_smoke_with(changes)
        return faults_of(study | {"samples": {f"num_{split}": "all" for split in SPLITS}})

    expected = ["tasks.section.split_per_seed"] if words else []
    assert [fault.path for fault in faults(section=entry)] == expected
    assert all(words in fault.message for fault in faults(section=entry))
    if not words:
        (fault,) = faults(section=entry, again={"task": entry["task"], "source": own})
        assert "section has the same rows in another draw" in fault.message
