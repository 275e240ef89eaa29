"""What a small model can be pretrained on beside one's labelled rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stages.core.artifacts import Json
from stages.proposal.asked import Notes
from stages.proposal.examples import SPACELESS, TOKENS_PER_WORD, Examples
from stages.sources._source import SOURCES, Source

ENOUGH_WORDS = 400_000  # of the labelled texts themselves
MOST_WORDS = 3_000_000  # counted of a folder
LATIN = 0.8  # share of letters above which English documentation may help
DOCS = ["python", "numpy", "pandas", "scikit-learn", "scipy"]
DOCS_WORDS = 700_000  # about as many
# Columns of a row that are read as text of a corpus; of questions each context would recur.
TEXT_OF = {"classification": "text", "regression": "text", "seq2seq": "text"}
VOCABULARY = ((5_000, 512), (20_000, 1024), (100_000, 2048))  # up to so many words of text
LARGEST_VOCABULARY = 4096


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Its entry in ``corpora:``, and whether models are pretrained on it."""

    key: str
    source: Json
    words: int  # at least
    decontaminate_against: Literal["none", "tasks"]
    pretrains: bool
    algorithm: Literal["unigram", "char"]
    why: str  # a comment in params.yaml

    @property
    def tokens(self) -> int:
        return round(self.words * TOKENS_PER_WORD)

    @property
    def vocab_size(self) -> int:
        """A small text cannot fill a large vocabulary."""
        fitting = (size for words, size in VOCABULARY if self.words < words)
        return next(fitting, LARGEST_VOCABULARY)


def choose_corpus(
    examples: Examples, kind: str, text: Path | None, task: str, notes: Notes
) -> Corpus:
    """One's own text, the labelled texts if there are enough, else documentation in English; texts
    in another script have nothing to be pretrained on.

    Raises ValueError for a folder without text.
    """
    algorithm = "char" if examples.script in SPACELESS else "unigram"
    if text is not None:
        return _own_text(text, algorithm, task, notes)
    own = _labelled_texts(examples, kind)
    total = sum(examples.scripts.values())
    latin = examples.scripts["LATIN"] / total if total else 1.0
    if own is not None and (examples.words >= ENOUGH_WORDS or latin < LATIN):
        enough = examples.words >= ENOUGH_WORDS
        if enough:
            notes.seen.append(
                f"The training texts ({examples.words:,} words) are enough to pretrain on, without "
                "their labels; --text FOLDER gives more of their kind."
            )
        else:
            notes.seen.append(
                f"{examples.script.title()} script, and only {examples.words:,} words: nothing "
                "here to pretrain on, so models start from scratch; --text FOLDER gives text."
            )
        return Corpus(
            key="labelled_texts",
            source=own,
            words=examples.words,
            decontaminate_against="tasks",
            pretrains=enough,
            algorithm=algorithm,
            why="the task's own training texts, without their labels"
            if enough
            else "the task's own training texts, for the tokenizer alone: too few to pretrain on",
        )
    few = f"The training texts ({examples.words:,} words) are too few to pretrain on"
    notes.seen.append(
        f"{few if own is not None else 'There is no running text to pretrain on'}; models read "
        "the documentation that is installed here, which may be of little use: it is technical "
        "English. --text FOLDER gives text of your own."
    )
    return Corpus(
        key="documentation",
        source={"name": "installed_docs", "path": "requirements.lock", "packages": DOCS},
        words=DOCS_WORDS,
        decontaminate_against="none",
        pretrains=latin >= LATIN,
        algorithm="unigram",
        why="the documentation installed with the project, as there is no other text",
    )


def _labelled_texts(examples: Examples, kind: str) -> Json | None:
    """The source of the task as one of text; test texts are held out of it as of the task."""
    settings = {**examples.source}
    if kind == "tagging":
        settings.pop("tags", None)
        settings.pop("tag_scheme", None)
        return settings if settings.get("format") == "conll" or "words" not in settings else None
    if kind not in TEXT_OF:
        return None
    for name in ("text_pair", "label", "target"):
        if name != "target" or settings.get("format") != "parallel":
            settings.pop(name, None)
    return settings


def _own_text(path: Path, algorithm: Literal["unigram", "char"], task: str, notes: Notes) -> Corpus:
    settings: Json = {"name": "files", "path": path.as_posix()}
    for unit in ("paragraph", "line"):
        settings = {"name": "files", "path": path.as_posix()}
        if unit != "paragraph":
            settings["unit"] = unit
        num, words = _counted(settings)
        if num["train"] and num["validation"]:
            break
    else:
        raise ValueError(f"--text: {path} has too little text: no document for validation")
    more = "more than " if words >= MOST_WORDS else ""
    notes.seen.append(
        f"Text to pretrain on: {path}, {more}{words:,} words in {sum(num.values()):,} documents"
        f"{', one a line' if settings.get('unit') else ''}."
    )
    if words < ENOUGH_WORDS // 4:
        notes.seen.append("This is little text: more would make pretraining tell more.")
    return Corpus(
        key="my_text" if task != "my_text" else "own_text",
        source=settings,
        words=words,
        decontaminate_against="tasks",
        pretrains=True,
        algorithm=algorithm,
        why="your unlabelled text",
    )


def _counted(settings: Json) -> tuple[dict[str, int], int]:
    """Documents by split, and words of train ones, of the first MOST_WORDS."""
    num = {"train": 0, "validation": 0, "test": 0}
    words = 0
    source: Source = SOURCES.build(settings, where="--text")
    for document in source.documents():
        num[document.split] += 1
        if document.split == "train":
            words += sum(len(sentence.split()) for sentence in document.sentences)
        if words >= MOST_WORDS:
            break
    return num, words
