"""Reads the labelled rows as the pipeline will read them, and says what is known of them before
anything is trained."""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from jaxtyping import Int

from stages.core.artifacts import Json
from stages.core.components import below
from stages.prepare_task import (
    check_groups,
    check_kind,
    count_labels,
    times_of,
    with_enough_rows,
    without_duplicates,
)
from stages.proposal.files import files_of
from stages.proposal.flags import Flags
from stages.proposal.questions import Note
from stages.proposal.roles import Guess
from stages.sources._columns import EMPTY_CELLS, EMPTY_SIGNS, GROUP, NONE, TIME
from stages.sources._source import SOURCES, Labelled
from stages.tasks._cells import EmptyCellError
from stages.tasks._labels import LABEL_CASE, NO_LABEL_SIGNS, signs_of_none
from stages.tasks._task import SPLITS, TASKS, Split, Task, settings_of

SPACELESS = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"}  # scripts
LETTERS = 20_000  # number of letters of the texts that are read to find the script
SHOWN_LABELS, LETTERS_SHOWN = 8, 40
FEW_TEST_ROWS = 400
ODD_LINES = 50  # fewest lines of a text in a table that is suspicious


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The rows of each split, without those whose input is also in a later split."""

    kind: Task
    source: Json  # settings of the source
    by_split: dict[Split, list[Labelled]]
    removed: dict[str, int]  # rows of a split whose input a later split has
    labelled: list[Labelled]  # all rows

    @property
    def num(self) -> dict[Split, int]:
        return {split: len(self.by_split[split]) for split in SPLITS}

    @property
    def labels(self) -> dict[str, int]:
        return count_labels(self.by_split["train"], self.kind)

    @cached_property
    def inputs(self) -> list[str]:
        """The texts of train."""
        return [" ".join(self.kind.texts(example.row)) for example in self.by_split["train"]]

    @property
    def targets(self) -> list[str]:
        """The texts of train that are to be written, if the task is to write a text."""
        rows = [example.row for example in self.by_split["train"]]
        return [row["target"] for row in rows] if self.kind.name == "seq2seq" else []

    @cached_property
    def scripts(self) -> Counter[str]:
        """The number of letters of each script in the texts of train."""
        letters = islice((c for text in self.inputs for c in text if c.isalpha()), LETTERS)
        names = (unicodedata.name(c, "OTHER").replace("-", " ") for c in letters)
        return Counter(name.split()[0] for name in names) or Counter(LATIN=1)

    @property
    def is_spaceless(self) -> bool:
        """Whether most letters are of a script without blanks between words."""
        return self.scripts.most_common(1)[0][0] in SPACELESS

    @property
    def latin(self) -> float:
        """The share of Latin letters."""
        return self.scripts["LATIN"] / self.scripts.total()

    def count_words(self, texts: Sequence[str]) -> Int[np.ndarray, " N"]:
        """Returns the number of words of each text, or of its letters if the script has no blanks
        between words."""
        spaceless = self.is_spaceless
        counts = [len(t.replace(" ", "")) if spaceless else len(t.split()) for t in texts]
        return np.array(counts, dtype=np.int64)


def read_examples(source: Json, guess: Guess, flags: Flags, notes: list[str]) -> Examples:
    """Returns the rows of the source with the guessed columns. Rows with an empty cell, and rows
    whose label is certainly a sign for no label, are left out, and their number is added to
    ``notes``.

    Raises ValueError for rows that the pipeline would refuse, with their file and line.
    """
    kind, files = TASKS[guess.kind], files_of(source)
    conllu = {"words": "FORM", "tags": "UPOS"} if files[0].format == "conllu" else {}
    usual = {role: role for role in (*kind.inputs, kind.target)} | conllu
    usual |= {key: parameter.default for key, parameter in settings_of(kind).items()}
    signs = NONE if flags.no_label == [] else flags.no_label
    empty = {EMPTY_SIGNS: flags.empty_signs, EMPTY_CELLS: "skip"} if flags.empty_signs else {}
    said = {NO_LABEL_SIGNS: signs, LABEL_CASE: flags.label_case}
    said = {key: value for key, value in said.items() if key in usual and value is not None} | empty
    chosen = {**guess.columns, **guess.settings}
    source = (
        source | {key: value for key, value in chosen.items() if value != usual.get(key)} | said
    )

    def read() -> list[Labelled]:
        return [*SOURCES.build(source, where="DATA").examples(kind)]

    why = f"--set empty_signs={','.join(flags.empty_signs)}" if flags.empty_signs else ""
    try:
        labelled = read()
    except EmptyCellError as error:
        source |= {EMPTY_CELLS: "skip"}
        labelled, why = read(), str(error)
        if not any(example.split == "train" for example in labelled):
            raise
    if why:
        total = sum(1 for file in files for _ in file.records())
        notes.append(Note("empty", total - len(labelled), total, why))
    check_kind(labelled, kind, where="data")
    counts = count_labels(labelled, kind)
    missing = signs_of_none(counts) if NO_LABEL_SIGNS in usual else {}
    if missing and all(missing.values()) and NO_LABEL_SIGNS not in source:
        source |= {NO_LABEL_SIGNS: [*missing]}
        shown = ", ".join(f"{sign!r} ({counts[sign]:,} rows)" for sign in missing)
        notes.append(Note("no label", shown))
        labelled = read()
    with below(f"{files[0].path}: source"):
        check_groups(labelled)
        labelled = with_enough_rows(labelled, kind, source, flags.min_rows_per_class)
    labelled = [example._replace(row=kind.prepared(example.row)) for example in labelled]
    by_split, removed = without_duplicates(labelled, kind)
    return Examples(kind=kind, source=source, by_split=by_split, removed=removed, labelled=labelled)


def notes_on_rows(examples: Examples) -> Iterator[Note]:
    """Yields notes on the numbers of rows, labels and words."""
    kind, source, num = examples.kind, examples.source, examples.num
    numbers = ", ".join(f"{num[split]:,} {split}" for split in SPLITS)
    yield Note("rows", numbers, _drawn(examples))
    if labels := Counter(examples.labels).most_common():
        shown = ", ".join(
            f"{label[:LETTERS_SHOWN]}: {number:,}" for label, number in labels[:SHOWN_LABELS]
        )
        yield Note("classes", len(labels), kind.target, shown)
    for split in SPLITS[1:]:
        given = {label for e in examples.by_split[split] for label in kind.labels_of(e.row)}
        if split in source and len(given) == 1 < len(labels):
            yield Note("placeholder", split, next(iter(given)))
    words = examples.count_words(examples.inputs)
    yield Note("words", *np.quantile(words, [0.5, 0.95, 1.0]))
    lines = {
        e.id: 1 + text.count("\n")
        for e, text in zip(examples.by_split["train"], map(str.strip, examples.inputs), strict=True)
    }
    first = max(lines, key=lines.__getitem__)
    if files_of(source)[0].format in ("csv", "tsv") and lines[first] >= ODD_LINES:
        yield Note("lines", lines[first], first)
    if shared := [f"{n:,} rows of {split}" for split, n in examples.removed.items() if n]:
        yield Note("removed", " and ".join(shared))
    if (kind.stratified or kind.right_if is not None) and num["test"] < FEW_TEST_ROWS:
        points = 100 * 1.96 * math.sqrt(0.25 / max(num["test"], 1))
        yield Note("margin", num["test"], points)


def _drawn(examples: Examples) -> str:
    """Returns how the splits are drawn."""
    source = examples.source
    if times := times_of(examples.by_split):
        begins = ", ".join(f"{split} from {times[split][0]}" for split in SPLITS[1:])
        return f"drawn in the order of {source[TIME]}, about 80/10/10: {begins}"
    if "split" in source:
        return "as the column has them; a split that it does not name is drawn from train"
    drawn = [split for split in SPLITS if split not in source]
    if len(drawn) < 2:
        return f"{drawn[0]} drawn from train" if drawn else "as the files have them"
    return f"drawn by a hash of {source.get(GROUP) or 'the input'}, 80/10/10"
