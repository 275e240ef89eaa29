"""The standard study's sources read small data with the layout of the published datasets at the
pinned commits: files, configurations, splits, columns and types."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import huggingface_hub.constants
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from stages.core.study_file import load
from stages.sources._source import SOURCES
from stages.sources.hub import Hub
from stages.tasks._task import TASKS

STUDY = load(Path(__file__).parents[2] / "studies" / "standard.yaml")
TEXT, NUMBER = Value("string"), Value("int32")
SENTIMENT = ClassLabel(names=["negative", "positive"])
RELATION = ClassLabel(names=["entailment", "neutral", "contradiction"])
UPOS = ["NOUN", "PUNCT", "ADP", "NUM", "SYM", "SCONJ", "ADJ", "PART", "DET"]  # the first of 18
ENTITIES = ["corporation", "creative-work", "group", "location", "person", "product"]
BIO = ["O", *(f"{letter}-{entity}" for entity in ENTITIES for letter in "BI")]


@dataclass(frozen=True)
class Layout:
    """The layout of a dataset's files, and the row that each split has three times."""

    file: str
    features: dict[str, Any]
    row: dict[str, Any]
    splits: tuple[str, ...] = ("train", "validation", "test")
    configs: tuple[tuple[str, str], ...] = ()  # configurations in the card, with their folders
    hidden: dict[str, Any] = field(default_factory=dict)  # cells that differ in the test split


LAYOUTS = {
    "Salesforce/wikitext": Layout(
        "wikitext-2-raw-v1/{}-00000-of-00001.parquet",
        {"text": TEXT},
        {"text": " A dog is an animal . \n"},
        configs=tuple((f"wikitext-{n}-v1", f"wikitext-{n}-v1") for n in ("103-raw", "2", "2-raw")),
    ),
    "stanfordnlp/imdb": Layout(
        "plain_text/{}-00000-of-00001.parquet",
        {"text": TEXT, "label": ClassLabel(names=["neg", "pos"])},
        {"text": "A film. Not bad.", "label": -1},
        splits=("train", "test", "unsupervised"),
        configs=(("plain_text", "plain_text"),),
    ),
    "stanfordnlp/sst2": Layout(
        "data/{}-00000-of-00001.parquet",
        {"idx": NUMBER, "sentence": TEXT, "label": SENTIMENT},
        {"idx": 0, "sentence": "not bad ", "label": 1},
        configs=(("default", "data"),),
        hidden={"label": -1},
    ),
    "nyu-mll/multi_nli": Layout(
        "data/{}-00000-of-00001.parquet",
        {"pairID": TEXT, "premise": TEXT, "hypothesis": TEXT, "genre": TEXT, "label": RELATION},
        {"pairID": "1n", "premise": "A dog.", "hypothesis": "A cat.", "genre": "x", "label": 2},
        splits=("train", "validation_matched", "validation_mismatched"),
        configs=(("default", "data"),),
    ),
    "universal-dependencies/universal_dependencies": Layout(
        "en_ewt/universal_dependencies-{}.parquet",
        {"text": TEXT, "tokens": List(TEXT), "upos": List(ClassLabel(names=UPOS))}
        | {"xpos": List(TEXT)},
        {"text": "A dog", "tokens": ["A", "dog"], "upos": [8, 0], "xpos": ["DT", "NN"]},
    ),
    "leondz/wnut_17": Layout(
        "wnut_17/{}/0000.parquet",
        {"id": TEXT, "tokens": List(TEXT), "ner_tags": List(ClassLabel(names=BIO))},
        {"id": "0", "tokens": ["In", "New", "York"], "ner_tags": [0, 7, 8]},
    ),
    "rajpurkar/squad": Layout(
        "plain_text/{}-00000-of-00001.parquet",
        {"id": TEXT, "title": TEXT, "context": TEXT, "question": TEXT}
        | {"answers": Features(text=List(TEXT), answer_start=List(NUMBER))},
        {"id": "0", "title": "Dog", "context": "A dog.", "question": "What?"}
        | {"answers": {"text": ["dog"], "answer_start": [2]}},
        splits=("train", "validation"),
        configs=(("plain_text", "plain_text"),),
    ),
    "bentrevett/multi30k": Layout(
        "default/{}/0000.parquet", {"en": TEXT, "de": TEXT}, {"en": "A dog.", "de": "Ein Hund."}
    ),
}
ROWS = {
    "sentiment": {"text": "not bad ", "label": "positive"},
    "inference": {"text": "A dog.", "text_pair": "A cat.", "label": "contradiction"},
    "pos": {"words": ["A", "dog"], "tags": ["DET", "NOUN"]},
    "entities": {"words": ["In", "New", "York"], "tags": ["O", "B-location", "I-location"]},
    "questions": {"question": "What?", "context": "A dog."}
    | {"answers": [{"text": "dog", "answer_start": 2}]},
    "translation": {"text": "A dog.", "target": "Ein Hund."},
}
DOCUMENTS = {"wikipedia": ["A dog is an animal ."], "reviews": ["A film.", "Not bad."]}


@pytest.fixture(autouse=True)
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves the hub's cache and refuses the network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def laid_out(settings: dict[str, Any]) -> Hub:
    """Returns the source and puts its dataset into the cache."""
    layout = LAYOUTS[settings["dataset"]]
    name = settings["dataset"].replace("/", "--")
    folder = Path(f"datasets--{name}/snapshots/{settings['revision']}")
    for split in layout.splits:
        rows = [layout.row | (layout.hidden if split == "test" else {})] * 3
        path = folder / layout.file.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        Dataset.from_list(rows, features=Features(layout.features)).to_parquet(path)
    listed = [
        {
            "config_name": config,
            "data_files": [{"split": s, "path": f"{where}/{s}-*"} for s in layout.splits],
        }
        for config, where in layout.configs
    ]
    if listed:
        (folder / "README.md").write_text(f"---\n{json.dumps({'configs': listed})}\n---\n")
    return cast(Hub, SOURCES.build(settings, where=""))


@pytest.mark.parametrize("task", STUDY.tasks)
def test_standard_tasks_are_read(task: str) -> None:
    entry = STUDY.tasks[task]
    source = laid_out(entry.source)
    examples = list(source.examples(TASKS[entry.task["name"]]))
    assert [example.id for example in examples] == [
        f"{name}:{number}" for name in source.splits.values() for number in (1, 2, 3)
    ]
    assert [example.row for example in examples] == [ROWS[task]] * len(examples)


@pytest.mark.parametrize("corpus", STUDY.corpora)
def test_standard_corpora_are_read(corpus: str) -> None:
    source = laid_out(STUDY.corpora[corpus].source)
    sentences = [document.sentences for document in source.documents()]
    assert sentences == [DOCUMENTS[corpus]] * 3 * len(source.splits)
