"""Published datasets are read whole: they have the sizes that their README states."""

from collections import Counter
from typing import Any, cast

import pytest

from stages.sources._source import SOURCES
from stages.sources.files import Files
from stages.tasks._task import TASKS
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "path", "train", "validation", "test"),
    [
        ("classification", "sst2", "train.tsv 6920", "dev.tsv 872", "test.tsv 1821"),
        (
            "classification",
            "sick",
            "SICK_train.txt 4500",
            "SICK_trial.txt 500",
            "SICK_test_annotated.txt 4927",
        ),
        (
            "tagging",
            "wnut17",
            "wnut17train.conll 3394",
            "emerging.dev.conll 1009",
            "emerging.test.annotated 1287",
        ),
        (
            "span_qa",
            "qa",
            "new_wiki_v1.0.json 7938",
            "squad-v2.0-dev-half.json 2910",
            "xquad.en.json 1190",
        ),
        ("seq2seq", "multi30k", "train 29000", "val 1014", "test_2016_flickr 1000"),
    ],
)
def test_published_splits_have_their_numbers_of_examples(
    kind: str, path: str, train: str, validation: str, test: str
) -> None:
    splits = {"train": train.split(), "validation": validation.split(), "test": test.split()}
    files = {split: name for split, (name, _) in splits.items()}
    examples = list(source(path, **SETTINGS[path], **files).examples(TASKS[kind]))
    sizes = Counter(example.split for example in examples)
    assert sizes == {split: int(number) for split, (_, number) in splits.items()}
    assert len({example.id for example in examples}) == len(examples)


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        (  # a file with CRLF, whose labels are at the ends of lines
            "classification",
            "sick/SICK_test_annotated.txt",
            {"NEUTRAL": 2_793, "ENTAILMENT": 1_414, "CONTRADICTION": 720},
        ),
        ("classification", "movie-text/movie_reviews.jsonl.gz", {"pos": 1_000, "neg": 1_000}),
        ("tagging", "ud-ewt/en_ewt-ud-dev.conllu.gz", {"NOUN": 4_210, "VERB": 2_707}),
        ("tagging", "wnut17/emerging.dev.conll", {"B-person": 470, "B-location": 74}),
    ],
)
def test_published_labels_have_their_numbers(kind: str, path: str, expected: dict) -> None:
    examples = source(path, **SETTINGS.get(path.split("/")[0], {})).examples(TASKS[kind])
    labels = Counter(label for e in examples for label in TASKS[kind].labels_of(e.row))
    assert expected.items() <= labels.items()


@pytest.mark.parametrize(
    ("path", "unit", "documents", "words"),
    [
        ("gutenberg/Doyle_Hound_1902.txt.gz", "file", 1, 59_639),
        ("gutenberg/Lee_Penelope_1903.txt.gz", "paragraph", None, 21_840),
        ("state-union/state_union.txt.gz", "paragraph", None, 349_711),
        ("movie-text/rt-unlabelled.txt", "line", 8_083, None),
    ],
)
def test_published_texts_lose_no_word(
    path: str, unit: str, documents: int | None, words: int | None
) -> None:
    """Whatever the unit, no word is lost, and byte order marks and line ends are no text."""
    texts = list(source(path, unit=unit).documents())
    assert documents in (None, len(texts))
    text = " ".join(sentence for document in texts for sentence in document.sentences)
    assert words in (None, len(text.split()))
    assert not {"\ufeff", "\r", "\n"} & set(text)
