"""Published datasets are read whole: they have the sizes that their README states."""

from collections import Counter
from itertools import islice
from typing import Any, cast

import pytest

from stages.kinds._kind import KINDS
from stages.sources._source import SOURCES
from stages.sources.files import Files
from tests.published import DATASETS, needs_datasets

pytestmark = needs_datasets
SQUAD = {"train": "new_wiki_v1.0.json", "validation": "squad-v2.0-dev-half.json"}


def source(path: str, **settings: Any) -> Files:
    return cast(
        Files, SOURCES.build({"name": "files", "path": f"{DATASETS}/{path}", **settings}, where="s")
    )


def splits(names: str, prefix: str = "") -> dict[str, str]:
    """Settings of three files."""
    files = (prefix + name for name in names.split())
    return dict(zip(("train", "validation", "test"), files, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "path", "settings", "numbers"),
    [
        (
            "classification",
            "sst2",
            splits("train.tsv dev.tsv test.tsv") | {"columns": ["text", "label"]},
            (6_920, 872, 1_821),
        ),
        (
            "classification",
            "sick",
            splits("train.txt trial.txt test_annotated.txt", "SICK_")
            | {"format": "tsv", "text": "sentence_A", "text_pair": "sentence_B"}
            | {"label": "entailment_judgment"},
            (4_500, 500, 4_927),
        ),
        (
            "tagging",
            "wnut17",
            splits("wnut17train.conll emerging.dev.conll emerging.test.annotated")
            | {"format": "conll"},
            (3_394, 1_009, 1_287),
        ),
        (
            "span_qa",
            "qa",
            SQUAD | {"unanswerable": "drop", "test": "xquad.en.json"},
            (7_938, 2_910, 1_190),
        ),
        (
            "seq2seq",
            "multi30k",
            splits("train val test_2016_flickr")
            | {"format": "parallel", "text": "en", "target": "de"},
            (29_000, 1_014, 1_000),
        ),
    ],
    ids=["sst2", "sick", "wnut17", "qa", "multi30k"],
)
def test_splits_have_as_many_examples_as_is_said(
    kind: str, path: str, settings: dict[str, Any], numbers: tuple[int, int, int]
) -> None:
    examples = list(source(path, **settings).examples(KINDS[kind]))
    sizes = Counter(example.split for example in examples)
    assert tuple(sizes[split] for split in ("train", "validation", "test")) == numbers
    assert len({example.id for example in examples}) == len(examples)


def test_sick_has_its_labels() -> None:
    """One file has CRLF, and its labels are at the ends of lines."""
    names = {"text": "sentence_A", "text_pair": "sentence_B", "label": "entailment_judgment"}
    test = source("sick/SICK_test_annotated.txt", format="tsv", **names)
    counts = Counter(e.row["label"] for e in test.examples(KINDS["classification"]))
    assert counts == {"NEUTRAL": 2_793, "ENTAILMENT": 1_414, "CONTRADICTION": 720}


def test_tagged_words() -> None:
    rows = [e.row for e in source("ud-ewt/en_ewt-ud-dev.conllu.gz").examples(KINDS["tagging"])]
    assert len(rows) == 2_001 and sum(len(row["words"]) for row in rows) == 25_147
    assert len({tag for row in rows for tag in row["tags"]}) == 17


def test_tagged_spans() -> None:
    examples = source("wnut17/emerging.dev.conll").examples(KINDS["tagging"])
    tags = Counter(tag for example in examples for tag in example.row["tags"])
    assert tags.total() == 15_733
    assert sum(number for tag, number in tags.items() if tag[0] == "B") == 836


def test_reviews_as_a_task_and_as_a_corpus() -> None:
    reviews = source("movie-text/movie_reviews.jsonl.gz")
    examples = list(reviews.examples(KINDS["classification"]))
    assert Counter(e.row["label"] for e in examples) == {"pos": 1_000, "neg": 1_000}
    documents = islice(reviews.documents(), 100)
    assert [d.split for d in documents] == [e.split for e in examples[:100]]


@pytest.mark.parametrize(
    ("path", "unit", "documents", "words"),
    [
        ("gutenberg/Doyle_Hound_1902.txt.gz", "file", 1, 59_639),
        ("gutenberg/Lee_Penelope_1903.txt.gz", "paragraph", None, 21_840),
        ("state-union/state_union.txt.gz", "paragraph", None, 349_711),
        ("movie-text/rt-unlabelled.txt", "line", 8_083, None),
    ],
)
def test_text(path: str, unit: str, documents: int | None, words: int | None) -> None:
    """Whatever the unit, no word is lost, and byte order marks and line ends are no text."""
    texts = list(source(path, unit=unit).documents())
    assert documents in (None, len(texts))
    text = " ".join(sentence for document in texts for sentence in document.sentences)
    assert words in (None, len(text.split()))
    assert not {"\ufeff", "\r", "\n"} & set(text)
