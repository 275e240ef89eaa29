"""Splits English text into sentences."""

import re
from collections.abc import Iterator

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
