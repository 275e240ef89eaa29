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
        ({"tasks.tag.task.name": "taging"}, "tasks.tag.task.name", "unknown"),
        ({"tasks.tag.task": {"name": "span_qa", "stride": 500}}, "tasks.tag.task", "stride"),
        ({"finetune.label_budgets": [500]}, "finetune.label_budgets", "tasks.tag.num_train"),
        ({"finetune.methods.full.method.name": "ful"}, "finetune.methods.full.method.name", "full"),
        ({"baselines.tfidf.x": 1}, "baselines.tfidf.x", "unknown"),
    ],
)
def test_faults_of_inputs_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    faults = faults_of(smoke_with(changes))
    assert any(fault.path == path and word in fault.message for fault in faults), faults


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
        ({"split_seed": 3}, [1, 2], "leave out source.split_seed"),
    ],
)
def test_task_faults_of_seeds_that_draw_the_splits(
    tmp_path: Path, source: Json, seeds: list[int], words: str
) -> None:
    """A second task of the same rows is refused: an average would treat the two as independent."""
    lines = [f"Text {i}.,{i % 2},2020-01-{1 + i % 28:02}" for i in range(300)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label,day", *lines]))
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
