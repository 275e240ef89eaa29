"""Faults of corpora, tokenizers, tasks and settings of fine-tuning."""

from typing import Any

import pytest

from tests.smoke import DELETED, Fault, faults_of, paths_of, smoke_with


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        ({"tokenizers.unigram.vocab_size": 300}, "tokenizers.unigram.vocab_size", "361"),
        ({"tokenizers.unigram.vocab_size": 10**12}, "tokenizers.unigram.vocab_size", "less"),
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


def test_corpus_faults_of_tasks_that_are_a_corpus() -> None:
    """They are tasks of the study, with answers to write."""
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
