"""The interface of sources: documents, labelled examples, and the split of each."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, NamedTuple

from stages.core.artifacts import Json
from stages.core.components import Components, Settings
from stages.sources._columns import Time
from stages.sources._sentences import sentences
from stages.tasks._task import Split, Task


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
    are drawn by time. Examples of one ``cluster`` (a package) resemble each other, and may be in
    several splits.
    """

    id: str
    split: Split
    row: Json
    original: Json | None = None
    group: str | None = None
    time: Time | None = None
    cluster: str | None = None


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
    # Whether the examples are in files of the project, so that reading some of them takes no time.
    is_local: ClassVar[bool] = False

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        """Whether a source with these settings draws its test rows at random, so that another draw
        of the same data would have other splits."""
        return False

    def check(self, kind: Task | None) -> None:  # noqa: B027 (most sources read anything)
        """Raises ValueError for faults that can be found without reading everything. ``kind`` is
        the kind of the task that the source is for, or None for a corpus."""

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


def drawn_from_train(split: Split, key: str, given: Collection[Split], seed: int = 0) -> Split:
    """Returns the split of an item that the data has in ``split``. Splits that are not ``given``
    are drawn from train by a hash of ``key``."""
    if split != "train":
        return split
    drawn = split_of(key, seed)
    return drawn if drawn not in given else split


def sentences_of(text: str) -> list[str]:
    """Returns the sentences of a text; a blank line ends a sentence, too."""
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return [sentence for paragraph in paragraphs for sentence in sentences(paragraph)]


SOURCES = Components[Source]("sources")
