"""Converts span tags from the published schemes to BIO."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Scheme = Literal["bio", "iob1", "bioes", "bilou", "bmes", "io"]
OUTSIDE = "O"  # the tag of a word outside all spans
LETTERS: dict[Scheme, str] = {
    "bio": "BI",
    "iob1": "BI",
    "bioes": "BIES",
    "bilou": "BILU",
    "bmes": "BMESW",
}
STRICT = ("bioes", "bilou", "bmes")  # schemes in which each span begins and ends with its own tag
MOST_ODD = 0.2  # largest share of span tags that may be in another form
_AS_BIOES = str.maketrans("LUMW", "ESIS")
_NOT_IN_SPAN = (OUTSIDE, "")


def split_tag(tag: str) -> tuple[str, str] | None:
    """Returns the letter and the type of a tag such as B-PER; ("O", "") outside of spans, None for
    a tag in another form."""
    letter, _, type = tag.partition("-")
    if tag == OUTSIDE:
        return _NOT_IN_SPAN
    return (letter, type) if len(letter) == 1 and type else None


def to_bio(tags: list[str], scheme: Scheme) -> list[str]:
    """Returns tags in BIO, where a span of type X is B-X and then I-X.

    ``iob1`` (Ramshaw and Marcus 1995; CoNLL-2003): every word of a span is I-X, except that B-X
    begins a span that directly follows one of the same type. ``bioes``: E-X ends a span, and S-X is
    a span of one word; ``bilou`` has L and U instead, ``bmes`` has M for I, and W or S. ``io``: the
    tag of every word of a span is the span's type.

    Raises ValueError for a tag that is not in the scheme or cannot follow the tag before it.
    """
    if scheme == "bio":
        return tags
    result, parts = list[str](), list[tuple[str, str]]()  # letters of BIOES, and types
    for tag in tags:
        part = split_tag(tag)
        if scheme == "io":
            part = _NOT_IN_SPAN if tag == OUTSIDE else ("I", tag.removeprefix("I-"))
        elif part is None or (part[1] and part[0] not in LETTERS[scheme]):
            valid = ", ".join(f"{letter}-TYPE" for letter in LETTERS[scheme])
            raise ValueError(f"{tag!r} is no tag of {scheme}, which has O, {valid}")
        parts.append((part[0].translate(_AS_BIOES), part[1]))
    for before, (letter, type) in pairwise([_NOT_IN_SPAN, *parts, _NOT_IN_SPAN]):
        begins = letter in "BS"
        if scheme not in STRICT:
            begins = letter == "B" or type != before[1]
        elif (before[1] if before[0] in "BI" else "") != (type if letter in "IE" else ""):
            shown = ["-".join(filter(None, part)) for part in ((letter, type), before)]
            raise ValueError(f"{shown[0]} cannot follow {shown[1]} in bioes")
        result.append(f"{'B' if begins else 'I'}-{type}" if type else OUTSIDE)
    return result[:-1]


class Written(NamedTuple):
    """How the tags of some sentences are written."""

    scheme: Scheme | None  # None for single tags, such as parts of speech, and mixed schemes
    odd: list[str]  # tags in another form than O and B-TYPE
    num_open: int = 0  # spans that begin with I


def written_as(sentences: Sequence[Sequence[str]]) -> Written:
    counts = Counter(tag for tags in sentences for tag in tags if tag != OUTSIDE and tag.strip())
    parted = {tag: parts for tag in counts if (parts := split_tag(tag))}
    letters = {tag: letter for tag, (letter, _) in parted.items() if letter in "BIELSUMW"}
    odd = [tag for tag in counts if tag not in letters]
    if sum(counts[tag] for tag in odd) > MOST_ODD * counts.total():
        return Written(None, odd)
    fitting = (scheme for scheme, of in LETTERS.items() if {*letters.values()} <= {*of})
    scheme = next(fitting, None)
    if scheme != "bio":
        return Written(scheme, odd)
    num_open, is_iob1 = 0, True
    for tags in sentences:
        parts = [split_tag(tag) or _NOT_IN_SPAN for tag in tags]
        for before, (letter, type) in pairwise([_NOT_IN_SPAN, *parts]):
            num_open += letter == "I" and type != before[1]
            # In IOB1 a span begins with B only directly after a span of its type.
            is_iob1 &= letter != "B" or type == before[1]
    return Written("iob1" if num_open and is_iob1 else "bio", odd, num_open)
