"""Chooses the text that small models are pretrained on, and its vocabulary."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int

from stages.core.artifacts import Json
from stages.planning.costs import TOKENS_PER_WORD
from stages.proposal.questions import Note
from stages.proposal.rows import Examples
from stages.sources._formats import sides
from stages.sources._source import SOURCES
from stages.sources.files import PARALLEL
from stages.tasks._task import SPLITS, TASKS

FEW_ROWS = 1_000  # with fewer rows, results depend on the draw of the splits
ENOUGH_WORDS = 400_000  # fewest words of labelled texts to pretrain on
MAX_WORDS = 3_000_000  # words of a folder after which counting stops
LATIN = 0.8  # least share of Latin letters with which English documentation may help
DOCS = ["numpy", "pandas", "scikit-learn", "scipy"]
DOCS_WORDS = 700_000  # approximate number of words of DOCS
# Kinds whose texts can be a corpus. (The contexts of span_qa recur.)
RUNNING_TEXT = {"classification", "multi_label", "regression", "seq2seq"}
OF_ANSWERS = {"text_pair", "label", "labels", "tags"} | {
    key for kind in TASKS.values() for key in kind.cell_settings
}
# A word that occurs as often as RECURS is a piece that a tokenizer may learn, even without the
# sentences of test rows, so a text fills a vocabulary of as many pieces as it has such words.
VOCABULARIES, RECURS = (4096, 2048, 1024, 512), 3
FILLING_WORDS = 200_000  # words in which those that recur are counted
FEW_LEFT = 3  # one in so many rows is in train in each of five draws of the splits
LEARNT_TOKENS_PER_WORD = 1.5  # of a text that the tokenizer learnt from
LETTERS_PER_TOKEN = 4  # fewest on average: of words that hardly recur, such as numbers
Algorithm = Literal["unigram", "char"]


@dataclass(frozen=True)
class Corpus:
    """A corpus, its entry in ``corpora:``, and whether models are pretrained on it."""

    key: str
    source: Json
    words: int  # number of words, or a lower bound
    note: Note  # which text it is
    pretrains: bool
    algorithm: Algorithm
    vocab_size: int

    @property
    def tokens(self) -> int:
        return round(self.words * LEARNT_TOKENS_PER_WORD)

    def lengths(self, texts: list[str], words: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
        """Returns about how many tokens texts with these numbers of words have."""
        letters = np.array([len(text) for text in texts], dtype=np.int64)
        if self.algorithm == "char":
            return letters
        per_word = TOKENS_PER_WORD if self.key == "documentation" else LEARNT_TOKENS_PER_WORD
        return np.ceil(np.maximum(per_word * words, letters / LETTERS_PER_TOKEN)).astype(np.int64)


def choose_corpus(examples: Examples, text: Path | None, task: str) -> Corpus:
    """Returns the user's own text, or the labelled texts if they are enough, else documentation in
    English. Labelled texts that are too few to pretrain on are used for the tokenizer alone if they
    have targets to write or are in a script other than Latin.

    Raises ValueError for a folder without text.
    """
    words = int(examples.count_words([*examples.inputs, *examples.targets]).sum())
    enough, is_latin = words >= ENOUGH_WORDS, examples.latin >= LATIN
    source, learnt = _labelled_texts(examples, task, enough=enough)
    if text is not None:
        source, words, learnt = _own_text(text)
        key, pretrains = "my_text" if task != "my_text" else "own_text", True
        note = Note("own text", text, words, ", which is little" * (words < ENOUGH_WORDS // 4))
    elif learnt and (enough or examples.targets or not is_latin):
        key, words, pretrains = "labelled_texts", int(examples.count_words(learnt).sum()), enough
        what = "texts and their targets" if len(learnt) > examples.num["train"] else "texts"
        note = Note("labelled texts" if enough else "few labelled texts", what, words)
        # With few rows each seed draws its splits, so other draws test on most of these texts.
        learnt = learnt if sum(examples.num.values()) >= FEW_ROWS else learnt[::FEW_LEFT]
    else:
        source = {"name": "installed_docs", "path": "requirements.lock", "packages": DOCS}
        key, words, pretrains, note = "documentation", DOCS_WORDS, is_latin, Note("documentation")
    algorithm, size = "unigram", VOCABULARIES[0]
    if key != "documentation":
        algorithm, size = vocabulary_of(learnt, has_blanks=not examples.is_spaceless)
    return Corpus(key, source, words, note, pretrains, algorithm, size)


def vocabulary_of(texts: Iterable[str], *, has_blanks: bool) -> tuple[Algorithm, int]:
    """Returns a tokenizer's algorithm and the largest of VOCABULARIES that the texts fill. Without
    blanks between words, or if they fill none, tokens are letters and the size is only an upper
    limit."""
    counts = Counter[str]()
    for text in texts if has_blanks else ():
        counts.update(text.split())
        if counts.total() >= FILLING_WORDS:
            break
    num = sum(count >= RECURS for count in counts.values())
    sizes = (size for size in VOCABULARIES if size <= num)
    return next((("unigram", size) for size in sizes), ("char", VOCABULARIES[0]))


def _labelled_texts(examples: Examples, task: str, *, enough: bool) -> tuple[Json, list[str]]:
    """Returns the task's source as a source of text, whose test split has the texts of test rows,
    and the texts of train that it has, none if they cannot be a corpus. If they are ``enough`` to
    pretrain on, no pair of text and target is read, which would show answers beyond the label
    budget: lines of parallel files are documents, and of a table only the texts are read."""
    kind, texts = examples.kind.name, examples.inputs
    settings = {key: value for key, value in examples.source.items() if key not in OF_ANSWERS}
    is_parallel = settings.get("format") == PARALLEL
    if examples.targets and not enough:
        return {"name": "tasks", "path": "data/tasks", "tasks": [task]}, texts + examples.targets
    if is_parallel and {*SPLITS} <= settings.keys():  # each line is a document
        folder, languages = Path(settings["path"]), [settings["text"], settings["target"]]
        lines = {"name": "files", "path": settings["path"], "format": "txt", "unit": "line"}
        for split in SPLITS:
            files = sides(folder / settings[split], languages)
            lines[split] = [str(file.relative_to(folder)) for file in files]
        return lines, texts + examples.targets
    if not is_parallel:
        settings.pop("target", None)
    is_conll = settings.get("format") == "conll" or "words" not in settings
    return settings, texts if kind in RUNNING_TEXT or (kind == "tagging" and is_conll) else []


def _own_text(path: Path) -> tuple[Json, int, list[str]]:
    """Returns a folder as a source of paragraphs, or of lines if these are too few, the number of
    words of train, of which at most MAX_WORDS are counted, and sentences of train."""
    for unit in ({}, {"unit": "line"}):
        source: Json = {"name": "files", "path": path.as_posix(), **unit}
        splits, words, some = set[str](), 0, list[str]()
        for document in SOURCES.build(source, where="--corpus").documents():
            splits.add(document.split)
            if document.split == "train":
                some += document.sentences if words < FILLING_WORDS else []
                words += sum(len(sentence.split()) for sentence in document.sentences)
            if words >= MAX_WORDS:
                break
        if {"train", "validation"} <= splits:
            return source, words, some
    raise ValueError(f"--corpus: {path} has too little text: no document for validation")
