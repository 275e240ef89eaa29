"""Reads the labelled rows as the pipeline will read them, and counts words, repeats and letters."""

import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import below
from stages.prepare_task import (
    check_groups,
    check_kind,
    count_labels,
    with_enough_rows,
    without_duplicates,
)
from stages.proposal.columns import Guess
from stages.proposal.files import files_of
from stages.sources._source import SOURCES, Labelled
from stages.tasks._kind import SPLITS, Kind, Split, settings_of
from stages.tasks._labels import NO_LABEL_SIGNS, signs_of_none
from stages.tasks._task import TASKS

SPACELESS = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"}  # scripts
LETTERS = 20_000  # number of letters of the texts that are read to find the script


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
        return _commonest(self.scripts)

    @property
    def latin(self) -> float:
        """The share of Latin letters."""
        return self.scripts["LATIN"] / self.scripts.total() if self.scripts else 1.0

    @property
    def words(self) -> int:
        return int(self.num_words.sum())

    @property
    def targets(self) -> list[str]:
        """The texts of train that are to be written, if the task is to write a text."""
        rows = [example.row for example in self.by_split["train"]]
        return [row["target"] for row in rows] if self.kind.name == "seq2seq" else []


def _commonest(scripts: Counter[str]) -> str:
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
    kind = TASKS[guess.kind]
    columns = {
        role: name
        for role, name in guess.columns.items()
        if name != defaults.get(role, role) or role in kind.optional
    }
    plain = {key: p.default for key, p in settings_of(kind).items()}
    others = {key: value for key, value in guess.settings.items() if value != plain.get(key)}
    return source | columns | others


def read_examples(source: Json, kind: Kind, notes: list[str], min_rows: int) -> Examples:
    """Returns the rows of the source. Rows whose label is certainly a sign for no label are left
    out, and their number is added to ``notes``.

    Raises ValueError for rows that the pipeline would refuse, with their file and line.
    """
    labelled = [*SOURCES.build(source, where="DATA").examples(kind)]
    check_kind(labelled, kind, where="data")
    num_read, counts = len(labelled), count_labels(labelled, kind)
    signs = signs_of_none(counts) if NO_LABEL_SIGNS in settings_of(kind) else {}
    if signs and all(signs.values()) and NO_LABEL_SIGNS not in source:
        source = source | {NO_LABEL_SIGNS: [*signs]}
        shown = ", ".join(f"{sign!r} ({counts[sign]:,} rows)" for sign in signs)
        notes.append(f"Left out as signs for no label: {shown}. (--set no_label=SIGN,... or '')")
        labelled = [*SOURCES.build(source, where="DATA").examples(kind)]
    with below(f"{files_of(source)[0].path}: source"):
        check_groups(labelled)
        labelled = with_enough_rows(labelled, kind, source, min_rows)
    labelled = [example._replace(row=kind.prepared(example.row)) for example in labelled]
    by_split, removed = without_duplicates(labelled, kind)
    answers: dict[str, set[str]] = defaultdict(set)
    repeated = contradicting = 0
    for example in by_split["train"]:
        known, answer = answers[kind.same_input(example.row)], kind.answer(example.row)
        repeated += bool(known)
        contradicting += bool(known) and answer not in known
        known.add(answer)
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
        num_words=np.array(count_words(texts, _commonest(scripts)) or [0]),
        scripts=scripts,
    )
