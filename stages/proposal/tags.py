"""Finds how the tags of words are written."""

import re
from collections import Counter

from stages.core.artifacts import Json
from stages.proposal.flags import WORDS, Flags
from stages.proposal.questions import Unclear
from stages.tasks._tags import OUTSIDE, written_as

SPAN_TAG = r"[BIELSUMW]-(?!.*[|,;+/][BIELSU][-_:]).+"  # of a span of one type
# Tags of spans in other forms (B_PER, PER-B, Begin-PER, B), and brackets of CoNLL-2012.
LIKE_SPAN_TAG = (
    r"[BIELSUbi][-_:./\u2013].+|.+[-_:./\u2013][BI]|[BI]|\([A-Za-z]\w+(\*|\))"
    r"|(?i:begin|start|inside|outside)([-_:.].+)?"
)
OUTSIDES = (OUTSIDE, "o", "0", "_", "-", "*")
MANY_OUTSIDE = 1 / 3  # share of words outside of spans, if there are spans


def tag_settings(tagged: dict[str, list[str]], flags: Flags, file: str) -> tuple[Json, Json, str]:
    """Returns the settings of the source and of the task for tags, and a note that explains them.
    ``tagged`` has the tags of each sentence by the sentence's place in the file. Raises Unclear,
    which begins with ``file`` or a place, for tags in no known scheme."""
    sentences, settings = [*tagged.values()], Json()
    counts = Counter(tag for tags in sentences for tag in tags)
    if len(counts) == 1:
        raise Unclear("one tag", file, repr(next(iter(counts))))
    if flags.tag_scheme != WORDS and all(re.fullmatch(r"-?\d+(\.0)?", tag) for tag in counts):
        names, numbers = flags.tag_names or [], {tag: int(float(tag)) for tag in counts}
        if not all(0 <= number < len(names) for number in numbers.values()):
            raise Unclear("numbers", file, ", ".join(sorted(counts)[:8]))
        settings["tag_names"] = names
        sentences = [[names[numbers[tag]] for tag in tags] for tags in sentences]
        counts = Counter(tag for tags in sentences for tag in tags)
    odd = [tag for tag in counts if tag != OUTSIDE and not re.fullmatch(SPAN_TAG, tag)]
    scheme = flags.tag_scheme or (None if odd else written_as(sentences).scheme)
    few_outside = sum(counts[tag] for tag in OUTSIDES) < MANY_OUTSIDE * counts.total()
    is_any_span = {*counts} - {*odd, OUTSIDE} or any(re.fullmatch(LIKE_SPAN_TAG, t) for t in odd)
    if scheme == WORDS or (scheme is None and odd and few_outside and not is_any_span):
        return settings, {"metric": "word_accuracy"}, "Tags of single words, scored word by word."
    if scheme is None:
        place = next((p for p, tags in tagged.items() if not {*odd}.isdisjoint(tags)), file)
        shown = ", ".join(f"{tag!r} ({counts[tag]:,})" for tag in [*(odd or counts)][:8])
        raise Unclear("tags", place, shown)
    return settings | {"tag_scheme": scheme}, {}, f"Tags in {scheme.upper()}. (--set tag_scheme)"
