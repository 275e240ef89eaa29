"""Reads the labelled rows as the pipeline will read them, and counts words, repeats and letters."""

import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import below
from stages.kinds._kind import KINDS, SPLITS, Kind, Split, settings_of
from stages.kinds._labels import NO_LABEL_SIGNS, alike, signs_of_none
from stages.kinds._tags import OUTSIDE, OUTSIDES, split_tag, written_as
from stages.prepare_task import (
    check_groups,
    check_kind,
    count_labels,
    with_enough_rows,
    without_duplicates,
)
from stages.proposal.columns import Guess
from stages.proposal.files import files_of
from stages.proposal.flags import WORDS, Flags
from stages.sources._source import SOURCES, Labelled

SPACELESS = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"}  # scripts
LETTERS = 20_000  # number of letters of the texts that are read to find the script
SPAN_TAG = r"[BI][-_:./\u2013].+|.+[-_:./\u2013][BI]"
WRITTEN_OUT = r"(?i)(begin|start|inside|outside)([-_:.].+)?$"
SEVERAL_TAGS = r"[BIES][-_:].+[|,;+/][BIELSU][-_:]|\([A-Za-z]\w+(\*|\))"  # nested spans; CoNLL-2012
MANY_OUTSIDE = 1 / 3  # share of words outside of spans, if there are spans


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The rows of each split, without those whose input is also in a later split, and counts."""

    kind: Kind
    source: Json  # settings of the source
    by_split: dict[Split, list[Labelled]]
    num_read: int  # rows of all splits, removed rows included
    removed: dict[str, int]  # rows of a split whose input a later split has
    repeated: int  # rows of train that repeat the input of an earlier one
    contradicting: int  # repeated rows with another answer
    num_words: np.ndarray  # of each input of train
    scripts: Counter[str]  # number of letters of each script

    @property
    def num(self) -> dict[Split, int]:
        return {split: len(self.by_split[split]) for split in SPLITS}

    @property
    def labels(self) -> dict[str, int]:
        return count_labels(self.by_split["train"], self.kind)

    @property
    def script(self) -> str:
        return _most(self.scripts)

    @property
    def words(self) -> int:
        return int(self.num_words.sum())

    @property
    def targets(self) -> list[str]:
        """The texts of train that are to be written, if the task is to write a text."""
        rows = [example.row for example in self.by_split["train"]]
        return [row["target"] for row in rows] if self.kind.name == "seq2seq" else []


def _most(scripts: Counter[str]) -> str:
    return scripts.most_common(1)[0][0] if scripts else "LATIN"


def count_words(texts: list[str], script: str) -> list[int]:
    """Returns the number of words of each text, or of its letters if the script has no blanks
    between words."""
    if script in SPACELESS:
        return [len(text.replace(" ", "")) for text in texts]
    return [len(text.split()) for text in texts]


def with_columns(source: Json, guess: Guess) -> Json:
    """Returns the settings of the source, with the guessed columns and settings added where they
    differ from the defaults."""
    form = source.get("format") or files_of(source)[0].format
    defaults = {"words": "FORM", "tags": "UPOS"} if form == "conllu" else {}
    kind = KINDS[guess.kind]
    columns = {
        role: name
        for role, name in guess.columns.items()
        if name != defaults.get(role, role) or role in kind.optional
    }
    plain = {key: p.default for key, p in settings_of(type(kind)).items()}
    others = {key: value for key, value in guess.settings.items() if value != plain.get(key)}
    return source | columns | others


def read_examples(source: Json, kind: Kind, notes: list[str], min_rows: int) -> Examples:
    """Returns the rows of the source. Rows whose label is certainly a sign for no label are left
    out, and their number is added to ``notes``.

    Raises ValueError for rows that the pipeline would refuse, with their file and line.
    """
    labelled = _labelled(source, kind)
    check_kind(labelled, kind, where="data")
    num_read, counts = len(labelled), count_labels(labelled, kind)
    signs = signs_of_none(counts) if NO_LABEL_SIGNS in settings_of(type(kind)) else {}
    if signs and all(signs.values()) and NO_LABEL_SIGNS not in source:
        source = source | {NO_LABEL_SIGNS: [*signs]}
        shown = ", ".join(f"{sign!r} ({counts[sign]:,} rows)" for sign in signs)
        notes.append(f"Left out as signs for no label: {shown}. (--no-label SIGN,... or '')")
        labelled = _labelled(source, kind)
    with below(f"{files_of(source)[0].path}: source"):
        check_groups(labelled)
        labelled = with_enough_rows(labelled, kind, source, min_rows)
    labelled = [example._replace(row=kind.prepared(example.row)) for example in labelled]
    by_split, removed = without_duplicates(labelled, kind)
    repeated, contradicting = _repeated(by_split["train"], kind)
    texts = [" ".join(kind.texts(example.row)) for example in by_split["train"]]
    letters = islice((c for text in texts for c in text if c.isalpha()), LETTERS)
    scripts = Counter(unicodedata.name(c, "OTHER").replace("-", " ").split()[0] for c in letters)
    return Examples(
        kind=kind,
        source=source,
        by_split=by_split,
        num_read=num_read,
        removed=removed,
        repeated=repeated,
        contradicting=contradicting,
        num_words=np.array(count_words(texts, _most(scripts)) or [0]),
        scripts=scripts,
    )


def _labelled(source: Json, kind: Kind) -> list[Labelled]:
    return [*SOURCES.build(source, where="DATA").examples(kind)]


def _repeated(train: list[Labelled], kind: Kind) -> tuple[int, int]:
    """Returns how many rows repeat the input of an earlier row, and how many of these have
    another answer."""
    answers: dict[str, set[str]] = defaultdict(set)
    repeated = contradicting = 0
    for example in train:
        known, answer = answers[kind.same_input(example.row)], kind.answer(example.row)
        repeated += bool(known)
        contradicting += bool(known) and answer not in known
        known.add(answer)
    return repeated, contradicting


def tag_settings(tagged: dict[str, list[str]], flags: Flags, file: str) -> tuple[Json, Json, str]:
    """Returns the settings of the source and of the task for tags, and a phrase that explains them.
    ``tagged`` has the tags of each sentence by the sentence's place in the file.

    Raises ValueError, which begins with ``file`` or a place, if it is unclear how to read the tags.
    """
    sentences = [*tagged.values()]
    counts = Counter(tag for tags in sentences for tag in tags)
    if len(counts) == 1:
        raise ValueError(f"{file}: every word has the tag {next(iter(counts))!r}")
    names, settings = flags.tag_names, Json()
    single: Json = {"metric": "word_accuracy"}
    if flags.tag_scheme == WORDS:
        return settings, single, "tags of single words, scored word by word"
    if all(re.fullmatch(r"-?\d+(\.0)?", tag) for tag in counts):
        numbers = {tag: int(float(tag)) for tag in counts}
        if names is None or not all(0 <= n < len(names) for n in numbers.values()):
            raise ValueError(
                f"{file}: the tags are the numbers {', '.join(sorted(counts)[:8])}; --tag-names "
                f"O,B-PER,... names them from 0 on, --tag-scheme {WORDS} scores numbers; words "
                "without a tag (-100) must be left out"
            )
        settings["tag_names"] = names
        sentences = [[names[numbers[tag]] for tag in tags] for tags in sentences]
    scheme, form, odd, num_open = written_as(sentences)
    settings |= {"tag_form": form} if form != "as_is" else {}
    shown = ", ".join(f"{tag!r} ({counts[tag]:,})" for tag in [*(odd or counts)][:8])
    if several := [tag for tag in counts if re.search(SEVERAL_TAGS, tag)]:
        raise ValueError(
            f"{file}: {several[0]!r} has two tags, or is a bracket that opens or closes spans; "
            "write one tag in BIO for each word (nested spans in a file for each level), or "
            f"--tag-scheme {WORDS}"
        )
    if flags.tag_scheme is not None:
        scheme = flags.tag_scheme
    elif scheme is None:
        if odd and any(re.fullmatch(SPAN_TAG, tag) for tag in counts):
            raise ValueError(
                f"{file}: among tags of spans, such as B-TYPE, are {shown}; write {OUTSIDE} for "
                f"words outside of spans and correct others, or --tag-scheme {WORDS}"
            )
        if any(re.match(WRITTEN_OUT, tag) for tag in counts):
            raise ValueError(
                f"{file}: letters of tags are written out ({shown}); write B-TYPE and I-TYPE, and "
                f"{OUTSIDE} outside of spans, or --tag-scheme {WORDS}"
            )
        if odd and sum(counts[tag] for tag in OUTSIDES) < MANY_OUTSIDE * counts.total():
            return {}, single, "tags are single ones, not O, B-TYPE and I-TYPE: word by word"
        raise ValueError(
            f"{file}: tags in no scheme of O, B-TYPE and I-TYPE ({shown}); --tag-scheme io reads "
            f"runs of one tag as spans, --tag-scheme {WORDS} scores word by word"
        )
    elif odd:
        first = next(place for place, tags in tagged.items() if not {*odd}.isdisjoint(tags))
        raise ValueError(
            f"{first}: among tags in {scheme} are {shown}; correct them, or --tag-scheme {WORDS}"
        )
    form_of = {"prefix": ", written b-TYPE, B_TYPE or 0 for O", "suffix": ", written TYPE-B"}
    why = f"tags in {scheme.upper()}{form_of.get(form, '')}"
    why += ", which become BIO" if scheme != "bio" else ""
    why += f"; {num_open:,} spans begin with I-TYPE (--tag-scheme)" if num_open else ""
    types = {part[1] for tag in counts if (part := split_tag(tag, form))}
    why += "".join(f"; types that look alike: {', '.join(group)}" for group in alike(types))
    return settings | {"tag_scheme": scheme}, {}, why
