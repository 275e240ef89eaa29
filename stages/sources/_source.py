"""The interface of sources: documents of sentences, labelled examples, and the split of each."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from stages.core.artifacts import Json
from stages.core.components import Components, Settings
from stages.tasks._task import Split, Task

# Private characters that a reader of markup puts around inline code. A sentence may begin or end
# with them.
BEGIN, END = "\ue000", "\ue001"

_BOUNDARY = re.compile(
    rf"(?<=[.!?])(?:[\"')\]”’]|{END})*(\s+)(?=[\"'(\[“‘]?[^\W\d_a-zß-ÿ]|[\"'(\[]?\d|{BEGIN})"
    r"|(?<=\s[.!?])(\s+)(?=[\w\"'(])"  # in tokenised text, which may be in lower case
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'])(?:e\.g|i\.e|vs|cf|viz|resp|approx|Fig|Figs|Eq|Eqs|eq|Ref|Refs|Sec|Sect|Chap"
    r"|Ch|Dr|Mr|Mrs|Ms|Messrs|Prof|Rev|Capt|Col|Gen|Hon|St|No|no|vol|Vol|pp|p|ed|eds|al|incl|ca|Jr"
    r"|a\.k\.a|w\.r\.t|[A-Z])\.$"
)


class Time(NamedTuple):
    """The time of a row: seconds since 1970, or the number in the cell, and the cell itself."""

    value: float
    shown: str
    form: str  # only times of one form can be compared


class Document(NamedTuple):
    """Unlabelled text: sentences in their order."""

    id: str
    split: Split
    sentences: list[str]


class Labelled(NamedTuple):
    """An example."""

    id: str
    split: Split
    row: Json  # with the columns of its kind
    # The inputs before the source masked words that reveal the answer. A model that was pretrained
    # on the source may know them; no task shows them to a model.
    original: Json | None = None
    group: str | None = None  # a user, a document: its examples belong in one split
    time: Time | None = None  # if splits are drawn by time
    cluster: str | None = None  # a package: its examples resemble each other, in any split


class Source(ABC):
    """The origin of a corpus's documents and a task's labelled examples, both in the same order in
    every call. A source that has only one of the two refuses the other in ``check``.

    The constructor's parameter ``path`` is required: the file or folder that decides what is read
    (the data, or the lock file that pins it), on which DVC's stages depend.
    """

    # Whether the sentences of a document form one text; otherwise each is a text by itself.
    running_text: ClassVar[bool] = True
    # Whether the examples are in files of the project, so that reading some of them takes no time.
    is_local: ClassVar[bool] = False

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        """Whether a source with these settings draws its test rows at random, so that another draw
        of the same data would have other splits."""
        return False

    def check(self, kind: Task | None) -> None:  # noqa: B027 (most sources read anything)
        """Raises ValueError for faults that are found without reading everything. ``kind`` is that
        of the source's task, or None for a corpus."""

    def corpus_faults(self, tasks: Mapping[str, Task], *, decontaminated: bool) -> Iterator[str]:
        """Yields the reasons why the source cannot be a corpus of a study with these ``tasks`` (by
        their names in params.yaml), each beginning with its path below the corpus."""
        yield from ()

    @abstractmethod
    def documents(self) -> Iterator[Document]: ...

    @abstractmethod
    def examples(self, kind: Task) -> Iterator[Labelled]: ...

    def versions(self) -> dict[str, str]:
        """Returns the version of each package or dataset that is read; empty if there is none."""
        return {}


def split_of(key: str, seed: int = 0) -> Split:
    """Returns train for 80 %, validation for 10 % and test for 10 % of keys. The split depends only
    on a hash of ``seed`` and ``key``, so that adding or removing other data changes no split."""
    salted = f"{seed}\0{key}" if seed else key
    digest = hashlib.blake2b(salted.encode(), digest_size=8).digest()
    tenth = int.from_bytes(digest, "big") % 10
    return "test" if tenth == 9 else "validation" if tenth == 8 else "train"


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a text without line breaks; joined by blanks, they make the text.

    A sentence ends at ``.``, ``!`` or ``?`` before a blank and a capital or a digit, unless the
    word before is an abbreviation or an initial.
    """
    begin = 0
    for match in _BOUNDARY.finditer(text):
        if not _ABBREVIATION.search(text[max(begin, match.start() - 12) : match.start()]):
            yield text[begin : match.start(match.lastindex or 0)]
            begin = match.end()
    if begin < len(text):
        yield text[begin:]


def sentences_of(text: str) -> list[str]:
    """Returns the sentences of a text; a blank line ends a sentence, too."""
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return [sentence for paragraph in paragraphs for sentence in sentences(paragraph)]


SOURCES = Components[Source]("sources")
