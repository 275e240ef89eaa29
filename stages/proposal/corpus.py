"""Chooses the text that small models are pretrained on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from stages.core.artifacts import Json
from stages.proposal.examples import SPACELESS, Examples, count_words
from stages.sources._formats import sides
from stages.sources._source import SOURCES
from stages.sources.files import PARALLEL
from stages.tasks._kind import SPLITS, Split, settings_of
from stages.tasks._task import TASKS
from stages.text.tokenizer import Tokenizer, train

FEW_ROWS = 1_000  # with fewer rows, results depend on the draw of the splits
ENOUGH_WORDS = 400_000  # fewest words of labelled texts to pretrain on
MAX_WORDS = 3_000_000  # words of a folder after which counting stops
LATIN = 0.8  # least share of Latin letters with which English documentation may help
DOCS = ["numpy", "pandas", "scikit-learn", "scipy"]
DOCS_WORDS = 700_000  # approximate number of words of DOCS
# The column that is read as text of a corpus, by kind; none of span_qa, whose contexts recur.
TEXT_OF = dict.fromkeys(("classification", "multi_label", "regression", "seq2seq"), "text")
OF_ANSWERS = {"text_pair", "label", "labels", "tags"} | {
    key for kind in TASKS.values() for key in settings_of(kind)
}
VOCABULARIES = (4096, 2048, 1024, 512)
SPARE = 1.1  # a text must fill a vocabulary this much larger: test rows' sentences are removed
FILLING_WORDS = 200_000  # any text with this many words fills the largest vocabulary
FEW_LEFT = 3  # one in so many rows is in train in each of five draws of the splits
COUNTED_WORDS = 50_000  # of a sample on which a tokenizer is trained in seconds
LEARNT_TOKENS_PER_WORD = 1.5  # of a text that the tokenizer learnt from
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
    # Texts with which tokens are counted; none of the documentation, whose parsing takes long.
    sample: list[str] = field(default_factory=list, repr=False)

    @property
    def tokens(self) -> int:
        return round(self.words * LEARNT_TOKENS_PER_WORD)


def choose_corpus(examples: Examples, text: Path | None, task: str, notes: list[str]) -> Corpus:
    """Returns the user's own text, or the labelled texts if they are enough, else documentation in
    English. Labelled texts that are too few to pretrain on are used for the tokenizer alone if they
    have targets to write or are in a script other than Latin.

    Raises ValueError for a folder without text.
    """
    if text is not None:
        return _own_text(text, task, examples, notes)
    words = examples.words + sum(count_words(examples.targets, examples.script))
    enough = words >= ENOUGH_WORDS
    own = _labelled_texts(examples, task, enough=enough)
    is_latin = examples.latin >= LATIN
    if own is None or not (enough or examples.targets or not is_latin):
        notes.append(
            f"{_too_few(examples)}; models read the documentation that is installed here, which "
            "may be of little use: it is technical English. --corpus FOLDER gives your own text."
        )
        return Corpus(
            key="documentation",
            source={"name": "installed_docs", "path": "requirements.lock", "packages": DOCS},
            words=DOCS_WORDS,
            decontaminate_against="none",
            pretrains=is_latin,
            algorithm="unigram",
            vocab_size=VOCABULARIES[0],
            why="the documentation installed with the project, as there is no other text",
        )
    source, texts = own
    has_both = len(texts) > examples.num["train"]
    what = "training texts and their targets" if has_both else "training texts"
    words = sum(count_words(texts, examples.script))
    how = "for the tokenizer alone: too few to pretrain on"
    said = "too few to pretrain on, so models start from scratch, with a tokenizer of these texts"
    if enough:
        how = f"without their {'targets' if examples.targets else 'labels'}"
        how = "each by itself" if has_both else how
        said = f"enough to pretrain on, {how}"
    script = "" if is_latin else f"{examples.script.title()} script: "
    notes.append(f"{script}The {what} ({words:,} words) are {said}; --corpus FOLDER gives text.")
    # Of few rows the other draws of the splits test on most (split_per_seed).
    learnt = texts if sum(examples.num.values()) >= FEW_ROWS else texts[::FEW_LEFT]
    algorithm, vocab_size = vocabulary_of(learnt, has_blanks=examples.script not in SPACELESS)
    return Corpus(
        key="labelled_texts",
        source=source,
        words=words,
        decontaminate_against="none" if source["name"] == "tasks" else "tasks",
        pretrains=enough,
        algorithm=algorithm,
        vocab_size=vocab_size,
        why=f"the task's own {what}, {how}",
        sample=_spread(learnt),
    )


def _too_few(examples: Examples) -> str:
    """Returns a clause that says why models are not pretrained on the labelled texts."""
    kind = examples.kind.name
    if kind == "span_qa":
        contexts = [*{example.row["context"] for example in examples.by_split["train"]}]
        words = sum(count_words(contexts, examples.script))
        enough = words >= ENOUGH_WORDS
        why = "recur with their questions" if enough else "are too few to pretrain on"
        return f"The {len(contexts):,} contexts of train ({words:,} words) {why}"
    if kind in TEXT_OF or kind == "tagging":
        return f"The training texts ({examples.words:,} words) are too few to pretrain on"
    return "There is no running text to pretrain on"


def _spread(texts: Sequence[str]) -> list[str]:
    """Returns texts from all parts of ``texts``, with about COUNTED_WORDS words."""
    return [*texts[:: ceil(sum(len(text.split()) for text in texts) / COUNTED_WORDS) or 1]]


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
            if trained(some, "unigram", round(SPARE * size)) is not None:
                return "unigram", size
    return "char", VOCABULARIES[0]


def trained(sentences: list[str], algorithm: Algorithm, vocab_size: int) -> Tokenizer | None:
    """Returns a tokenizer of the sentences, or None if they do not fill the vocabulary."""
    with TemporaryDirectory() as folder:
        try:
            train(sentences, Path(folder), algorithm=algorithm, vocab_size=vocab_size, threads=2)
        except ValueError:
            return None
        return Tokenizer(Path(folder))


def _labelled_texts(
    examples: Examples, task: str, *, enough: bool
) -> tuple[Json, list[str]] | None:
    """Returns the task's source as a source of text, and the texts of train that it has, or None if
    they cannot be a corpus. The texts of test rows are in this source's test split, too.

    Texts and targets that are ``enough`` to pretrain on are not read in pairs, which would show a
    model the answers beyond its label budget: lines of parallel files are documents by themselves,
    and of a table only the texts are read.
    """
    kind = examples.kind
    settings = {key: value for key, value in examples.source.items() if key not in OF_ANSWERS}
    texts = [" ".join(kind.texts(e.row)) for e in examples.by_split["train"]]
    if examples.targets and not enough:
        return {"name": "tasks", "path": "data/tasks", "tasks": [task]}, texts + examples.targets
    if kind.name == "tagging":
        is_read = settings.get("format") == "conll" or "words" not in settings
        return (settings, texts) if is_read else None
    if settings.get("format") != PARALLEL:
        settings.pop("target", None)
        return (settings, texts) if kind.name in TEXT_OF else None
    if not {*SPLITS} <= settings.keys():
        return settings, texts
    # Each line of parallel files is a document.
    folder, languages = Path(settings["path"]), [settings["text"], settings["target"]]
    files = {split: sides(folder / settings[split], languages) for split in SPLITS}
    names = {split: [str(file.relative_to(folder)) for file in files[split]] for split in SPLITS}
    lines = {"name": "files", "path": settings["path"], "format": "txt", "unit": "line"}
    return lines | names, texts + examples.targets


def _own_text(path: Path, task: str, examples: Examples, notes: list[str]) -> Corpus:
    settings: Json = {"name": "files", "path": path.as_posix()}
    num, words, some = _counted(settings)
    if not (num["train"] and num["validation"]):
        settings["unit"] = "line"
        num, words, some = _counted(settings)
    if not (num["train"] and num["validation"]):
        raise ValueError(f"--corpus: {path} has too little text: no document for validation")
    more = "more than " if words >= MAX_WORDS else ""
    notes.append(
        f"Text to pretrain on: {path}, {more}{words:,} words in {sum(num.values()):,} documents"
        f"{', one a line' if 'unit' in settings else ''}."
    )
    if words < ENOUGH_WORDS // 4:
        notes.append("This is little text: more would make pretraining tell more.")
    algorithm, vocab_size = vocabulary_of(some, has_blanks=examples.script not in SPACELESS)
    return Corpus(
        key="my_text" if task != "my_text" else "own_text",
        source=settings,
        words=words,
        decontaminate_against="tasks",
        pretrains=True,
        algorithm=algorithm,
        vocab_size=vocab_size,
        why="your unlabelled text",
        sample=_spread(some),
    )


def _counted(settings: Json) -> tuple[dict[Split, int], int, list[str]]:
    """Returns the number of documents of each split, the number of words of train (counting stops
    at MAX_WORDS), and some sentences of train."""
    num, words, some = dict.fromkeys(SPLITS, 0), 0, list[str]()
    for document in SOURCES.build(settings, where="--corpus").documents():
        num[document.split] += 1
        if document.split == "train":
            some += document.sentences if words < FILLING_WORDS else []
            words += sum(len(sentence.split()) for sentence in document.sentences)
        if words >= MAX_WORDS:
            break
    return num, words, some
