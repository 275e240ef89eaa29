"""The interface of sources: documents, labelled examples, and the split of each."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar, NamedTuple

from stages.core.artifacts import Json
from stages.core.components import Components, Settings
from stages.core.parallel import grouped
from stages.kinds._kind import SPLITS, Kind, Split
from stages.sources._sentences import sentences
from stages.sources._times import Time

_PIECE = 2**20  # characters


class Document(NamedTuple):
    """Unlabelled text: sentences in their order."""

    id: str
    split: Split
    sentences: list[str]


class Labelled(NamedTuple):
    """An example; its row has the columns of its kind.

    If the source changed inputs (to mask words that would reveal the answer), ``original`` has the
    unchanged inputs, which a model pretrained on the source may know. No task shows it to a model.

    Examples of one ``group`` (a user, a document) belong in one split. ``time`` is set if splits
    are drawn by time.
    """

    id: str
    split: Split
    row: Json
    original: Json | None = None
    group: str | None = None
    time: Time | None = None


class Part(NamedTuple):
    """Consecutive documents. Any process that receives the part can call ``documents``, once."""

    num_bytes: int  # approximate
    documents: Callable[[], list[Document]]


class Source(ABC):
    """The origin of a corpus's documents and a task's labelled examples.

    The constructor's parameter ``path`` is required: a file or folder of the repository that
    decides what is read (the data, or the lock file that pins it). dvc.yaml makes the stages that
    read the source depend on ``${item.source.path}``.

    ``documents`` and ``examples`` have the same order in every call. A source that has only one of
    the two refuses the other in ``check``.
    """

    # Whether the sentences of a document form one text; otherwise each is a text by itself.
    running_text: ClassVar[bool] = True

    # Whether ``parts`` leaves parsing to the processes that receive the parts.
    is_read_in_parts: ClassVar[bool] = False

    # Whether the examples are in files of the project, so that reading some of them takes no time.
    is_local: ClassVar[bool] = False

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        """Whether a source with these settings draws its test rows at random, so that another draw
        of the same data would have other splits."""
        return False

    def check(self, kind: Kind | None) -> None:  # noqa: B027 (most sources read anything)
        """Raises ValueError for faults that can be found without reading everything. ``kind`` is
        the kind of the task that the source is for, or None for a corpus."""

    def corpus_faults(self, tasks: Mapping[str, Kind], *, decontaminated: bool) -> Iterator[str]:
        """Yields the reasons why the source cannot be a corpus of a study with these ``tasks`` (by
        their names in params.yaml). ``decontaminated`` says whether the study removes the test
        texts of tasks from the corpus.

        Each fault begins with its path below the corpus: ``source.tasks: ...``. Most sources work
        in any study.
        """
        yield from ()

    @abstractmethod
    def documents(self) -> Iterator[Document]: ...

    def parts(self) -> Iterator[Part]:
        """Yields the documents in parts, in the order of ``documents``. A source whose texts may be
        large overrides this, so that the process that receives a part creates its documents."""
        for group in grouped(self.documents(), _size):
            yield Part(sum(map(_size, group)), partial(list, group))

    @abstractmethod
    def examples(self, kind: Kind) -> Iterator[Labelled]: ...

    def versions(self) -> dict[str, str]:
        """Returns the version of each package or dataset that is read; empty if there is none."""
        return {}

    def reading_s(self, read: set[str]) -> float:
        """Estimates the seconds of reading what is neither stored from an earlier run nor named in
        ``read``, and adds its names to ``read``. Sources that store nothing return 0."""
        return 0.0


def check_split(item: Document | Labelled) -> None:
    """Raises ValueError for a document or an example of a split that does not exist."""
    if item.split not in SPLITS:
        raise ValueError(f"{item.id} has the split {item.split!r}; valid: {', '.join(SPLITS)}")


def split_of(key: str | Iterable[str], seed: int = 0) -> Split:
    """Returns train for 80 %, validation for 10 % and test for 10 % of keys. The split depends only
    on a hash of ``seed`` and ``key``, so that adding or removing other data changes no split.
    ``key`` may come in pieces."""
    digest = hashlib.blake2b(f"{seed}\0".encode() if seed else b"", digest_size=8)
    for piece in [key] if isinstance(key, str) else key:
        digest.update(piece.encode())
    tenth = int.from_bytes(digest.digest(), "big") % 10
    return "test" if tenth == 9 else "validation" if tenth == 8 else "train"


def drawn_from_train(
    split: Split, key: str | Iterable[str], given: Collection[Split], seed: int = 0
) -> Split:
    """Returns the split of an item that the data has in ``split``. Splits that are not ``given``
    are drawn from train by a hash of ``key``."""
    if split != "train":
        return split
    drawn = split_of(key, seed)
    return drawn if drawn not in given else split


def folded_pieces(text: str) -> Iterator[str]:
    """Yields in pieces the key that ``Kind.same_input`` makes of a text, which may be long."""
    return map(str.casefold, one_spaced(text))


def sentences_of(text: str) -> list[str]:
    """Returns the sentences of a text of any length; a blank line ends a sentence, too."""
    text_sentences: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        text_sentences += _sentences(one_spaced(paragraph))
    return text_sentences


def _sentences(pieces: Iterator[str]) -> Iterator[str]:
    """Yields the sentences of a paragraph that comes in pieces. The last sentence of a piece may
    continue in the next piece.

    What is left of the paragraph is searched together with the blank before it, since a boundary
    may depend on that blank.
    """
    before, rest = "", next(pieces, "")
    more: list[str] = []
    num_more = 0
    for piece in pieces:
        more.append(piece)
        num_more += len(piece)
        if num_more >= len(rest):  # so that a long sentence is not searched again for each piece
            *ended, last = _after(before, rest)
            yield from ended
            before = " " if ended else before
            rest = "".join([last, *more])
            more, num_more = [], 0
    if rest:
        yield from _after(before, "".join([rest, *more]))


def _after(before: str, text: str) -> Iterator[str]:
    with_before = sentences(before + text)
    yield next(with_before)[len(before) :]
    yield from with_before


def one_spaced(text: str) -> Iterator[str]:
    """Yields the text in pieces, with single blanks and none at its ends. Splitting a long text
    into words would take ten times its memory."""
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
    """Yields parts from the (id, split, text) of documents. Texts are split where a part is
    received."""
    for group in grouped(texts, lambda each: len(each[2])):
        yield Part(sum(len(text) for _, _, text in group), partial(_with_sentences, group))


def _with_sentences(texts: list[tuple[str, Split, str]]) -> list[Document]:
    return [Document(id, split, sentences_of(text)) for id, split, text in texts]


def _size(document: Document) -> int:
    return sum(map(len, document.sentences))


SOURCES = Components[Source]("sources")
