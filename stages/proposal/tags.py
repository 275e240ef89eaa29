"""Finds how the tags of words are written."""

import re
from collections import Counter

from stages.core.artifacts import Json
from stages.proposal.flags import WORDS, Flags
from stages.tasks._labels import alike
from stages.tasks._tags import OUTSIDE, OUTSIDES, split_tag, written_as

SPAN_TAG = r"[BI][-_:./\u2013].+|.+[-_:./\u2013][BI]"
WRITTEN_OUT = r"(?i)(begin|start|inside|outside)([-_:.].+)?$"
SEVERAL_TAGS = r"[BIES][-_:].+[|,;+/][BIELSU][-_:]|\([A-Za-z]\w+(\*|\))"  # nested spans; CoNLL-2012
MANY_OUTSIDE = 1 / 3  # share of words outside of spans, if there are spans
AS_WORDS = f"--set tag_scheme={WORDS}"
FORMS = {"prefix": ", written b-TYPE, B_TYPE or 0 for O", "suffix": ", written TYPE-B"}


def tag_settings(tagged: dict[str, list[str]], flags: Flags, file: str) -> tuple[Json, Json, str]:
    """Returns the settings of the source and of the task for tags, and a phrase that explains them.
    ``tagged`` has the tags of each sentence by the sentence's place in the file.

    Raises ValueError, which begins with ``file`` or a place, if it is unclear how to read the tags.
    """
    sentences = [*tagged.values()]
    counts = Counter(tag for tags in sentences for tag in tags)
    names, single = flags.tag_names, {"metric": "word_accuracy"}
    settings: Json = {}
    if len(counts) == 1:
        raise ValueError(f"{file}: every word has the tag {next(iter(counts))!r}")
    if flags.tag_scheme == WORDS:
        return settings, single, "tags of single words, scored word by word"
    if all(re.fullmatch(r"-?\d+(\.0)?", tag) for tag in counts):
        numbers = {tag: int(float(tag)) for tag in counts}
        if names is None or not all(0 <= n < len(names) for n in numbers.values()):
            raise ValueError(
                f"{file}: the tags are the numbers {', '.join(sorted(counts)[:8])}; --set "
                f"tag_names=O,B-PER,... names them from 0 on, {AS_WORDS} scores numbers; words "
                "without a tag (-100) must be left out"
            )
        settings["tag_names"] = names
        sentences = [[names[numbers[tag]] for tag in tags] for tags in sentences]
    scheme, form, odd, num_open = written_as(sentences)
    shown = ", ".join(f"{tag!r} ({counts[tag]:,})" for tag in [*(odd or counts)][:8])
    few_outside = sum(counts[tag] for tag in OUTSIDES) < MANY_OUTSIDE * counts.total()
    place, unclear = file, ""
    if several := [tag for tag in counts if re.search(SEVERAL_TAGS, tag)]:
        unclear = (
            f"{several[0]!r} has two tags, or is a bracket that opens or closes spans; write one "
            f"tag in BIO for each word (nested spans in a file for each level), or {AS_WORDS}"
        )
    elif flags.tag_scheme is not None:
        scheme = flags.tag_scheme
    elif scheme is not None and odd:
        place = next(place for place, tags in tagged.items() if not {*odd}.isdisjoint(tags))
        unclear = f"among tags in {scheme} are {shown}; correct them, or {AS_WORDS}"
    elif scheme is None and odd and any(re.fullmatch(SPAN_TAG, tag) for tag in counts):
        unclear = (
            f"among tags of spans, such as B-TYPE, are {shown}; write {OUTSIDE} for words outside "
            f"of spans and correct others, or {AS_WORDS}"
        )
    elif scheme is None and any(re.match(WRITTEN_OUT, tag) for tag in counts):
        unclear = (
            f"letters of tags are written out ({shown}); write B-TYPE and I-TYPE, and {OUTSIDE} "
            f"outside of spans, or {AS_WORDS}"
        )
    elif scheme is None and odd and few_outside:
        return {}, single, "tags are single ones, not O, B-TYPE and I-TYPE: word by word"
    elif scheme is None:
        unclear = (
            f"tags in no scheme of O, B-TYPE and I-TYPE ({shown}); --set tag_scheme=io reads runs "
            f"of one tag as spans, {AS_WORDS} scores word by word"
        )
    if unclear or scheme is None:
        raise ValueError(f"{place}: {unclear}")
    settings |= {"tag_scheme": scheme} | ({"tag_form": form} if form != "as_is" else {})
    why = f"tags in {scheme.upper()}{FORMS.get(form, '')}"
    why += ", which become BIO" if scheme != "bio" else ""
    why += f"; {num_open:,} spans begin with I-TYPE (--set tag_scheme)" if num_open else ""
    types = {part[1] for tag in counts if (part := split_tag(tag, form))}
    why += "".join(f"; types that look alike: {', '.join(group)}" for group in alike(types))
    return settings, {}, why
