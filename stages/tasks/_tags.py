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
_NOT_IN_SPAN = (OUTSIDE, "")
_FORMS = {
    "as_is": re.compile(r"(?P<letter>[^-])-(?P<type>.+)", re.DOTALL),
    "prefix": re.compile(r"(?P<letter>[A-Za-z])(?:[-_:./\u2013](?P<type>.+))?"),
    "suffix": re.compile(r"(?:(?P<type>.+)[-_:./\u2013])?(?P<letter>[A-Za-z])"),
}


def split_tag(tag: str, form: Form) -> tuple[str, str] | None:
    """Returns the (letter, type) of a tag in a form; ("O", "") outside of spans, None for a tag in
    another form."""
    if tag == OUTSIDE or (form != "as_is" and tag in OUTSIDES):
        return _NOT_IN_SPAN
    parts = _FORMS[form].fullmatch(tag)
    if parts is None:
        return None
    letter = parts["letter"] if form == "as_is" else parts["letter"].upper()
    return letter, parts["type"] or NO_TYPE


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
    result = []
    for before, (letter, type), after in zip(
        [_NOT_IN_SPAN, *parts], parts, [*parts[1:], _NOT_IN_SPAN], strict=False
    ):
        begins = letter in "BS"
        if scheme in ("iob1", "io"):
            begins = letter == "B" or type != before[1]
        elif scheme != "bio":
            for one, next_one in ((before, (letter, type)), ((letter, type), after)):
                goes_on = one[1] if one[0] in "BI" else ""
                if goes_on != (next_one[1] if next_one[0] in "IE" else ""):
                    shown = ["-".join(filter(None, part)) for part in (next_one, one)]
                    raise ValueError(f"{shown[0]} cannot follow {shown[1]} in bioes")
        result.append(f"{'B' if begins else 'I'}-{type}" if type else OUTSIDE)
    return result


def _parts(tag: str, scheme: Scheme, form: Form) -> tuple[str, str]:
    """Returns (letter, type) of a tag, the letter as in BIOES; the type is empty outside of
    spans."""
    parts = split_tag(tag, form)
    if scheme == "io":
        if tag in OUTSIDES:
            return _NOT_IN_SPAN
        return parts if parts is not None and parts[0] in "OI" else ("I", tag)
    if parts is None or (parts[1] and parts[0] not in LETTERS[scheme]):
        written = "TYPE-{}" if form == "suffix" else "{}-TYPE"
        valid = ", ".join(written.format(letter) for letter in LETTERS[scheme])
        raise ValueError(f"{tag!r} is no tag of {scheme}, which has O, {valid}")
    return parts[0].translate(_AS_BIOES), parts[1]


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
    for form in get_args(Form) if is_usual else get_args(Form)[1:]:
        parts = {tag: split_tag(tag, form) for tag in spans}
        covered[form] = {tag: p[0] for tag, p in parts.items() if p and p[0] in "BIELSUMW"}
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
        parts = [split_tag(tag, form) or _NOT_IN_SPAN for tag in tags]
        for before, (letter, type) in pairwise([_NOT_IN_SPAN, *parts]):
            num_open += letter == "I" and type != before[1]
            # In IOB1 a span begins with B only directly after a span of its type.
            is_iob1 &= letter != "B" or type == before[1]
    return Written("iob1" if num_open and is_iob1 else "bio", form, odd, num_open)
