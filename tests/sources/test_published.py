"""Published datasets are read whole: they have the sizes that their README states."""

from collections import Counter
from typing import Any, cast

import pytest

from stages.sources._source import SOURCES
from stages.sources.files import Files
from stages.tasks._task import SPLITS, TASKS
from tests.published import DATASETS, needs_datasets

pytestmark = needs_datasets


def source(path: str, **settings: Any) -> Files:
    return cast(
        Files, SOURCES.build({"name": "files", "path": f"{DATASETS}/{path}", **settings}, where="s")
    )


SETTINGS: dict[str, dict[str, Any]] = {
    "sst2": {"columns": ["text", "label"]},
    "sick": {"format": "tsv", "text": "sentence_A", "text_pair": "sentence_B"}
    | {"label": "entailment_judgment"},
    "wnut17": {"format": "conll"},
    "qa": {"unanswerable": "drop"},
    "multi30k": {"format": "parallel", "text": "en", "target": "de"},
}


TAGGED = ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"]
WIKI = ["new_wiki_v1.0.json", "squad-v2.0-dev-half.json", "xquad.en.json"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "path", "files", "sizes"),
    [
        ("classification", "sst2", ["train.tsv", "dev.tsv", "test.tsv"], [6920, 872, 1821]),
        (
            "classification",
            "sick",
            ["SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"],
            [4500, 500, 4927],
        ),
        ("tagging", "wnut17", TAGGED, [3394, 1009, 1287]),
        ("span_qa", "qa", WIKI, [7938, 2910, 1190]),
        ("seq2seq", "multi30k", ["train", "val", "test_2016_flickr"], [29000, 1014, 1000]),
    ],
)
def test_published_splits_have_their_numbers_of_examples(kind, path, files, sizes) -> None:
    named = dict(zip(SPLITS, files, strict=True))
    examples = list(source(path, **SETTINGS[path], **named).examples(TASKS[kind]))
    counts = Counter(example.split for example in examples)
    assert [counts[split] for split in SPLITS] == sizes
    assert len({example.id for example in examples}) == len(examples)


@pytest.mark.parametrize(
    ("path", "unit", "words"),
    [
        ("gutenberg/Doyle_Hound_1902.txt.gz", "file", 59_639),
        ("gutenberg/Lee_Penelope_1903.txt.gz", "paragraph", 21_840),
        ("state-union/state_union.txt.gz", "paragraph", 349_711),
    ],
)
def test_published_texts_lose_no_word(path: str, unit: str, words: int) -> None:
    """Whatever the unit, no word is lost, and byte order marks and line ends are no text."""
    texts = source(path, unit=unit).documents()
    text = " ".join(sentence for document in texts for sentence in document.sentences)
    assert len(text.split()) == words
    assert not {"\ufeff", "\r", "\n"} & set(text)
