"""Chooses the text that small models are pretrained on."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from stages.core.artifacts import Json
from stages.kinds._kind import KINDS, settings_of
from stages.proposal.examples import SPACELESS, TOKENS_PER_WORD, Examples
from stages.sources._source import SOURCES, Source
from stages.text import tokenizer

ENOUGH_WORDS = 400_000  # fewest words of labelled texts to pretrain on
MOST_WORDS = 3_000_000  # words of a folder after which counting stops
LATIN = 0.8  # least share of Latin letters with which English documentation may help
DOCS = ["numpy", "pandas", "scikit-learn", "scipy"]
DOCS_WORDS = 700_000  # approximate number of words of DOCS
# The column that is read as text of a corpus, by kind; none of span_qa, whose contexts recur.
TEXT_OF = dict.fromkeys(("classification", "multi_label", "regression", "seq2seq"), "text")
OF_ANSWERS = {"text_pair", "label", "labels", "tags"} | {
    key for kind in KINDS.values() for key in settings_of(type(kind))
}
VOCABULARIES = (4096, 2048, 1024, 512)
SPARE = 1.1  # a text must fill a vocabulary this much larger: test rows' sentences are removed
FILLING_WORDS = 200_000  # any text with this many words fills the largest vocabulary
Algorithm = Literal["unigram", "char"]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus, its entry in ``corpora:``, and whether models are pretrained on it."""

    key: str
    source: Json
    words: int  # number of words, or a lower bound
    decontaminate_against: Literal["none", "tasks"]
    pretrains: bool
    algorithm: Algorithm
    vocab_size: int
    why: str  # description of the corpus for params.yaml

    @property
    def tokens(self) -> int:
        return round(self.words * TOKENS_PER_WORD)


def choose_corpus(
    examples: Examples, kind: str, text: Path | None, task: str, notes: list[str]
) -> Corpus:
    """Returns the user's own text, or the labelled texts if they are enough, else documentation in
    English. Labelled texts in a script other than Latin are used for the tokenizer alone if they
    are too few to pretrain on.

    Raises ValueError for a folder without text.
    """
    has_blanks = examples.script not in SPACELESS
    if text is not None:
        return _own_text(text, task, notes, has_blanks=has_blanks)
    own = _labelled_texts(examples, kind)
    total = sum(examples.scripts.values())
    latin = examples.scripts["LATIN"] / total if total else 1.0
    if own is not None and (examples.words >= ENOUGH_WORDS or latin < LATIN):
        enough = examples.words >= ENOUGH_WORDS
        read = (" ".join(examples.kind.texts(e.row)) for e in examples.by_split["train"])
        algorithm, vocab_size = vocabulary_of(read, has_blanks=has_blanks)
        notes.append(
            f"The training texts ({examples.words:,} words) are enough to pretrain on, without "
            "their labels; --corpus FOLDER gives more of their kind."
            if enough
            else f"{examples.script.title()} script, and only {examples.words:,} words: nothing "
            "here to pretrain on, so models start from scratch; --corpus FOLDER gives text."
        )
        return Corpus(
            key="labelled_texts",
            source=own,
            words=examples.words,
            decontaminate_against="tasks",
            pretrains=enough,
            algorithm=algorithm,
            vocab_size=vocab_size,
            why="the task's own training texts, without their labels"
            if enough
            else "the task's own training texts, for the tokenizer alone: too few to pretrain on",
        )
    few = f"The training texts ({examples.words:,} words) are too few to pretrain on"
    notes.append(
        f"{few if own is not None else 'There is no running text to pretrain on'}; models read "
        "the documentation that is installed here, which may be of little use: it is technical "
        "English. --corpus FOLDER gives text of your own."
    )
    return Corpus(
        key="documentation",
        source={"name": "installed_docs", "path": "requirements.lock", "packages": DOCS},
        words=DOCS_WORDS,
        decontaminate_against="none",
        pretrains=latin >= LATIN,
        algorithm="unigram",
        vocab_size=VOCABULARIES[0],
        why="the documentation installed with the project, as there is no other text",
    )


def vocabulary_of(sentences: Iterable[str], *, has_blanks: bool) -> tuple[Algorithm, int]:
    """Returns a tokenizer's algorithm and the largest of VOCABULARIES that the text fills, found by
    training if the text is small. Without blanks between words, or if it fills none, tokens are
    letters and the size is only an upper limit."""
    if has_blanks:
        some, words = list[str](), 0
        for sentence in sentences:
            some.append(sentence)
            words += len(sentence.split())
            if words >= FILLING_WORDS:
                return "unigram", VOCABULARIES[0]
        for size in VOCABULARIES:
            if _fills(some, round(SPARE * size)):
                return "unigram", size
    return "char", VOCABULARIES[0]


def _fills(sentences: list[str], vocab_size: int) -> bool:
    with TemporaryDirectory() as folder:
        try:
            tokenizer.train(
                sentences,
                Path(folder, tokenizer.FILE),
                algorithm="unigram",
                vocab_size=vocab_size,
                threads=1,
            )
        except ValueError:
            return False
    return True


def _labelled_texts(examples: Examples, kind: str) -> Json | None:
    """Returns the task's source as a source of text, or None if its texts cannot be a corpus. The
    texts of test rows are in this source's test split, too."""
    settings = {key: value for key, value in examples.source.items() if key not in OF_ANSWERS}
    if kind == "tagging":
        return settings if settings.get("format") == "conll" or "words" not in settings else None
    if settings.get("format") != "parallel":
        settings.pop("target", None)
    return settings if kind in TEXT_OF else None


def _own_text(path: Path, task: str, notes: list[str], *, has_blanks: bool) -> Corpus:
    settings: Json = {"name": "files", "path": path.as_posix()}
    for unit in ("paragraph", "line"):
        settings |= {} if unit == "paragraph" else {"unit": unit}
        num, words, some = _counted(settings)
        if num["train"] and num["validation"]:
            break
    else:
        raise ValueError(f"--corpus: {path} has too little text: no document for validation")
    more = "more than " if words >= MOST_WORDS else ""
    notes.append(
        f"Text to pretrain on: {path}, {more}{words:,} words in {sum(num.values()):,} documents"
        f"{', one a line' if settings.get('unit') else ''}."
    )
    if words < ENOUGH_WORDS // 4:
        notes.append("This is little text: more would make pretraining tell more.")
    algorithm, vocab_size = vocabulary_of(some, has_blanks=has_blanks)
    return Corpus(
        key="my_text" if task != "my_text" else "own_text",
        source=settings,
        words=words,
        decontaminate_against="tasks",
        pretrains=True,
        algorithm=algorithm,
        vocab_size=vocab_size,
        why="your unlabelled text",
    )


def _counted(settings: Json) -> tuple[dict[str, int], int, list[str]]:
    """Returns the number of documents of each split, the number of words of train (counting stops
    at MOST_WORDS), and some sentences of train."""
    num = {"train": 0, "validation": 0, "test": 0}
    words, some = 0, list[str]()
    source: Source = SOURCES.build(settings, where="--corpus")
    for document in source.documents():
        num[document.split] += 1
        if document.split == "train":
            some += document.sentences if words < FILLING_WORDS else []
            words += sum(len(sentence.split()) for sentence in document.sentences)
        if words >= MOST_WORDS:
            break
    return num, words, some
