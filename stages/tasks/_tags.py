"""Converts span tags from the published schemes to BIO."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

Scheme = Literal["bio", "iob1", "bioes", "bilou", "bmes", "io"]
Form = Literal["as_is", "prefix", "suffix"]
OUTSIDE = "O"  # the tag of a word outside all spans
OUTSIDES = {"O", "o", "0", "_", "-", "*"}
LETTERS: dict[Scheme, str] = {
    "bio": "BI",
    "iob1": "BI",
    "bioes": "BIES",
    "bilou": "BILU",
    "bmes": "BMESW",
    "io": "I",
}
MOST_ODD = 0.2  # largest share of span tags that may be in another form
NO_TYPE = "SPAN"  # the type of spans whose tags are letters alone (B, I)
_AS_BIOES = str.maketrans("LUMW", "ESIS")
_FORMS = {
    "prefix": re.compile(r"(?P<letter>[A-Za-z])(?:[-_:./\u2013](?P<type>.+))?"),
    "suffix": re.compile(r"(?:(?P<type>.+)[-_:./\u2013])?(?P<letter>[A-Za-z])"),
}


def to_bio(tags: list[str], scheme: Scheme, form: Form = "as_is") -> list[str]:
    """Returns tags in BIO, where a span of type X is B-X and then I-X.

    ``iob1`` (Ramshaw and Marcus 1995; CoNLL-2003): every word of a span is I-X, except that B-X
    begins a span that directly follows one of the same type. ``bioes``: E-X ends a span, and S-X is
    a span of one word; ``bilou`` has L and U instead, ``bmes`` has M for I, and W or S. ``io``: the
    tag of every word of a span is the span's type.

    The form ``prefix`` reads B-X, b-X, B_X, B:X, B.X, B/X and B (without types) alike, ``suffix``
    reads X-B, X_B and X:B; both read ``o``, ``0``, ``_``, ``-`` and ``*`` as O.

    Raises ValueError for a tag that is not in the scheme or cannot follow the tag before it.
    """
    if scheme == "bio" and form == "as_is":
        return tags
    parts = [_parts(tag, scheme, form) for tag in tags]
    match scheme:
        case "bio":
            return [_tag(letter, type) for letter, type in parts]
        case "iob1" | "io":
            return _from_iob1(parts)
        case _:
            return _from_bioes(parts)


def split_tag(tag: str, form: Form) -> tuple[str, str] | None:
    """Returns the (letter, type) of a tag in a form; ("O", "") outside of spans, None for a tag in
    another form."""
    if tag == OUTSIDE or (form != "as_is" and tag in OUTSIDES):
        return OUTSIDE, ""
    if form == "as_is":
        letter, _, type = tag.partition("-")
        return (letter, type) if len(letter) == 1 and type else None
    parts = _FORMS[form].fullmatch(tag)
    return (parts["letter"].upper(), parts["type"] or NO_TYPE) if parts else None


class Written(NamedTuple):
    """How the tags of some sentences are written."""

    scheme: Scheme | None  # None for single tags, such as parts of speech, and mixed schemes
    form: Form
    odd: list[str]  # tags in another form
    num_open: int = 0  # spans that begin with I


def written_as(sentences: Sequence[Sequence[str]]) -> Written:
    counts = Counter(tag for tags in sentences for tag in tags)
    spans = {tag: n for tag, n in counts.items() if tag not in OUTSIDES and tag.strip()}
    is_usual = not spans or not (OUTSIDES - {OUTSIDE}) & counts.keys()
    covered: dict[Form, dict[str, str]] = {}
    for form in get_args(Form):
        parts = {tag: split_tag(tag, form) for tag in spans}
        letters = {tag: part[0] for tag, part in parts.items() if part and part[0] in "BIELSUMW"}
        if form != "as_is" or is_usual:
            covered[form] = letters
    form = max(covered, key=lambda form: sum(spans[tag] for tag in covered[form]))
    odd = [tag for tag in spans if tag not in covered[form]]
    if sum(spans[tag] for tag in odd) > MOST_ODD * sum(spans.values()):
        return Written(None, "as_is", odd)
    used = {*covered[form].values()}
    fitting = (s for s in ("bio", "bioes", "bilou", "bmes") if used <= {*LETTERS[s]})
    scheme: Scheme | None = next(fitting, None)
    if scheme != "bio":
        return Written(scheme, form, odd)
    num_open, is_iob1 = 0, True
    for tags in sentences:
        parts = [split_tag(tag, form) or (OUTSIDE, "") for tag in tags]
        for before, (letter, type) in pairwise([(OUTSIDE, ""), *parts]):
            num_open += letter == "I" and type != before[1]
            # In IOB1 a span begins with B only directly after a span of its type.
            is_iob1 &= letter != "B" or type == before[1]
    return Written("iob1" if num_open and is_iob1 else "bio", form, odd, num_open)


def _parts(tag: str, scheme: Scheme, form: Form) -> tuple[str, str]:
    """Returns (letter, type) of a tag, the letter as in BIOES; the type is empty outside of
    spans."""
    parts = split_tag(tag, form)
    if scheme == "io":
        if tag in OUTSIDES:
            return OUTSIDE, ""
        prefixed = parts is not None and parts[0] in "OI"
        return parts if parts is not None and prefixed else ("I", tag)
    if parts is None or (parts[1] and parts[0] not in LETTERS[scheme]):
        written = {"suffix": "TYPE-{}"}.get(form, "{}-TYPE")
        valid = ", ".join(written.format(letter) for letter in LETTERS[scheme])
        raise ValueError(f"{tag!r} is no tag of {scheme}, which has O, {valid}")
    return parts[0].translate(_AS_BIOES), parts[1]


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
    return f"{letter}-{type}" if type else OUTSIDE


def _written(part: tuple[str, str]) -> str:
    return "-".join(filter(None, part))
