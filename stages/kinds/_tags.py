"""Converts tags of spans from published schemes to BIO."""

from itertools import pairwise
from typing import Literal

Scheme = Literal["bio", "iob1", "bioes"]
OUTSIDE = "O"  # the tag of a word outside all spans


def to_bio(tags: list[str], scheme: Scheme) -> list[str]:
    """Returns tags in BIO, where a span of type X is B-X and then I-X.

    ``iob1`` (Ramshaw and Marcus 1995; CoNLL-2003): every word of a span is I-X, except that B-X
    begins a span that directly follows one of the same type. ``bioes``: E-X ends a span, and S-X is
    a span of one word.

    Raises ValueError for a tag that the scheme does not have, or not at its position.
    """
    match scheme:
        case "bio":
            return tags
        case "iob1":
            return _from_iob1(_parts(tags, "BI", scheme))
        case "bioes":
            return _from_bioes(_parts(tags, "BIES", scheme))


def _parts(tags: list[str], letters: str, scheme: str) -> list[tuple[str, str]]:
    """Returns (letter, type) of each tag; the type is empty outside of spans."""
    parts = []
    for tag in tags:
        letter, _, type = tag.partition("-")
        if tag != "O" and not (len(letter) == 1 and letter in letters and type):
            valid = ", ".join(f"{each}-TYPE" for each in letters)
            raise ValueError(f"{tag!r} is no tag of {scheme}, which has O, {valid}")
        parts.append((letter, type))
    return parts


def _from_iob1(parts: list[tuple[str, str]]) -> list[str]:
    tags = []
    for (_, before), (letter, type) in pairwise([("O", ""), *parts]):
        begins = letter == "B" or type != before
        tags.append(_tag("B" if begins else "I", type))
    return tags


def _from_bioes(parts: list[tuple[str, str]]) -> list[str]:
    outside = ("O", "")
    for (letter, type), after in pairwise([outside, *parts, outside]):
        goes_on = type if letter in "BI" else ""
        if goes_on != (after[1] if after[0] in "IE" else ""):
            raise ValueError(f"{_written(after)} cannot follow {_written((letter, type))} in bioes")
    return [_tag("B" if letter in "BS" else "I", type) for letter, type in parts]


def _tag(letter: str, type: str) -> str:
    return f"{letter}-{type}" if type else "O"


def _written(part: tuple[str, str]) -> str:
    return "-".join(filter(None, part))
