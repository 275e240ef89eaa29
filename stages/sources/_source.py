"""What a source offers: documents, labelled examples, and the split each belongs to."""

import hashlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol

from stages.text.labelled import inputs_of

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class Document(NamedTuple):
    """Unlabelled text: sentences in their order."""

    id: str
    split: Split
    sentences: list[str]


class Labelled(NamedTuple):
    """An example: ``{"text", "label"}`` (perhaps ``"text_pair"``) or ``{"words", "tags"}``."""

    id: str
    split: Split
    row: dict[str, Any]


class Source(Protocol):
    """What every component of this folder offers. Both iterators repeat the same order."""

    def check(self, *, labelled: bool) -> None:
        """Raises ValueError for what can be refused without reading everything."""
        ...

    def documents(self) -> Iterator[Document]: ...

    def examples(self) -> Iterator[Labelled]: ...

    def versions(self) -> dict[str, str]:
        """The version of each thing that was read, where there are versions."""
        ...


def split_of(key: str) -> Split:
    """80 % train, 10 % validation, 10 % test, by a hash of ``key`` alone: what else there is
    moves nothing."""
    tenth = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % 10
    return "test" if tenth == 9 else "validation" if tenth == 8 else "train"


def same_input(row: dict[str, Any]) -> str:
    """Equal for rows with the same input, but for case and blanks; labels play no part."""
    parts = row["words"] if "words" in row else [*inputs_of(row).values()]
    return "\0".join(" ".join(part.split()).casefold() for part in parts)
