"""What a source offers: documents, labelled examples, and the split each belongs to."""

import hashlib
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

from stages.core.components import Components
from stages.kinds._kind import Kind, Split, inputs_of
from stages.sources._sentences import sentences


class Document(NamedTuple):
    """Unlabelled text: sentences in their order."""

    id: str
    split: Split
    sentences: list[str]


class Labelled(NamedTuple):
    """An example: its row has the columns of its kind of task; see ``text/labelled.py``."""

    id: str
    split: Split
    row: dict[str, Any]


class Source(Protocol):
    """What every component of this folder offers. Both iterators repeat the same order."""

    def check(self, kind: Kind | None) -> None:
        """Raises ValueError for what can be refused without reading everything: as a task of this
        kind, or as a corpus."""
        ...

    def documents(self) -> Iterator[Document]: ...

    def examples(self, kind: Kind) -> Iterator[Labelled]: ...

    def versions(self) -> dict[str, str]:
        """The version of each thing that was read, where there are versions."""
        ...


@runtime_checkable
class Slow(Protocol):
    """A source that is read at length once, and then kept."""

    def reading_s(self, read: set[str]) -> float:
        """About how many seconds it takes to read what is not kept as yet, nor in ``read``, to
        which that is added; 0 if there is nothing of that kind."""
        ...


def split_of(key: str) -> Split:
    """80 % train, 10 % validation, 10 % test, by a hash of ``key`` alone: what else there is
    moves nothing."""
    tenth = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % 10
    return "test" if tenth == 9 else "validation" if tenth == 8 else "train"


def drawn_from_train(split: Split, key: str, given: Collection[Split]) -> Split:
    """The split of what was given as ``split``: train holds those that were not given, too."""
    drawn = split_of(key)
    return drawn if split == "train" and drawn not in given else split


def same_input(row: dict[str, Any]) -> str:
    """Equal for rows with the same input, but for case and blanks; labels play no part."""
    parts = row["words"] if "words" in row else [*inputs_of(row).values()]
    return "\0".join(map(_plain, parts))


def split_key(row: dict[str, Any]) -> str:
    """Equal for rows that belong in one split: with the same input, or about the same context,
    since questions about one paragraph share their answers."""
    return _plain(row["context"]) if "context" in row else same_input(row)


def sentences_of(row: dict[str, Any]) -> list[str]:
    """Those of a text or of tagged words; a blank line ends one, too."""
    text = " ".join(row["words"]) if "words" in row else row["text"]
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    return [sentence for paragraph in paragraphs for sentence in sentences(paragraph)]


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


SOURCES = Components[Source]("sources")
