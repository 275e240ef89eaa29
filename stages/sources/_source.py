"""What a source offers: documents, labelled examples, and the split each belongs to."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from stages.core.artifacts import Json
from stages.core.components import Components
from stages.core.parallel import grouped
from stages.kinds._kind import Kind, Split
from stages.sources._sentences import sentences

_PIECE = 2**20  # characters


class Document(NamedTuple):
    """Unlabelled text: sentences in their order."""

    id: str
    split: Split
    sentences: list[str]


class Labelled(NamedTuple):
    """An example: its row has the columns of its kind.

    Where the source changed inputs (words that would give the answer away are masked), ``original``
    has them as they stand there: what a model that has read the source knows. No model sees it.
    """

    id: str
    split: Split
    row: Json
    original: Json | None = None


class Part(NamedTuple):
    """Some documents, one after the other. Any process can make them of what it is sent, once."""

    num_bytes: int  # about
    documents: Callable[[], list[Document]]


class Source(ABC):
    """Where documents of a corpus and labelled examples of a task come from.

    The constructor takes ``path``, which is required: a file or folder of the repository that
    decides what is read (the data, or the lock file that pins it). dvc.yaml makes the stages that
    read the source depend on ``${item.source.path}``.

    Both iterators repeat the same order. A source that has only one of the two refuses the other
    in ``check``.
    """

    # Whether a document's sentences follow one another in one text; else each is a text by itself.
    running_text: ClassVar[bool] = True

    # Whether ``parts`` leaves it to others to parse what it has read.
    is_read_in_parts: ClassVar[bool] = False

    def check(self, kind: Kind | None) -> None:  # noqa: B027 (most sources read anything)
        """Raises ValueError for what can be refused without reading everything: as a task of this
        kind, or (None) as a corpus."""

    def corpus_faults(self, tasks: Mapping[str, Kind], *, decontaminated: bool) -> Iterator[str]:
        """What is wrong with it as a corpus of a study with these ``tasks`` (by their names in
        params.yaml); ``decontaminated`` if the study removes the test texts of tasks from it.

        Each fault begins with its path below the corpus: ``source.tasks: ...``. Most sources go
        with any study.
        """
        yield from ()

    @abstractmethod
    def documents(self) -> Iterator[Document]: ...

    def parts(self) -> Iterator[Part]:
        """The same documents, in the same order. A source that text of any size can be read from
        has parts of its own: no document before it is asked for."""
        for some in grouped(self.documents(), _size):
            yield Part(sum(map(_size, some)), partial(list, some))

    @abstractmethod
    def examples(self, kind: Kind) -> Iterator[Labelled]: ...

    def versions(self) -> dict[str, str]:
        """The version of each thing that was read, where there are versions."""
        return {}


@runtime_checkable
class Slow(Protocol):
    """A source that takes long to read for the first time; what was read is kept."""

    def reading_s(self, read: set[str]) -> float:
        """About how many seconds it takes to read what is neither kept nor in ``read``; adds it to
        ``read``."""
        ...


def split_of(key: str) -> Split:
    """80 % train, 10 % validation, 10 % test, by a hash of ``key`` alone: adding or removing other
    data moves nothing."""
    return _drawn([key])


def _drawn(pieces: Iterable[str]) -> Split:
    digest = hashlib.blake2b(digest_size=8)
    for piece in pieces:
        digest.update(piece.encode())
    tenth = int.from_bytes(digest.digest(), "big") % 10
    return "test" if tenth == 9 else "validation" if tenth == 8 else "train"


def drawn_from_train(split: Split, key: str, given: Collection[Split]) -> Split:
    """The split of what was given as ``split``: splits that were not given are drawn from train."""
    return _unless_given(split_of(key), split, given)


def document_split(split: Split, text: str, given: Collection[Split]) -> Split:
    """The same of a document of any length, by what ``Kind.same_input`` makes of its text."""
    return _unless_given(_drawn(map(str.casefold, one_spaced(text))), split, given)


def _unless_given(drawn: Split, split: Split, given: Collection[Split]) -> Split:
    return drawn if split == "train" and drawn not in given else split


def sentences_of(text: str) -> list[str]:
    """The sentences of a text of any length; a blank line ends one, too."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        found += _sentences(one_spaced(paragraph))
    return found


def _sentences(pieces: Iterator[str]) -> Iterator[str]:
    """Of a paragraph in pieces; where the last sentence of some pieces ends, the next ones tell.

    They are looked through with the blank before them, as they stand in the paragraph.
    """
    before, rest = "", next(pieces, "")
    more: list[str] = []
    num_more = 0
    for piece in pieces:
        more.append(piece)
        num_more += len(piece)
        if num_more >= len(rest):  # so that a sentence without end is not read with each piece
            *ended, last = _behind(before, rest)
            yield from ended
            before = " " if ended else before
            rest = "".join([last, *more])
            more, num_more = [], 0
    if rest:
        yield from _behind(before, "".join([rest, *more]))


def _behind(before: str, text: str) -> Iterator[str]:
    found = sentences(before + text)
    yield next(found)[len(before) :]
    yield from found


def one_spaced(text: str) -> Iterator[str]:
    """The text with one blank for each run of white space and none at its ends, in pieces: the
    words of a long one, as strings of Python, would take ten times its memory."""
    if len(text) <= _PIECE:
        yield " ".join(text.split())
        return
    is_first, apart = True, False
    for begin in range(0, len(text), _PIECE):
        piece = text[begin : begin + _PIECE]
        apart = apart or piece[0].isspace()
        if words := " ".join(piece.split()):
            yield words if is_first or not apart else f" {words}"
            is_first = apart = False
        apart = apart or piece[-1].isspace()


def text_parts(texts: Iterable[tuple[str, Split, str]]) -> Iterator[Part]:
    """Of documents whose sentences are still to be found: (id, split, text) each."""
    for some in grouped(texts, lambda each: len(each[2])):
        yield Part(sum(len(text) for _, _, text in some), partial(_with_sentences, some))


def _with_sentences(texts: list[tuple[str, Split, str]]) -> list[Document]:
    return [Document(id, split, sentences_of(text)) for id, split, text in texts]


def _size(document: Document) -> int:
    return sum(map(len, document.sentences))


SOURCES = Components[Source]("sources")
